import { bucketOf } from '../../fleet/buckets.ts'
import {
  type Answered,
  ENTRIES_MAX,
  type Engine,
  type Entry,
  type Failed,
  type Result,
} from '../../fleet/engine.ts'
import { COUNT_MAX } from '../../lib/bounds.ts'
import type { Cancel, Timers } from '../../lib/timers.ts'
import { nameOf } from '../table/holds.ts'
import { Grant } from './grants.ts'

/** What decides a call while the engine cannot be asked: a part of the limit each, nothing, or as if alone. */
export type OutageRule = 'share' | 'refuse' | 'open'

/** What an engine is to a shard. `learning`: it has forgotten some of what it gave, and gives nothing for a moment. */
export type FleetCondition = 'ok' | 'learning' | 'away'

/** One call to one counter. Whoever makes it hears of its decision once, at once or later. */
export abstract class FleetCall {
  /** Fleet time, shard's clock: from then on the outage rule decides. Set while it waits. */
  dueMs = 0
  constructor(
    readonly limit: number,
    readonly endMs: number,
    readonly cost: number,
    /** Null = the shard's. */
    readonly outage: OutageRule | null = null,
  ) {}

  /** It only looks whether its cost would fit: it asks for nothing. */
  get doesLook(): boolean {
    return this.cost === 0
  }
  /** Its cost is set aside until the other calls of its part are decided; see `Grant.settle`. */
  get isPart(): boolean {
    return false
  }
  /** @param used After the decision, by all servers as far as known. @param cell Null = an outage rule refuses to decide. */
  abstract decided(passed: boolean, used: number, cell: Cell | null): void
}

/** One counter of this shard: what is held of its window, and who waits. */
export class Cell extends Grant {
  /** In the order in which they came. The first {@link included} are in the entry under way. */
  readonly waiting: FleetCall[] = []
  included = 0
  /** Another cell with the same 53 bits of its name. */
  next: Cell | null = null
  /** There is memory for it. Otherwise it goes as soon as nobody waits. */
  isKept = true
}

/**
 * The counters of one shard whose limits all servers share. What an engine gave is decided here, in memory; the rest waits:
 *
 * 1. A call joins its cell. A lease that covers it, or a final refusal, decides it at once.
 * 2. Else it waits. At the turn's end all waiting cells of a bucket become one exchange, one entry a cell. What comes
 *    meanwhile is the next one.
 * 3. The answer's window is taken over, then the waiting calls are decided in order. What is left is a lease.
 * 4. Leases not used up in `leaseMs` are given up, then told. One that runs low asks for more before its callers wait.
 * 5. A bucket that learns is told all that is held; its calls wait `timeoutMs`, then go by the outage rule.
 * 6. After {@link MISSES_MAX} failures in a row a bucket is away: the outage rule decides at once, and one probe at a time
 *    goes out. What was let through is owed, and told when an answer comes.
 */
export class FleetShard {
  readonly stats: FleetStats = {
    exchanges: 0,
    entries: 0,
    failed: 0,
    exchangeMs: 0,
    given: 0,
    returned: 0,
    learned: 0,
    outageDecisions: 0,
  }
  /** What the last exchange that failed did so with; null = none has since the last answer. */
  failure: Failed | null = null
  private readonly buckets = new Map<number, Bucket>()
  private cells = 0
  /** Until then, some cell without memory may hold some of its window: a new cell does not know. */
  private forgottenUntilMs = 0
  private isSendDue = false
  private isStopped = false
  /** The latest fleet time of a call, and when it came by this thread's timers. */
  private latestMs = 0
  private latestAt = 0
  /**
   * The engine may, and counts by server: it must hear of this server all the time, and of all that it holds when it has
   * forgotten.
   */
  private readonly doesForget: boolean
  private readonly cancelTick: Cancel
  private readonly sendDue = () => this.send()

  constructor(private readonly options: FleetShardOptions) {
    const { timers, engine } = options
    this.latestMs = options.nowMs
    this.latestAt = timers.now()
    for (const number of options.buckets) this.buckets.set(number, new Bucket(number, timers.now()))
    const tickMs = Math.max(1, Math.min(options.timeoutMs, options.leaseMs || options.timeoutMs) / 2)
    this.cancelTick = timers.every(tickMs, () => this.tick())
    this.doesForget = engine.kind === 'redis'
  }

