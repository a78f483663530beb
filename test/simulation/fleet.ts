import { type Cell, FleetCall, FleetShard, type OutageRule } from '../../src/limiter/fleet/fleet-shard.ts'
import {
  AdditionsProcess,
  type EnginePlants,
  type Message,
  ModelEngine,
  type Reply,
  TotalsProcess,
} from '../fleet/engine-model.ts'
import type { Outcome } from './simulation.ts'
import { Thread, World } from './world.ts'

/** Bugs of the engine, for the plants of `fleet-plants.ts`. */
export const enginePlants: EnginePlants & { kind?: 'redis' | 'postgres' } = {}

/** Runs one seed of several servers that share limits, to its end or to the first problem. */
export function simulateFleet(seed: number, options: { isTraced: boolean }): Outcome {
  const fleet = new Fleet(seed, options)
  let failure: Error | null = null
  try {
    fleet.run()
  } catch (cause) {
    failure = cause instanceof Error ? cause : new Error(String(cause))
  }
  const { world, decisions, faults } = fleet
  return { seed, decisions, faults, virtualMs: world.nowMs, failure, trace: world.trace ?? [] }
}

/**
 * One to five servers, one shard each, and an engine that may fail in every way. Checked:
 *
 * 1. In each window that decisions name, no more passes than the limit; beyond it only what an outage rule let through, and
 *    what an engine lost of servers that were dead, frozen or cut off while it learned, or gave while there were two of it.
 * 2. By `share` no server lets through more than its part of a window.
 * 3. The engine's sums are what it gave.
 * 4. Every call is decided in time.
 * 5. Once all faults are over, demand above the limit passes exactly the limit.
 */
class Fleet {
  readonly world: World
  decisions = 0
  faults = 0
  private readonly profile: Profile
  private readonly servers: Server[] = []
  private readonly counters: Counter[] = []
  private readonly windows = new Map<string, Window>()
  private readonly engine: EngineHost
  private lastServerId = 0
  private isOver = false

  constructor(seed: number, options: { isTraced: boolean }) {
    const world = new World(seed, options)
    this.world = world
    const kind = enginePlants.kind ?? (world.chance(0.3) ? 'postgres' : 'redis')
    const all: Fault[] = ['loss', 'late', 'freeze', 'kill', 'stop', 'cut', 'outage', 'limit']
    if (kind === 'redis') all.push('restart', 'failover', 'failover', 'two masters', 'engine clock')
    const faults = all.filter(() => world.chance(0.4))
    this.profile = {
      kind,
      servers: world.integer(1, 5),
      leaseMs: world.pick([0, 100, 250, 250]),
      outage: world.pick(['share', 'share', 'refuse', 'open']),
      callsEveryMs: world.pick([4, 10, 30]),
      lastsMs: world.integer(1_000, 4_000),
      faultsEveryMs: world.pick([200, 500, 1_500]),
      faults: faults.length === 0 ? ['loss'] : faults,
      cellsMax: world.chance(0.2) ? 1 : 1_000,
    }
    this.engine = new EngineHost(world, kind)
    this.engine.onLost = (name, amounts) => this.windowOf(name).lost.push(...amounts)
    this.engine.onGivenTwice = (name, amount) => {
      this.windowOf(name).allowed += amount
    }
    const counters = world.integer(1, 4)
    for (let i = 0; i < counters; i++) {
      const limit = world.pick([1, 5, 20, 100])
      const durationMs = world.pick([700, 2_000, 60_000, 60_000])
      this.counters.push({
        h0: (i % 2 === 0 ? 1 : -1) * (i + 1),
        h1: i,
        h2: 7 * i,
        h3: -i,
        limit,
        durationMs,
      })
    }
    for (let i = 0; i < this.profile.servers; i++) this.servers.push(this.startServer(i))
  }

  run(): void {
    const { world, profile } = this
    world.note(() => `profile ${JSON.stringify(profile)} counters ${JSON.stringify(this.counters)}`)
    for (let i = 0; i < profile.servers; i++) this.scheduleCall(i)
    world.after(profile.faultsEveryMs, null, () => this.fault())
    this.runUntil(profile.lastsMs)
    this.isOver = true
    this.endFaults()
    // Longer than all that may still be late, and than anything learns.
    this.runUntil(world.nowMs + 5_000)
    for (const server of this.servers)
      if (server.waiting.size > 0)
        throw new Error(`${server.name} has ${server.waiting.size} calls undecided`)
    this.demand()
    this.check()
  }

