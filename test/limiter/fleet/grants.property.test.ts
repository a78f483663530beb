import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { Grant } from '../../../src/limiter/fleet/grants.ts'
import { AdditionsProcess, type Message, type Reply, TotalsProcess } from '../../fleet/engine-model.ts'

/**
 * Servers and one engine, step by step, where each message and each answer may be lost, late or twice. The rule of the whole
 * design: what is let through in a window is never more than what was given of it, and that never more than the limit.
 */

const WINDOW_MS = 1_000
const LIMIT = 20

type Step = {
  /** The whole numbers choose among what is possible then. */
  do: 'take' | 'together' | 'settle' | 'undo' | 'ask' | 'arrive' | 'answer' | 'lose' | 'return' | 'pass'
  server: number
  pick: number
  cost: number
}
const step: fc.Arbitrary<Step> = fc.record({
  do: fc.constantFrom(
    ...(['take', 'take', 'together', 'settle', 'undo', 'ask', 'ask'] as const),
    ...(['arrive', 'arrive', 'arrive', 'answer', 'answer', 'answer', 'lose', 'return', 'pass'] as const),
  ),
  server: fc.nat(2),
  pick: fc.nat(50),
  cost: fc.nat(6),
})

class Server {
  grant = new Grant(1, 2, 3, 4, false)
  epoch = 1
  /** The last message sent. */
  last: Flying | null = null
  /** Of the entry under way; what comes for an older one is not read. */
  exchange = 0
  held: { endMs: number; cost: number }[] = []
  spent: { endMs: number; cost: number }[] = []
  constructor(readonly id: number) {}
}

/** A message or an answer on its way. */
type Flying = { server: Server; exchange: number; message: Message; reply?: Reply }

class Fleet {
  nowMs = 0
  readonly process: TotalsProcess | AdditionsProcess
  readonly servers = [new Server(1), new Server(2), new Server(3)]
  readonly messages: Flying[] = []
  readonly answers: Flying[] = []
  readonly passed = new Map<number, number>()
  readonly given = new Map<number, number>()
  checks = 0

  constructor(private readonly kind: 'totals' | 'additions') {
    this.process =
      kind === 'totals' ? new TotalsProcess(1, () => 10_000 + this.nowMs) : new AdditionsProcess()
    if (this.process instanceof TotalsProcess)
      this.process.buckets.set(0, { runId: 1, usedAtMs: 1e9, learnsUntilMs: 0, pastMs: 0, epochs: new Map() })
  }

  run({ do: what, server: number, pick, cost }: Step): void {
    const server = this.servers[number] as Server // one of three
    const { grant } = server
    if (what === 'pass') this.nowMs += 6 * pick
    // Clocks of servers differ by as much as half a window.
    const nowMs = this.nowMs + 250 * number
    grant.enter((Math.floor(nowMs / WINDOW_MS) + 1) * WINDOW_MS)
    if (what === 'take') {
      if (grant.decide(LIMIT, cost, nowMs) === 'passed') this.pass(server, grant.endMs, cost)
    } else if (what === 'together') {
      if (grant.reserve(cost)) server.held.push({ endMs: grant.endMs, cost })
    } else if (what === 'settle') {
      const held = server.held.shift()
      if (held !== undefined) {
        grant.settle(held.endMs, held.cost, pick % 2 === 0, nowMs)
        if (pick % 2 === 0) this.pass(server, held.endMs, held.cost)
      }
    } else if (what === 'undo') {
      const spent = server.spent.shift()
      if (spent !== undefined) {
        grant.undo(spent.endMs, spent.cost)
        this.count(spent.endMs, -spent.cost)
      }
    } else if (what === 'ask' && grant.entry === null) {
      const isTentative = pick % 5 === 0
      grant.ask({ limit: LIMIT, cost, least: Math.min(cost, pick), ahead: pick % 7, isTentative })
      this.send(server, nowMs)
    } else if (what === 'return' && grant.entry === null) {
      grant.giveUp()
      grant.tell()
      this.send(server, nowMs)
    } else if (what === 'arrive') this.arrive(pick)
    else if (what === 'answer') this.answer(pick, nowMs)
    else if (what === 'lose') {
      const { last } = server
      if (this.kind === 'totals' && last !== null && pick % 2 === 0) this.messages.push(last) // sent again, as some clients do
      grant.failed()
      server.exchange++
      server.epoch++
    }
    this.check()
  }