  /** Fleet time. */
  get nowMs(): number {
    return this.latestMs + (this.options.timers.now() - this.latestAt)
  }

  get condition(): FleetCondition {
    let isLearning = false
    for (const bucket of this.buckets.values()) {
      if (bucket.isAway) return 'away'
      if (bucket.isLearning) isLearning = true
    }
    return isLearning ? 'learning' : 'ok'
  }

  /**
   * Speaks to all buckets until each has answered and none learns. A Redis that nobody spoke to learns first.
   * @returns whether that was within `ms`.
   */
  async ready(ms: number): Promise<boolean> {
    const { timers } = this.options
    const untilMs = timers.now() + ms
    const isReady = () =>
      [...this.buckets.values()].every((bucket) => bucket.hasAnswered && !bucket.isLearning)
    while (!isReady()) {
      if (this.isStopped || timers.now() >= untilMs) return false
      for (const bucket of this.buckets.values()) if (!bucket.hasAnswered) this.sendBucket(bucket, true)
      await new Promise<void>((resolve) => timers.after(10, resolve))
    }
    return true
  }

  /** Decides the call, or lets it wait. @param atMs Fleet time of the call. */
  take(h0: number, h1: number, h2: number, h3: number, call: FleetCall, atMs: number): void {
    this.heard(atMs)
    const bucket = this.bucketOf(h0)
    const cell = this.cellOf(bucket, h0, h1, h2, h3)
    if (cell.waiting.length === 0) cell.enter(call.endMs)
    if (call.endMs <= cell.endMs) {
      const isFirst = cell.waiting.length === 0
      if (isFirst && decideHere(cell, call, atMs)) {
        if (cell.isLow() && cell.aheadOf(atMs, this.options.leaseMs) > cell.unspent) this.want(bucket, cell)
        return
      }
      if (cell.isRefused(call.limit, call.cost, atMs)) {
        call.decided(false, cell.used, cell)
        return
      }
    }
    if (bucket.isAway) {
      if (call.endMs > cell.endMs) cell.failed() // a probe tells of a window that is over
      cell.enter(call.endMs)
      this.decideByRule(bucket, cell, call)
      this.drop(bucket, cell)
      return
    }
    call.dueMs = this.options.timers.now() + this.options.timeoutMs
    cell.waiting.push(call)
    this.want(bucket, cell)
  }

  /** The cell of a counter that was charged lately, or null. */
  find(h0: number, h1: number, h2: number, h3: number): Cell | null {
    let cell = this.bucketOf(h0).cells.get(nameOf(h0, h1)) ?? null
    while (cell !== null && (cell.h0 !== h0 || cell.h1 !== h1 || cell.h2 !== h2 || cell.h3 !== h3))
      cell = cell.next
    return cell
  }

  /** Takes back what was charged in that window. It is returned soon: others may have been refused for it. */
  undo(h0: number, h1: number, h2: number, h3: number, endMs: number, cost: number): void {
    const cell = this.find(h0, h1, h2, h3)
    if (cell === null) return // it had no memory: the charge stays until the window ends
    cell.undo(endMs, cost)
    this.giveBack(cell)
  }

  /** What was set aside of this cell is free again. */
  giveBack(cell: Cell): void {
    if (!this.isThere(cell)) return // it went on to another window and was forgotten there
    const bucket = this.bucketOf(cell.h0)
    bucket.returning.add(cell)
    this.sendSoon()
  }

  /** Returns all leases, within about `ms`. Takes no more calls. */
  async stop(ms: number): Promise<void> {
    this.isStopped = true
    const { timers } = this.options
    const untilMs = timers.now() + ms
    for (const bucket of this.buckets.values())
      for (const cell of bucket.all()) {
        this.decideAllByRule(bucket, cell)
        bucket.returning.add(cell)
      }
    this.send()
    while (
      timers.now() < untilMs &&
      [...this.buckets.values()].some((bucket) => bucket.hasWork && !bucket.isAway)
    )
      await new Promise<void>((resolve) => timers.after(10, resolve))
    this.abandon()
  }