  /** All servers want more than the limit of windows that nobody has used, without faults. */
  private demand(): void {
    const { world, profile } = this
    const endsMs = this.counters.map((counter) => {
      counter.durationMs = 10_000_000
      return this.endOf(counter, world.nowMs)
    })
    const untilMs = world.nowMs + 8 * Math.max(profile.leaseMs, TIMEOUT_MS)
    let ticks = 0
    const next = () => {
      if (world.nowMs > untilMs) return
      for (const server of this.servers)
        for (const counter of this.counters)
          for (let i = 0; i < (ticks < 10 ? counter.limit / 10 : 2); i++) this.call(server, counter, 1)
      ticks++
      world.after(30, null, next)
    }
    next()
    this.runUntil(untilMs + 1_000)
    for (const [i, counter] of this.counters.entries()) {
      const passed = this.windowOf(nameOf(counter, endsMs[i] ?? 0)).passed
      const asked = this.windowOf(nameOf(counter, endsMs[i] ?? 0)).asked
      if (passed !== counter.limit)
        throw new Error(`without faults ${passed} of the limit ${counter.limit} passed, ${asked} were asked`)
    }
  }

  private endOf({ durationMs }: Counter, fleetMs: number): number {
    return (Math.floor((EPOCH_MS + fleetMs) / durationMs) + 1) * durationMs
  }

  private runUntil(ms: number): void {
    const { world } = this
    let isThere = false
    world.at(ms, null, () => {
      isThere = true
    })
    while (!isThere && world.step());
  }

  private startServer(index: number): Server {
    const { world, profile, engine } = this
    const serverId = ++this.lastServerId
    const thread = new Thread(world, `server ${index}#${serverId}`)
    const server: Server = {
      name: thread.name,
      serverId,
      thread,
      skewMs: world.chance(0.5) ? world.integer(0, 40) : 0,
      waiting: new Set(),
      wire: { isCut: false, lossChance: 0, lateChance: 0 },
      troubledMs: Number.NEGATIVE_INFINITY,
      outageDecisions: 0,
      shard: null as unknown as FleetShard, // set in the next statement
    }
    const buckets = profile.kind === 'redis' ? 2 : 1
    server.shard = new FleetShard({
      engine: new ModelEngine(
        { serverId, timeoutMs: TIMEOUT_MS, learnMs: 3 * TIMEOUT_MS },
        {
          kind: profile.kind,
          buckets,
          timers: thread.timers,
          fleetId: { value: null },
          wire: (message, replied) => this.send(server, message, replied),
        },
      ),
      timers: thread.timers,
      buckets: Array.from({ length: buckets }, (_, bucket) => bucket),
      nowMs: EPOCH_MS + world.nowMs,
      leaseMs: profile.leaseMs,
      timeoutMs: TIMEOUT_MS,
      outage: profile.outage,
      servers: () => profile.servers,
      cellsMax: profile.cellsMax,
    })
    engine.servers.push(server)
    return server
  }

  // Calls.

  private scheduleCall(index: number): void {
    const { world, profile } = this
    const next = () => {
      if (this.isOver) return
      const server = this.servers[index]
      if (server !== undefined) this.callAny(server)
      world.after(profile.callsEveryMs * (0.5 + world.random()), null, next)
    }
    world.after(world.between(0, 50), null, next)
  }

  private callAny(server: Server): void {
    const { world } = this
    const counter = world.pick(this.counters as [Counter, ...Counter[]]) // there is one at least
    const burst = world.chance(0.1) ? world.integer(2, 30) : 1
    for (let i = 0; i < burst; i++)
      this.call(server, counter, world.chance(0.8) ? 1 : world.integer(0, 4), world.chance(0.1))
  }

