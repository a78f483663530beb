import { Unavailable } from '../../errors.ts'
import { COUNT_MAX } from '../../lib/bounds.ts'
import { type Clock, neverBackwards } from '../../lib/clock.ts'
import { KeyedHash } from '../../lib/keyed-hash.ts'
import { type Link, type LinkEnd, toLink } from '../../lib/link.ts'
import { type Cancel, systemTimers, type Timers } from '../../lib/timers.ts'
import { type Known, KnownCounters } from '../table/known-counters.ts'
import { ownerNumber, UNKNOWN_OWNER } from '../table/owners.ts'
import {
  type Answers,
  type Calls,
  NUMBERS_PER_ANSWER,
  NUMBERS_PER_CALL,
  type OwnerNamed,
  type RouterEnds,
  type ToRouter,
} from './protocol.ts'
import { shardOf } from './shard-ranges.ts'

/** What one call asks of a counter's window. */
export type Charge = {
  /** The beginning of the name, where many counters share it: it is hashed once. */
  prefix?: string
  /** The counter's name, or the rest of it: unambiguous, duration included. Calls with another limit share the count. */
  counter: string
  /** Owns the window: a workspace with more than its share of memory gives way to others. Absent = no owner. */
  workspaceId?: string
  /** 0 to 2^53 - 1. */
  limit: number
  /** 1 to 2^45. Windows start at whole multiples since the epoch. */
  durationMs: number
  /** 0 to 2^53 - 1; 0 only looks. */
  cost: number
}

export type Decision = {
  passed: boolean
  /** Count of the window after the decision, without a refused cost. Exceeds the limit where that was lowered. */
  used: number
  /** When the window ends, Unix ms. */
  resetAtMs: number
  /** When the call was made; decides which window counts. Unix ms, never before that of an earlier call. */
  atMs: number
}

/**
 * Sends an HTTP thread's charges to the shards; `protocol.ts` has the path of a call. One instance a thread.
 *
 * Late answers: the thread has one coarse interval and counts its ticks. A batch fails after three ticks, which is one to one
 * and a half `replyTimeoutMs`. Ticks, not a clock: a thread that was blocked must not mistake its own pause for a late answer.
 */
export class LimiterRouter {
  private readonly queues: ShardQueue[]
  private readonly control: Link<never, ToRouter>
  private readonly hash: KeyedHash
  private readonly clock: Clock
  private readonly tickMs: number
  private readonly timers: Timers
  private readonly sendQueued = () => this.send()
  /** Workspaces and their numbers. Every shard has been told of them. */
  private readonly owners = new Map<string, number>()
  /** The workspace of the last call: mostly the next call is from the same one. */
  private lastWorkspaceId = ''
  private lastOwner = UNKNOWN_OWNER
  private ticks = 0
  private stopTicking: Cancel | null = null
  private isSendDue = false
  private isStopped = false
  /** What this thread knows of the counters used with {@link chargeLater}. */
  private readonly known = new KnownCounters(KNOWN_BYTES_MAX)

  /**
   * @param options.ends From `Shards.connect`.
   * @param options.replyTimeoutMs How long a call waits for its shard.
   */
  constructor(options: {
    ends: RouterEnds
    hashSecret: string
    clock: Clock
    replyTimeoutMs: number
    timers?: Timers
  }) {
    this.hash = new KeyedHash(options.hashSecret)
    this.clock = neverBackwards(options.clock)
    this.timers = options.timers ?? systemTimers
    this.tickMs = Math.max(1, Math.ceil(options.replyTimeoutMs / 2))
    this.queues = options.ends.shards.map((end) => new ShardQueue(end))
    this.control = toLink(options.ends.control)
    this.control.onMessage = ({ shard, end }) => {
      const queue = this.queues[shard]
      queue?.reconnect(end)
      for (const [workspaceId, owner] of this.owners) queue?.name({ owner, workspaceId })
    }
  }

  /**
   * Sends a charge to the counter's shard. Returns no promise: one promise for each call cost 4 to 8 % of the CPU that
   * `ratelimits.limit` uses behind its socket.
   * @throws Error when the shard is dead, or too many calls wait for it.
   */
  submit(charge: Charge): PendingDecision {
    const pending = this.queue(charge, this.clock())
    this.sendFull()
    return pending
  }