  /** Ends at once. What is held is wasted. */
  abandon(): void {
    this.isStopped = true
    this.cancelTick()
    void this.options.engine.close()
  }

  private heard(atMs: number): void {
    if (atMs <= this.latestMs) return
    this.latestMs = atMs
    this.latestAt = this.options.timers.now()
  }

  private bucketOf(h0: number): Bucket {
    const number = bucketOf(h0, this.options.engine.buckets)
    const bucket = this.buckets.get(number)
    if (bucket === undefined) throw new Error(`bucket ${number} is not of this shard`)
    return bucket
  }

  private cellOf(bucket: Bucket, h0: number, h1: number, h2: number, h3: number): Cell {
    const known = this.find(h0, h1, h2, h3)
    if (known !== null) return known
    const cell = new Cell(h0, h1, h2, h3, this.nowMs < this.forgottenUntilMs)
    const name = nameOf(h0, h1)
    cell.next = bucket.cells.get(name) ?? null
    bucket.cells.set(name, cell)
    if (++this.cells > this.options.cellsMax) cell.isKept = false
    return cell
  }

  /** One that was forgotten must not be told of: another may have taken its place and hold more. */
  private isThere(cell: Cell): boolean {
    return this.find(cell.h0, cell.h1, cell.h2, cell.h3) === cell
  }

  private want(bucket: Bucket, cell: Cell): void {
    bucket.wanting.add(cell)
    this.sendSoon()
  }

  private sendSoon(): void {
    if (this.isSendDue) return
    this.isSendDue = true
    this.options.timers.soon(this.sendDue)
  }

  private send(): void {
    this.isSendDue = false
    for (const bucket of this.buckets.values()) this.sendBucket(bucket, false)
  }

  /** @param isPing Also without entries. */
  private sendBucket(bucket: Bucket, isPing: boolean): void {
    const now = this.options.timers.now()
    if (bucket.isUnderWay || now < bucket.notBefore) return
    const { nowMs } = this
    const cells: Cell[] = []
    const entries: Entry[] = []
    const add = (cell: Cell, entry: Entry) => {
      cells.push(cell)
      entries.push(entry)
    }
    for (const cell of bucket.wanting) {
      if (entries.length === ENTRIES_MAX) break
      bucket.wanting.delete(cell)
      const entry = this.askFor(cell, nowMs)
      if (entry === null) this.drop(bucket, cell, nowMs)
      else add(cell, entry)
    }
    if (!bucket.isAway)
      for (const cell of bucket.returning) {
        if (entries.length === ENTRIES_MAX) break
        bucket.returning.delete(cell)
        if (cell.entry !== null || cell.waiting.length > 0) continue // what it has is for those
        cell.giveUp()
        if (cell.returned > 0) add(cell, cell.tell())
      }
    while (entries.length < ENTRIES_MAX && bucket.untold.length > 0) {
      const cell = bucket.untold.pop() as Cell // there is one
      if (cell.entry !== null || cell.endMs <= nowMs || !this.isThere(cell)) continue
      if (cell.given + cell.owed > 0) add(cell, cell.tell())
    }
    if (entries.length === 0 && !isPing) return
    this.exchange(bucket, cells, entries)
  }

  /** The entry for those who wait in a cell: as many as want the same limit in the same window. */
  private askFor(cell: Cell, nowMs: number): Entry | null {
    const { leaseMs } = this.options
    // A server that was frozen for so long might ask an engine that keeps the window no more, and would give it anew.
    for (let [call] = cell.waiting; call && call.endMs + ASKED_MS < nowMs; [call] = cell.waiting) {
      cell.waiting.shift()
      cell.enter(call.endMs)
      call.decided(false, cell.used, cell)
    }
    const [first] = cell.waiting
    const ahead = cell.isKept ? cell.aheadOf(nowMs, leaseMs) : 0
    if (first === undefined) {
      if (cell.owed > 0 || cell.isOverstated) return cell.tell()
      return cell.unspent > 0 && ahead > cell.unspent
        ? cell.ask({ limit: cell.limit, cost: 0, least: 0, ahead, isTentative: false })
        : null
    }
    cell.enter(first.endMs)
    let cost = 0
    let least = Number.POSITIVE_INFINITY
    let isTentative = false
    let included = 0
    for (const call of cell.waiting) {
      if (call.limit !== first.limit || call.endMs > cell.endMs) break
      included++
      if (call.doesLook) continue
      cost = Math.min(cost + call.cost, COUNT_MAX)
      least = Math.min(least, call.cost)
      if (call.isPart) isTentative = true
    }
    cell.included = included
    return cell.ask({ limit: first.limit, cost, least: Math.min(least, cost), ahead, isTentative })
  }