  private call(server: Server, counter: Counter, cost: number, isPart = false): void {
    const { world } = this
    const { thread } = server
    if (thread.isDead || thread.pausedUntilMs > world.nowMs) return
    const { h0, h1, h2, h3, limit } = counter
    const fleetMs = EPOCH_MS + world.nowMs + server.skewMs
    const endMs = this.endOf(counter, world.nowMs + server.skewMs)
    this.windowOf(nameOf(counter, endMs)).asked += cost
    const call = new Call(limit, endMs, cost, isPart, (passed, used, cell) => {
      server.waiting.delete(call)
      this.decisions++
      const { outageDecisions } = server.shard.stats
      const isByRule = outageDecisions > server.outageDecisions
      server.outageDecisions = outageDecisions
      this.decided(server, { counter, cost, isPart, passed, used, cell, isByRule })
    })
    server.waiting.add(call)
    server.shard.take(h0, h1, h2, h3, call, fleetMs)
  }

  private decided(server: Server, decision: Decision): void {
    const { counter, cost, isPart, passed, used, cell, isByRule } = decision
    const { world } = this
    if (cell === null) {
      if (this.profile.outage !== 'refuse') world.fail('a decision is refused, and the rule is another')
      return
    }
    const { endMs } = cell
    const name = nameOf(counter, endMs)
    world.note(
      () =>
        `${server.name} ${passed ? 'passes' : 'refuses'} ${cost} of ${name}${isByRule ? ' by rule' : ''}${isPart ? ' in part' : ''}: used ${used}, own ${cell.own}, given ${cell.given}, others ${cell.others}`,
    )
    if (!passed || cost === 0) return
    this.pass(server, counter, endMs, { cost, isByRule })
    const back = () => this.pass(server, counter, endMs, { cost: -cost, isByRule })
    if (isPart)
      world.after(world.between(0, 30), server.thread, () => {
        const isSpent = world.chance(0.5)
        if (!isSpent) back()
        cell.settle(endMs, cost, isSpent, EPOCH_MS + world.nowMs + server.skewMs)
        if (!isSpent) server.shard.giveBack(cell)
      })
    else if (world.chance(0.05))
      world.after(world.between(0, 30), server.thread, () => {
        const { h0, h1, h2, h3 } = counter
        if (server.shard.find(h0, h1, h2, h3) !== cell) return // it had no memory: nothing is undone
        back()
        server.shard.undo(h0, h1, h2, h3, endMs, cost)
      })
  }

  private pass(
    server: Server,
    counter: Counter,
    endMs: number,
    { cost, isByRule }: { cost: number; isByRule: boolean },
  ): void {
    const window = this.windowOf(nameOf(counter, endMs))
    window.passed += cost
    window.limit = Math.max(window.limit, counter.limit, counter.limitBefore ?? 0)
    if (isByRule) {
      // What is taken back after it was told is held on, and may be spent again.
      window.byRule += Math.max(0, cost)
      const own = (window.byRuleOf.get(server.serverId) ?? 0) + cost
      window.byRuleOf.set(server.serverId, own)
      const part =
        this.profile.outage === 'open' ? window.limit : Math.floor(window.limit / this.profile.servers)
      if (own > part && window.lost.length === 0)
        this.world.fail(
          `${server.name} let ${own} through by its rule, and its part of ${window.limit} is ${part}`,
        )
    }
    this.checkWindow(window)
  }

  private checkWindow(window: Window): void {
    const { limit, passed, byRule, name } = window
    if (passed <= limit) return
    const lost = window.lost
      .filter(({ server, atMs }) => this.wasTroubled(server, atMs))
      .reduce((sum, { amount }) => sum + amount, 0)
    const allowed = limit + byRule + window.allowed + lost
    if (passed > allowed)
      this.world.fail(
        `${passed} passed of ${name}: the limit is ${limit}, ${byRule} by rule, ${lost} lost, ${window.allowed} given twice`,
      )
  }

  /** It could not tell an engine that lost its words at `atMs` what it holds, or not surely. */
  private wasTroubled(server: Server, atMs: number): boolean {
    return this.profile.cellsMax === 1 || server.thread.isDead || server.troubledMs > atMs - 2 * TIMEOUT_MS
  }

  private windowOf(name: string): Window {
    let window = this.windows.get(name)
    if (window === undefined) {
      window = { name, passed: 0, asked: 0, limit: 0, byRule: 0, byRuleOf: new Map(), lost: [], allowed: 0 }
      this.windows.set(name, window)
    }
    return window
  }