  /**
   * Many charges at one moment, each decided by itself in the order given. From {@link MANY_CALLS} on they are sent at once,
   * not at the end of the turn: 32 requests with a thousand each, all in memory together, used 20 to 25 % more CPU than one
   * after the other.
   * @throws as {@link submit} and {@link PendingDecision.answered}, for all of them.
   */
  async submitAll(charges: readonly Charge[]): Promise<Decision[]> {
    const nowMs = this.clock()
    const pending = charges.map((charge) => this.queue(charge, nowMs))
    if (charges.length >= MANY_CALLS) this.send()
    else this.sendFull()
    for (const answered of new Set(pending.map((each) => each.answered))) await answered
    return pending.map((each) => each.decision)
  }

  /**
   * Decides at once, from what this thread knows: the last answer of the counter's shard, and what this thread let through
   * since. What passes is charged afterwards. Until the shard has answered, too much may pass.
   * @throws Error when the shard is known to be dead.
   */
  chargeLater(charge: Charge): Decision {
    const nowMs = this.clock()
    const endMs = (Math.floor(nowMs / charge.durationMs) + 1) * charge.durationMs
    const { prefix = '', counter, workspaceId = '' } = charge
    const name = prefix + counter
    let known = this.known.get(workspaceId, name)
    if (known === undefined || known.endMs < endMs) {
      known = { endMs, used: 0, unanswered: 0 }
      this.known.set(workspaceId, name, known)
    }
    const used = known.used + known.unanswered
    if (used + charge.cost > charge.limit) return { passed: false, used, resetAtMs: known.endMs, atMs: nowMs }
    const batch = this.enqueue(charge, nowMs)
    batch.add(new AsyncCharge(batch.calls - 1, known, charge.cost))
    known.unanswered += charge.cost
    return { passed: true, used: used + charge.cost, resetAtMs: known.endMs, atMs: nowMs }
  }

  /** How many shards there are, and how many of them are not dead. */
  get shards(): { all: number; running: number } {
    return { all: this.queues.length, running: this.queues.filter((queue) => queue.isConnected).length }
  }

  /** Waits for the calls in flight, each answered or given up in its time, and closes the links. */
  async stop(): Promise<void> {
    this.isStopped = true
    this.send()
    await Promise.all(this.queues.map((queue) => queue.drained()))
    this.stopTicking?.()
    for (const queue of this.queues) queue.close()
    this.control.close()
  }

  private queue(charge: Charge, nowMs: number): PendingDecision {
    const batch = this.enqueue(charge, nowMs)
    return new PendingDecision(batch, batch.calls - 1)
  }

  /** @returns the batch it joins, as its last call. */
  private enqueue(charge: Charge, nowMs: number): Batch {
    const { limit, durationMs, cost } = charge
    if (
      !(limit >= 0 && limit <= COUNT_MAX && cost >= 0 && cost <= COUNT_MAX) ||
      !(durationMs >= 1 && durationMs <= WINDOW_MS_MAX)
    ) {
      throw new Error(`a charge out of bounds: limit ${limit}, cost ${cost}, duration ${durationMs} ms`)
    }
    if (this.isStopped) throw new Error('the limiter is stopped')
    const owner = charge.workspaceId === undefined ? UNKNOWN_OWNER : this.ownerOf(charge.workspaceId)
    const hash = this.hash
    if (charge.prefix === undefined) hash.update(charge.counter)
    else hash.updateAfter(charge.prefix, charge.counter)
    const queue = this.queues[shardOf(hash.h0, this.queues.length)] as ShardQueue // a shard's index is below their number
    const batch = queue.add(hash.h0, hash.h1, hash.h2, hash.h3, limit, durationMs, cost, nowMs, owner)
    if (!this.isSendDue) {
      this.isSendDue = true
      this.timers.soon(this.sendQueued)
    }
    return batch
  }