  private exchange(bucket: Bucket, cells: Cell[], entries: Entry[]): void {
    const { engine, timers, leaseMs, timeoutMs, servers } = this.options
    bucket.isUnderWay = true
    const beganAt = timers.now()
    bucket.spokeAt = beganAt
    this.stats.exchanges++
    this.stats.entries += entries.length
    const exchange = {
      bucket: bucket.number,
      nowMs: Math.floor(this.nowMs),
      looseMs: 2 * Math.max(leaseMs, timeoutMs),
      share: 2 * Math.max(1, servers()),
      entries,
    }
    void engine
      .exchange(exchange)
      .catch((cause: Error): Result => ({ kind: 'failed', fault: 'broken', cause }))
      .then((result) => {
        this.stats.exchangeMs += timers.now() - beganAt
        bucket.isUnderWay = false
        if (result.kind === 'answered') this.answered(bucket, cells, entries, result)
        else {
          if (result.fault !== 'stale') this.failure = result
          this.failed(bucket, cells, entries, result.fault === 'stale')
        }
        if (!this.isStopped || bucket.hasWork) this.sendBucket(bucket, false)
      })
  }

  private answered(bucket: Bucket, cells: Cell[], entries: Entry[], answered: Answered): void {
    const { isLearning, learning, answers } = answered
    const { timers, timeoutMs } = this.options
    if (this.doesForget && (bucket.isAway || (isLearning && learning !== bucket.learning))) {
      if (isLearning) this.stats.learned++
      bucket.untold = [...bucket.all()]
    }
    this.failure = null
    bucket.misses = 0
    bucket.isAway = false
    bucket.hasAnswered = true
    bucket.isLearning = isLearning
    bucket.learning = learning
    // While it learns it hears all there is without a pause; then it is asked from time to time.
    bucket.notBefore = isLearning && bucket.untold.length === 0 ? timers.now() + timeoutMs / 4 : 0
    const { nowMs } = this
    for (let i = 0; i < cells.length; i++) {
      const cell = cells[i] as Cell // in range
      const answer = answers[i]
      if (answer === undefined) throw new Error('an answer is missing')
      this.stats.given += answer.gift
      this.stats.returned += entries[i]?.returned ?? 0
      if (cell.entry !== entries[i]) continue // the window was over
      cell.answered(answer, { isLearning, isByServer: this.doesForget, nowMs })
      if (!isLearning) decideWaiting(cell, nowMs)
      cell.included = 0
      cell.rest()
      if (cell.unspent > 0) bucket.leased.add(cell)
      if (cell.returned > 0) bucket.returning.add(cell)
      if (cell.waiting.length > 0 || cell.isOverstated) bucket.wanting.add(cell)
      else this.drop(bucket, cell, nowMs)
    }
  }

  private failed(bucket: Bucket, cells: Cell[], entries: Entry[], isStale: boolean): void {
    this.stats.failed++
    if (!isStale) bucket.misses++
    if (bucket.misses >= MISSES_MAX) bucket.isAway = true
    bucket.notBefore = bucket.isAway ? this.options.timers.now() + PROBE_MS : 0
    if (bucket.isLearning) bucket.untold.push(...cells) // it may not have heard of them
    for (const [i, cell] of cells.entries()) {
      if (cell.entry !== entries[i]) continue // the window was over
      cell.failed()
      const { included } = cell
      cell.included = 0
      if (!isStale) for (const call of cell.waiting.splice(0, included)) this.decideByRule(bucket, cell, call)
      if (cell.waiting.length > 0 || cell.owed > 0) bucket.wanting.add(cell)
      else this.drop(bucket, cell)
    }
    if (bucket.isAway) for (const cell of bucket.wanting) this.decideAllByRule(bucket, cell)
  }