  private send(server: Server, nowMs: number): void {
    const { entry } = server.grant
    if (entry === null) throw new Error('nothing to send')
    const exchange = { bucket: 0, nowMs, looseMs: 500, share: 2, entries: [entry] }
    const message = { serverId: server.id, epoch: server.epoch, learnMs: 0, exchange }
    server.last = { server, exchange: server.exchange, message }
    this.messages.push(server.last)
  }

  /** A connection keeps order and repeats nothing. Messages of one before, which has failed, arrive at any time and twice. */
  private arrive(pick: number): void {
    const flying =
      pick % 4 > 0 ? this.messages.at(-1) : this.messages[pick % Math.max(1, this.messages.length)]
    if (flying === undefined) return
    const { server, message } = flying
    const isCurrent = message.epoch === server.epoch
    if (this.kind === 'additions' || isCurrent || pick % 3 > 0)
      this.messages.splice(this.messages.indexOf(flying), 1)
    this.answers.push({ ...flying, reply: this.process.take(flying.message) })
    // A process that adds has one row a cell: when it counts a later window, what it gave of this one stands.
    for (const endMs of [1, 2, 3, 4, 5, 6, 7, 8, 9].map((window) => window * WINDOW_MS)) {
      const sum = this.process.sumOf({ h0: 1, h1: 2, h2: 3, h3: 4, endMs })
      if (sum > 0 || this.kind === 'totals') this.given.set(endMs, sum)
    }
  }

  private answer(pick: number, nowMs: number): void {
    const [flying] = this.answers.splice(pick % 4 > 0 ? -1 : pick % Math.max(1, this.answers.length), 1)
    if (flying === undefined) return
    const { server, exchange, reply } = flying
    if (exchange !== server.exchange || server.grant.entry === null || reply === undefined) return
    server.exchange++
    if (reply.kind === 'stale') {
      server.grant.failed()
      server.epoch = reply.epoch + 1
      return
    }
    for (const answer of reply.answers)
      server.grant.answered(answer, { isLearning: false, isByServer: true, nowMs })
    server.grant.rest()
  }

  private pass(server: Server, endMs: number, cost: number): void {
    server.spent.push({ endMs, cost })
    this.count(endMs, cost)
  }

  private count(endMs: number, cost: number): void {
    this.passed.set(endMs, (this.passed.get(endMs) ?? 0) + cost)
  }

  private check(): void {
    for (const [endMs, passed] of this.passed) {
      const given = this.given.get(endMs) ?? 0
      if (passed > given || given > LIMIT)
        throw new Error(
          `of the window until ${endMs} ${passed} passed, ${given} were given, ${LIMIT} is the limit`,
        )
      this.checks++
    }
  }
}

for (const kind of ['totals', 'additions'] as const)
  test(`an engine that counts by ${kind}: never more passes than was given, whatever is lost, late, twice or returned`, () => {
    let checks = 0
    let passes = 0
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 150, size: 'max' }), (steps) => {
        const fleet = new Fleet(kind)
        for (const each of steps) fleet.run(each)
        checks += fleet.checks
        passes += [...fleet.passed.values()].reduce((sum, passed) => sum + passed, 0)
      }),
      { numRuns: 800, seed: 7 },
    )
    expect(checks).toBeGreaterThan(2_000)
    expect(passes).toBeGreaterThan(1_000)
  })