  private check(): void {
    this.engine.check()
    for (const window of this.windows.values()) this.checkWindow(window)
  }

  // Messages.

  private send(server: Server, message: Message, replied: (reply: Reply | Error) => void): boolean {
    const { world, engine } = this
    const { wire, thread } = server
    if (engine.isAway || wire.isCut) {
      server.troubledMs = world.nowMs
      if (world.chance(0.5)) return false
      return true // it waits for an answer in vain
    }
    const isPostgres = this.profile.kind === 'postgres'
    const arrive = (delayMs: number, doesReply: boolean) =>
      world.after(delayMs, null, () => {
        if (engine.isAway) return
        const reply = engine.take(server, message)
        world.note(
          () =>
            `${server.name}#${message.epoch} ${JSON.stringify(message.exchange.entries.map(short))} ${JSON.stringify(reply.kind === 'answered' ? [reply.isLearning, reply.answers.map(shortAnswer)] : reply)}`,
        )
        if (!doesReply) return
        world.after(this.delay(wire.lateChance), thread, () => replied(reply))
      })
    const isLost = world.chance(wire.lossChance)
    const isLate = world.chance(wire.lateChance)
    if (isLost || isLate) {
      this.faults++
      server.troubledMs = world.nowMs
    }
    if (isLost) {
      const what = world.pick(['request', 'answer', 'connection'])
      if (what === 'answer') arrive(this.delay(0), false)
      // The connection ends; some clients send again what was under way, on the next one.
      if (what === 'connection') {
        world.after(world.between(1, 20), thread, () => replied(new Error('the connection ended')))
        if (world.chance(0.5)) arrive(world.between(0, 1_000), false)
        if (!isPostgres && world.chance(0.5)) arrive(world.between(20, 3_000), false)
      }
      return true
    }
    arrive(isLate ? world.between(0, 4 * TIMEOUT_MS) : this.delay(0), true)
    return true
  }

  private delay(lateChance: number): number {
    const { world } = this
    return world.chance(lateChance) ? world.between(0, 3 * TIMEOUT_MS) : world.between(0.1, 2)
  }

  // Faults.

  private fault(): void {
    const { world, profile, engine } = this
    if (this.isOver) return
    const index = world.integer(0, profile.servers - 1)
    const server = this.servers[index] as Server // in range
    const what = world.pick(profile.faults as [Fault, ...Fault[]]) // there is one
    this.faults++
    const forMs = world.between(50, 1_500)
    const later = (run: () => void) => world.after(forMs, null, run)
    world.note(() => `fault: ${what}, ${server.name}`)
    switch (what) {
      case 'loss':
        server.wire.lossChance = world.pick([0.05, 0.3, 0.7])
        later(() => {
          server.wire.lossChance = 0
        })
        break
      case 'late':
        server.wire.lateChance = world.pick([0.05, 0.3])
        later(() => {
          server.wire.lateChance = 0
        })
        break
      case 'freeze':
        if (server.thread.isDead) break
        server.thread.pausedUntilMs = world.nowMs + forMs
        server.troubledMs = world.nowMs + forMs
        break
      case 'kill':
        server.thread.die()
        server.waiting.clear()
        later(() => {
          if (!this.isOver) this.servers[index] = this.startServer(index)
        })
        break
      case 'stop':
        if (server.thread.isDead || server.thread.pausedUntilMs > world.nowMs) break
        void server.shard.stop(1_000).then(() => {
          server.thread.die()
        })
        server.waiting.clear()
        this.servers[index] = this.startServer(index)
        break
      case 'cut':
        server.wire.isCut = true
        later(() => {
          server.wire.isCut = false
        })
        break
      case 'outage':
        engine.isAway = true
        later(() => {
          engine.isAway = false
        })
        break
      case 'limit': {
        const counter = world.pick(this.counters as [Counter, ...Counter[]]) // there is one at least
        counter.limitBefore = Math.max(counter.limit, counter.limitBefore ?? 0)
        counter.limit = world.pick([1, 5, 20, 100])
        break
      }
      case 'restart':
        engine.restart()
        break
      case 'failover':
        engine.failOver(world.between(0, 1_000), false)
        break
      case 'two masters':
        engine.failOver(world.between(0, 300), true)
        break
      case 'engine clock':
        engine.stepClock(world.integer(-3_600_000, 3_600_000))
        break
    }
    world.after(profile.faultsEveryMs * (0.5 + world.random()), null, () => this.fault())
  }

