import type { Engine } from '../../src/fleet/engine.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import { NOW, type Subject, testEngine } from './engine-contract.ts'
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