  private decideAllByRule(bucket: Bucket, cell: Cell): void {
    for (const call of cell.waiting.splice(0)) {
      cell.enter(call.endMs)
      this.decideByRule(bucket, cell, call)
    }
    cell.included = 0
  }

  /** The engine cannot be asked. What is held is spent first. */
  private decideByRule(bucket: Bucket, cell: Cell, call: FleetCall): void {
    const { nowMs } = this
    if (decideAnsweredIfHeld(cell, call, nowMs)) return
    const { servers } = this.options
    const outage = call.outage ?? this.options.outage
    this.stats.outageDecisions++
    if (outage === 'refuse') {
      call.decided(false, 0, null)
      return
    }
    const allowed = outage === 'open' ? call.limit : Math.floor(call.limit / Math.max(1, servers()))
    const spent = cell.own + cell.reserved
    // What a cell without memory let through before is not known: it is limited too early rather than too late.
    const passed = !cell.isOwnPartial && spent + call.cost <= allowed
    if (passed && !call.doesLook) {
      if (call.isPart) cell.reserved += call.cost
      else cell.letThrough(call.cost)
      bucket.wanting.add(cell)
    }
    // So that what is left of the limit is what this server may still let through.
    const left = Math.max(0, allowed - cell.own - cell.reserved)
    call.decided(passed, Math.max(call.limit - left, cell.own), cell)
  }

  /** Forgets a cell that nobody needs. */
  private drop(bucket: Bucket, cell: Cell, nowMs = this.nowMs): void {
    const isOver = cell.endMs + OVER_MS < nowMs
    if (cell.entry !== null || cell.waiting.length > 0 || cell.reserved > 0) return
    if (cell.isKept && !isOver) return
    if (!isOver && cell.owed > 0) return // it is to be told
    if (!isOver) this.forgottenUntilMs = Math.max(this.forgottenUntilMs, cell.endMs)
    bucket.wanting.delete(cell)
    bucket.returning.delete(cell)
    bucket.leased.delete(cell)
    bucket.remove(cell)
    this.cells--
  }

  private tick(): void {
    const { timers, leaseMs, timeoutMs } = this.options
    const now = timers.now()
    const { nowMs } = this
    for (const bucket of this.buckets.values()) {
      for (const cell of bucket.leased) {
        if (cell.unspent === 0) bucket.leased.delete(cell)
        else if (cell.isIdle(nowMs, leaseMs)) bucket.returning.add(cell)
      }
      for (const cell of bucket.slice()) this.drop(bucket, cell, nowMs)
      for (const cell of bucket.wanting) this.decideDue(bucket, cell, now)
      const isQuiet = this.doesForget && now - bucket.spokeAt >= timeoutMs / 2
      this.sendBucket(bucket, bucket.isAway || bucket.isLearning || isQuiet)
    }
  }

  /** Calls that wait for a bucket which learns, and have waited long enough. */
  private decideDue(bucket: Bucket, cell: Cell, now: number): void {
    if (cell.entry !== null) return
    for (let [call] = cell.waiting; call !== undefined && call.dueMs <= now; [call] = cell.waiting) {
      cell.waiting.shift()
      cell.enter(call.endMs)
      this.decideByRule(bucket, cell, call)
    }
  }
}

export type FleetShardOptions = {
  engine: Engine
  timers: Timers
  /** Those that cells of this shard belong to. */
  buckets: readonly number[]
  /** Fleet time of the start. */
  nowMs: number
  /** How long what is given ahead may lie unspent; 0 = nothing is given ahead. */
  leaseMs: number
  /** How long a call waits; as the engine's. */
  timeoutMs: number
  /** For calls that have none of their own. */
  outage: OutageRule
  /** How many servers there are. */
  servers(): number
  /** Cells to remember now. Beyond, each call of a new cell asks. */
  readonly cellsMax: number
}

/** Since the start. */
export type FleetStats = {
  exchanges: number
  entries: number
  failed: number
  exchangeMs: number
  given: number
  returned: number
  /** How often a bucket began to learn. */
  learned: number
  outageDecisions: number
}