  private endFaults(): void {
    this.engine.isAway = false
    this.engine.endTwoMasters()
    for (const [index, server] of this.servers.entries()) {
      server.wire = { isCut: false, lossChance: 0, lateChance: 0 }
      if (server.thread.isDead) this.servers[index] = this.startServer(index)
    }
  }
}

/** The engine's processes: one, or for a while two; and what was lost when one took over. */
class EngineHost {
  readonly servers: Server[] = []
  isAway = false
  private clockOffMs = 0
  /** What the engine lost of a window, by server. */
  onLost: (name: string, amounts: Lost[]) => void = () => {}
  /** A process that was replaced has given that. */
  onGivenTwice: (name: string, amount: number) => void = () => {}
  private process: TotalsProcess | AdditionsProcess
  /** Still asked by some servers. */
  private old: { process: TotalsProcess; untilMs: number; servers: Set<Server> } | null = null
  /** Copies of the process, oldest first: replicas that are so far behind. */
  private copies: { atMs: number; process: TotalsProcess }[] = []
  private lastRunId = 1

  constructor(
    private readonly world: World,
    kind: 'redis' | 'postgres',
  ) {
    this.process = kind === 'redis' ? new TotalsProcess(1, this.clock, enginePlants) : new AdditionsProcess()
  }

  take(server: Server, message: Message): Reply {
    const { old, process, world } = this
    if (old !== null && world.nowMs < old.untilMs && old.servers.has(server)) {
      const reply = old.process.take(message)
      if (reply.kind === 'answered')
        for (const [i, answer] of reply.answers.entries()) {
          const entry = message.exchange.entries[i]
          if (entry !== undefined) this.onGivenTwice(nameOf(entry, answer.endMs), answer.gift)
        }
      return reply
    }
    const reply = process.take(message)
    if (process instanceof TotalsProcess) {
      const last = this.copies.at(-1)
      if (last === undefined || world.nowMs - last.atMs > 50) {
        this.copies.push({ atMs: world.nowMs, process: process.replica(0) })
        if (this.copies.length > 25) this.copies.shift()
      }
    }
    return reply
  }

  restart(): void {
    this.replaceBy(new TotalsProcess(++this.lastRunId, this.clock, enginePlants))
  }

  /** A replica takes over that is so far behind. @param isSplit Some servers go on with the old process for a while. */
  failOver(behindMs: number, isSplit: boolean): void {
    const { world, process } = this
    if (!(process instanceof TotalsProcess)) return
    const copy = this.copies.findLast(({ atMs }) => atMs <= world.nowMs - behindMs)
    if (isSplit) {
      const servers = new Set(this.servers.filter(() => world.chance(0.5)))
      this.old = { process, untilMs: world.nowMs + world.between(100, 1_000), servers }
      for (const server of servers) server.troubledMs = this.old.untilMs
    }
    this.replaceBy(
      copy?.process.replica(++this.lastRunId) ??
        new TotalsProcess(++this.lastRunId, this.clock, enginePlants),
    )
  }

  endTwoMasters(): void {
    this.old = null
  }

  check(): void {
    if (!(this.process instanceof TotalsProcess)) return
    for (const [name, { sum, given }] of this.process.windows) {
      const total = [...given.values()].reduce((total, each) => total + each, 0)
      if (total !== sum) throw new Error(`the engine gave ${total} of ${name}, and its sum is ${sum}`)
    }
  }

  private readonly clock = () => EPOCH_MS + Math.floor(this.world.nowMs) + this.clockOffMs

  /** Windows may expire by it, at once or soon. */
  stepClock(byMs: number): void {
    const before = this.openWindows(this.process)
    this.clockOffMs += byMs
    this.lose(before, this.openWindows(this.process, SOON_MS))
  }