  private ownerOf(workspaceId: string): number {
    if (workspaceId === this.lastWorkspaceId) return this.lastOwner
    let owner = this.owners.get(workspaceId)
    if (owner === undefined) {
      this.hash.update(workspaceId)
      owner = ownerNumber(this.hash.h0)
      if (this.owners.size >= OWNERS_KNOWN_MAX) this.owners.clear()
      this.owners.set(workspaceId, owner)
      for (const queue of this.queues) queue.name({ owner, workspaceId })
    }
    this.lastWorkspaceId = workspaceId
    this.lastOwner = owner
    return owner
  }

  private send(): void {
    this.isSendDue = false
    for (const queue of this.queues) queue.send(this.ticks)
    this.stopTicking ??= this.timers.every(this.tickMs, () => this.tick())
  }

  private sendFull(): void {
    for (const queue of this.queues) queue.sendFull(this.ticks)
  }

  private tick(): void {
    this.ticks++
    let inFlight = 0
    for (const queue of this.queues) {
      queue.giveUpSentBefore(this.ticks - 2)
      inFlight += queue.callsInFlight
    }
    if (inFlight > 0) return
    this.stopTicking?.()
    this.stopTicking = null
  }
}

/** A charge that was sent. */
export class PendingDecision {
  constructor(
    private readonly batch: Batch,
    private readonly index: number,
  ) {}

  /** Rejects when the shard is dead or late: then the call may have been charged. */
  get answered(): Promise<void> {
    return this.batch.answered
  }
  /** Only once `answered` has resolved. */
  get decision(): Decision {
    return this.batch.decision(this.index)
  }
}

/**
 * The calls of one message. All callers wait for the batch's one promise; then each reads its own place. A promise for each
 * call would be as fast for single calls (0.86 against 0.91 µs), but not for a thousand in one request.
 */
class Batch {
  /** Number of calls. */
  calls = 0
  readonly message: Calls
  sentAtTick = 0
  /** Of {@link LimiterRouter.chargeLater}, which nobody waits for. */
  private asyncCharges: AsyncCharge[] | null = null
  private readonly waiting = Promise.withResolvers<void>()
  private answers: Answers | null = null

  constructor(readonly id: number) {
    this.message = [id]
  }

  get answered(): Promise<void> {
    return this.waiting.promise
  }

  add(charge: AsyncCharge): void {
    this.asyncCharges ??= []
    this.asyncCharges.push(charge)
  }

  resolve(answers: Answers): void {
    this.answers = answers
    if (this.asyncCharges !== null)
      for (const charge of this.asyncCharges) charge.resolve(this.decision(charge.index))
    this.waiting.resolve()
  }

  reject(error: Error): void {
    if (this.asyncCharges !== null) for (const charge of this.asyncCharges) charge.reject()
    this.waiting.promise.catch(() => {}) // there may be no caller that waits
    this.waiting.reject(error)
  }

  /** The decision on one of the calls, once `answered` has resolved. */
  decision(index: number): Decision {
    const answers = this.answers as Answers // it has resolved
    const used = answers[1 + NUMBERS_PER_ANSWER * index] as number // an answer for each call
    const resetAtMs = answers[2 + NUMBERS_PER_ANSWER * index] as number // an answer for each call
    const atMs = this.message[NUMBERS_PER_CALL * (1 + index) - 1] as number // the last but one of that call
    return used >= 0
      ? { passed: true, used, resetAtMs, atMs }
      : { passed: false, used: -1 - used, resetAtMs, atMs }
  }
}

/** The calls to one shard: queued in this turn, then in flight. */
class ShardQueue {
  callsInFlight = 0
  /** Null while the shard is dead. */
  private link: Link<Calls | OwnerNamed, Answers> | null = null
  /** With this many queued calls, a message is sent before the end of the turn. */
  private callsMax = Number.POSITIVE_INFINITY
  private queued = new Batch(1)
  /** Oldest first. */
  private inFlight: Batch[] = []
  private onDrained: (() => void)[] = []

  constructor(end: LinkEnd) {
    this.reconnect(end)
  }

  reconnect(end: LinkEnd): void {
    const old = this.link
    const link = toLink<Calls | OwnerNamed, Answers>(end)
    this.link = link
    if (link.isDirect) this.callsMax = SAME_THREAD_CALLS_MAX
    if (old !== null) {
      old.close()
      this.giveUp(this.inFlight.length, 'the limiter shard has been started again')
    }
    link.onMessage = (answers) => this.receive(answers)
    link.onClosed = () => {
      if (this.link !== link) return
      this.link = null
      this.giveUp(this.inFlight.length, 'the limiter shard is dead')
    }
  }