/** States: ok; learning (it forgot, and takes up what it is told); away (the outage rule decides). */
class Bucket {
  readonly cells = new Map<number, Cell>()
  /** Cells that want an entry: some call waits, a lease runs low, or something is owed. */
  readonly wanting = new Set<Cell>()
  /** Cells that give up what is unspent. */
  readonly returning = new Set<Cell>()
  /** Cells with something unspent, and some that had. */
  readonly leased = new Set<Cell>()
  /** Of cells, while it learns: what it has not been told yet. */
  untold: Cell[] = []
  isUnderWay = false
  isLearning = false
  /** As that of {@link Answered}, when it last answered. */
  learning = 0
  isAway = false
  hasAnswered = false
  /** In a row. */
  misses = 0
  /** No exchange begins before; 0 = at any time. */
  notBefore = 0
  private walk: Iterator<Cell> | null = null

  constructor(
    readonly number: number,
    public spokeAt: number,
  ) {}

  get hasWork(): boolean {
    return this.isUnderWay || this.wanting.size > 0 || this.returning.size > 0
  }

  *all(): Generator<Cell> {
    for (const first of this.cells.values()) {
      for (let cell: Cell | null = first; cell !== null; cell = cell.next) yield cell
    }
  }

  /** Some cells: in {@link WALK_TICKS} calls about all of them. */
  *slice(): Generator<Cell> {
    const count = Math.ceil(this.cells.size / WALK_TICKS)
    for (let i = 0; i < count; i++) {
      this.walk ??= this.all()
      const step = this.walk.next()
      if (step.done === true) {
        this.walk = null
        return
      }
      yield step.value
    }
  }

  remove(cell: Cell): void {
    const name = nameOf(cell.h0, cell.h1)
    let before = this.cells.get(name) ?? null
    if (before === cell) {
      if (cell.next === null) this.cells.delete(name)
      else this.cells.set(name, cell.next)
      return
    }
    while (before !== null && before.next !== cell) before = before.next
    if (before !== null) before.next = cell.next
  }
}

/** From what is held or known. @returns whether it is decided. */
function decideHere(cell: Cell, call: FleetCall, nowMs: number): boolean {
  if (call.isPart || (call.doesLook && call.cost > 0)) {
    return decideAnsweredIfHeld(cell, call, nowMs)
  }
  const verdict = cell.decide(call.limit, call.cost, nowMs)
  if (verdict === 'ask') return false
  call.decided(verdict === 'passed', cell.used, cell)
  return true
}

function decideAnsweredIfHeld(cell: Cell, call: FleetCall, nowMs: number): boolean {
  if (call.cost === 0 || call.cost > cell.unspent || call.limit !== cell.limit) return false
  decideAnswered(cell, call, nowMs)
  return true
}

/** After an answer: first the calls that it was for; then those that came meanwhile, as far as the lease reaches. */
function decideWaiting(cell: Cell, nowMs: number): void {
  for (const call of cell.waiting.splice(0, cell.included)) decideAnswered(cell, call, nowMs)
  let more = 0
  for (const call of cell.waiting) {
    if (call.endMs > cell.endMs) break
    if (!decideAnsweredIfHeld(cell, call, nowMs)) break
    more++
  }
  cell.waiting.splice(0, more)
}

/** The engine has answered: what is held decides. */
function decideAnswered(cell: Cell, call: FleetCall, nowMs: number): void {
  const { cost } = call
  const passed = call.doesLook
    ? cell.used + cell.reserved + cost <= call.limit || (cost > 0 && cost <= cell.unspent)
    : call.isPart
      ? cell.reserve(cost)
      : cell.passes(cost, nowMs)
  call.decided(passed, cell.used + (call.isPart && passed ? cell.reserved : 0), cell)
}

/** In a row, before a bucket counts as away. */
const MISSES_MAX = 3
/** How often a bucket that is away is asked. */
const PROBE_MS = 100
/** In how many ticks all cells are looked at. */
const WALK_TICKS = 50
/** Servers' clocks differ by less. */
const OVER_MS = 1_000
/** How long after its end a window is asked for. Engines keep it for twice as long. */
const ASKED_MS = 30_000
