import { expect, test } from 'bun:test'
import type { Engine } from '../../src/fleet/engine.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { randomNumbers } from '../support/random.ts'
import { entryOf, exchangeOf, NOW, newCell, type Subject, testEngine } from './engine-contract.ts'
import { AdditionsProcess, ModelEngine, type Process, TotalsProcess } from './engine-model.ts'

/** The models keep the contract that they are the measure of. */

const subjectOf = (kind: 'redis' | 'postgres', process: Process, model: () => Process): Subject => ({
  open: (setup): Promise<Engine> =>
    Promise.resolve(
      new ModelEngine(
        { serverId: ++servers, timeoutMs: 5_000, learnMs: 0, ...setup },
        {
          kind,
          buckets: kind === 'redis' ? 16 : 1,
          fleetId: { value: null },
          timers: systemTimers,
          wire: (message, replied) => {
            queueMicrotask(() => replied(process.take(message)))
            return true
          },
        },
      ),
    ),
  model,
})
let servers = 0

const totals = () => new TotalsProcess(1, () => NOW)
const totalsSubject = subjectOf('redis', totals(), totals)
testEngine('the model of Redis', () => totalsSubject)

const additionsSubject = subjectOf('postgres', new AdditionsProcess(), () => new AdditionsProcess())
testEngine('the model of Postgres', () => additionsSubject)

test('servers that say what they hold are answered alike by both models', () => {
  const random = randomNumbers(11)
  const below = (n: number) => Math.floor(random() * n)
  const [byServer, byAdditions] = [totals(), new AdditionsProcess()]
  const cells = Array.from({ length: 12 }, newCell)
  const held = [0, 1, 2].map(() => cells.map(() => 0))
  for (let i = 0; i < 2_000; i++) {
    const serverId = below(3)
    const holds = held[serverId] ?? []
    const entries = cells.map((cell, c) => {
      const returned = below(3) === 0 ? below(1 + (holds[c] ?? 0)) : 0
      const asked = below(3) === 0 ? 0 : below(20)
      const wanted = { returned, asked, least: below(asked + 1), owed: below(40) === 0 ? below(5) : 0 }
      const ahead = below(2) === 0 ? below(30) : 0
      return entryOf(cell, { ...wanted, ahead, given: (holds[c] ?? 0) - returned, limit: 200 + below(9) })
    })
    const exchange = exchangeOf(entries, { nowMs: NOW + i, share: 2 + below(5) })
    const message = { serverId, epoch: 1, learnMs: 0, exchange }
    const reply = byServer.take(message)
    expect(byAdditions.take(message), `exchange ${i}`).toEqual(reply)
    if (reply.kind === 'answered') held[serverId] = reply.answers.map(({ given }) => given)
  }
})