  private replaceBy(next: TotalsProcess): void {
    this.lose(this.openWindows(this.process), this.openWindows(next))
    this.process = next
    this.copies = []
  }

  /** What was given of the windows that have not expired and will not within `ms`. */
  private openWindows(process: TotalsProcess | AdditionsProcess, ms = 0): Map<string, Map<number, number>> {
    const open = new Map<string, Map<number, number>>()
    if (process instanceof TotalsProcess)
      for (const [name, { given, expiresAtMs }] of process.windows)
        if (expiresAtMs > process.clock() + ms) open.set(name, given)
    return open
  }

  /** Tells what is known of less than before. */
  private lose(before: Map<string, Map<number, number>>, after: Map<string, Map<number, number>>): void {
    const { world } = this
    for (const [name, given] of before) {
      const kept = after.get(name)
      const lost: Lost[] = []
      for (const server of this.servers) {
        const amount = (given.get(server.serverId) ?? 0) - (kept?.get(server.serverId) ?? 0)
        if (amount > 0) lost.push({ server, amount, atMs: world.nowMs })
      }
      if (lost.length > 0) this.onLost(name, lost)
    }
  }
}

class Call extends FleetCall {
  constructor(
    limit: number,
    endMs: number,
    cost: number,
    private readonly isOfPart: boolean,
    private readonly hear: (passed: boolean, used: number, cell: Cell | null) => void,
  ) {
    super(limit, endMs, cost)
  }
  override get isPart(): boolean {
    return this.isOfPart
  }
  decided(passed: boolean, used: number, cell: Cell | null): void {
    this.hear(passed, used, cell)
  }
}

type Fault =
  | 'loss'
  | 'late'
  | 'freeze'
  | 'kill'
  | 'stop'
  | 'cut'
  | 'outage'
  | 'limit'
  | 'restart'
  | 'failover'
  | 'two masters'
  | 'engine clock'
type Profile = {
  kind: 'redis' | 'postgres'
  servers: number
  leaseMs: number
  outage: OutageRule
  callsEveryMs: number
  lastsMs: number
  faultsEveryMs: number
  faults: Fault[]
  cellsMax: number
}
type Counter = {
  h0: number
  h1: number
  h2: number
  h3: number
  limit: number
  /** The highest limit that it had before. */
  limitBefore?: number
  durationMs: number
}
type Server = {
  name: string
  serverId: number
  thread: Thread
  /** Its fleet time is so far ahead. */
  skewMs: number
  waiting: Set<Call>
  wire: { isCut: boolean; lossChance: number; lateChance: number }
  /** When a message of it was last lost, or will be. */
  troubledMs: number
  shard: FleetShard
  /** Of its shard, when the last call was decided. */
  outageDecisions: number
}
type Decision = {
  counter: Counter
  cost: number
  isPart: boolean
  passed: boolean
  used: number
  cell: Cell | null
  isByRule: boolean
}
type Lost = { server: Server; amount: number; atMs: number }
type Window = {
  name: string
  passed: number
  asked: number
  /** The highest that held while something passed. */
  limit: number
  byRule: number
  byRuleOf: Map<number, number>
  lost: Lost[]
  /** What two masters gave. */
  allowed: number
}

const nameOf = ({ h0, h1, h2, h3 }: Pick<Counter, 'h0' | 'h1' | 'h2' | 'h3'>, endMs: number) =>
  `${h0}:${h1}:${h2}:${h3}@${endMs}`
const short = ({
  h0,
  endMs,
  limit,
  given,
  hasForgotten,
  returned,
  owed,
  asked,
  ahead,
}: Message['exchange']['entries'][number]) =>
  `${h0}@${endMs} limit ${limit} given ${hasForgotten ? '?' : given} returned ${returned} owed ${owed} asked ${asked}+${ahead}`
const shortAnswer = ({
  endMs,
  given,
  sum,
  looseUntilMs,
}: {
  endMs: number
  given: number
  sum: number
  looseUntilMs: number
}) => `@${endMs} given ${given} sum ${sum} loose ${looseUntilMs}`

const EPOCH_MS = 1_800_000_000_000
/** Longer than a seed lasts, and shorter than a window is kept after its end. */
const SOON_MS = 30_000
const TIMEOUT_MS = 200