  get isConnected(): boolean {
    return this.link !== null
  }

  /** Queues a call. @returns its batch, of which it is the last call for now. */
  add(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    limit: number,
    durationMs: number,
    cost: number,
    nowMs: number,
    owner: number,
  ): Batch {
    if (this.link === null) throw new Unavailable('limiter', 'the limiter shard is dead')
    if (this.callsInFlight + this.queued.calls >= WAITING_MAX)
      throw new Unavailable('limiter', 'the limiter shard is overloaded')
    this.queued.message.push(h0, h1, h2, h3, limit, durationMs, cost, nowMs, owner)
    this.queued.calls++
    return this.queued
  }

  /** Tells the shard the number of a workspace. A dead shard is told when it runs again. */
  name(owner: OwnerNamed): void {
    this.link?.post(owner)
  }

  send(tick: number): void {
    const batch = this.queued
    if (batch.calls === 0) return
    this.queued = new Batch(batch.id + 1)
    batch.sentAtTick = tick
    this.inFlight.push(batch)
    this.callsInFlight += batch.calls
    if (this.link === null) this.giveUp(this.inFlight.length, 'the limiter shard is dead')
    else this.link.post(batch.message)
  }

  sendFull(tick: number): void {
    if (this.queued.calls >= this.callsMax) this.send(tick)
  }

  /** Fails the batches sent before that tick. */
  giveUpSentBefore(tick: number): void {
    let late = 0
    while (late < this.inFlight.length && (this.inFlight[late] as Batch).sentAtTick < tick) late++ // in range
    if (late > 0) this.giveUp(late, 'the limiter shard is late')
  }

  /** Resolves when nothing is queued or in flight. */
  drained(): Promise<void> {
    if (this.callsInFlight === 0) return Promise.resolve()
    return new Promise((resolve) => this.onDrained.push(resolve))
  }

  close(): void {
    this.link?.close()
    this.link = null
  }

  private receive(answers: Answers): void {
    const batch = this.inFlight[0]
    if (batch === undefined || batch.id !== answers[0]) return // it was given up
    this.inFlight.shift()
    batch.resolve(answers)
    this.settled(batch.calls)
  }

  private giveUp(batches: number, reason: string): void {
    for (const batch of this.inFlight.splice(0, batches)) {
      batch.reject(new Unavailable('limiter', reason))
      this.settled(batch.calls)
    }
  }

  private settled(calls: number): void {
    this.callsInFlight -= calls
    if (this.callsInFlight > 0 || this.onDrained.length === 0) return
    for (const resolve of this.onDrained.splice(0)) resolve()
  }
}

/** A cost that {@link LimiterRouter.chargeLater} let through, until the shard has answered. */
class AsyncCharge {
  private readonly endMs: number
  constructor(
    /** Its place in the batch. */
    readonly index: number,
    private readonly known: Known,
    private readonly cost: number,
  ) {
    this.endMs = known.endMs
  }

  resolve(decision: Decision): void {
    const { known } = this
    known.unanswered -= this.cost
    if (decision.resetAtMs < known.endMs) return
    known.endMs = decision.resetAtMs
    known.used = decision.used
  }

  /** It may not have been charged. This thread still counts it, as it was let through. */
  reject(): void {
    this.known.unanswered -= this.cost
    if (this.known.endMs === this.endMs) this.known.used += this.cost
  }
}

const WINDOW_MS_MAX = 2 ** 45
/** Larger messages hardly make a call cheaper. */
const MANY_CALLS = 64
/** Why 32: docs/decisions/0006. */
const SAME_THREAD_CALLS_MAX = 32
/** Calls of one thread that wait for one shard. With more, all would be late. */
const WAITING_MAX = 100_000
/** Each takes some 150 bytes. */
const OWNERS_KNOWN_MAX = 10_000
/** Enough for some 50 000 counters of {@link LimiterRouter.chargeLater}. */
const KNOWN_BYTES_MAX = 16 * 2 ** 20
