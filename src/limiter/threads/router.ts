import { COUNT_MAX } from '../../lib/bounds.ts'
import { type Clock, neverBackwards } from '../../lib/clock.ts'
import { KeyedHash } from '../../lib/keyed-hash.ts'
import { type Link, toLink } from '../../lib/link.ts'
import { type Cancel, systemTimers, type Timers } from '../../lib/timers.ts'
import { FleetQueue } from '../fleet/fleet-queue.ts'
import { KnownCounters } from '../table/known-counters.ts'
import { ownerNumber, UNKNOWN_OWNER } from '../table/owners.ts'
import type { Charge, Decision } from './charge.ts'
import { type RouterEnds, type ToRouter, withOutageRule } from './protocol.ts'
import { AsyncCharge, type Batch, PendingDecision, ShardQueue } from './shard-queue.ts'
import { shardOf } from './shard-ranges.ts'
import { type PlacedCharge, Together } from './together.ts'

export type { Charge, Decision } from './charge.ts'
export type { PendingDecision } from './shard-queue.ts'

/**
 * Sends an HTTP thread's charges to the shards; `protocol.ts` has the path of a call. One instance a thread.
 *
 * Late answers: the thread has one coarse interval and counts its ticks. A batch fails after three ticks, which is one to one
 * and a half `replyTimeoutMs`. Ticks, not a clock: a thread that was blocked must not mistake its own pause for a late answer.
 */
export class LimiterRouter {
  private readonly queues: ShardQueue[]
  /** For counters that each server has for itself: others than `queues` only where servers share limits. */
  private readonly localQueues: ShardQueue[]
  private readonly allQueues: ShardQueue[]
  private readonly isFleet: boolean
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
  private readonly together = new Together({
    place: (charge) => this.place(charge),
    queued: () => this.sendSoon(),
  })

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
    /** Servers share limits, so calls of one batch may be answered one after the other. Then the ends have `local` ones. */
    isFleet?: boolean
  }) {
    this.hash = new KeyedHash(options.hashSecret)
    this.clock = neverBackwards(options.clock)
    this.timers = options.timers ?? systemTimers
    this.tickMs = Math.max(1, Math.ceil(options.replyTimeoutMs / 2))
    this.isFleet = options.isFleet === true
    const Queue = this.isFleet ? FleetQueue : ShardQueue
    this.queues = options.ends.shards.map((end) => new Queue(end))
    this.localQueues = options.ends.local?.map((end) => new ShardQueue(end)) ?? this.queues
    this.allQueues = [...new Set([...this.queues, ...this.localQueues])]
    this.control = toLink(options.ends.control)
    this.control.onMessage = ({ shard, end, local }) => {
      const queue = this.queues[shard]
      queue?.reconnect(end)
      if (local !== undefined) this.localQueues[shard]?.reconnect(local)
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
    const decisions: Decision[] = []
    for (const each of pending) decisions.push(each.decision ?? (await each.decided()))
    return decisions
  }

  /**
   * Many charges at one moment, all of them or none: `together.ts`. Each decision tells whether that charge passes by itself,
   * after those before it on the same counter, and what the counter has used afterwards. A charge alone is as {@link submit}.
   * @throws Error when a shard is dead, late or overloaded: then what other shards charged is taken back.
   */
  async chargeTogether(charges: readonly Charge[]): Promise<Decision[]> {
    const [first] = charges
    if (first === undefined) return []
    if (charges.length === 1) {
      const pending = this.submit(first)
      let decision: Decision | null = null
      while (decision === null) {
        await pending.answered
        decision = pending.decision
      }
      return [decision]
    }
    const decisions = this.together.charge(charges, this.clock())
    if (charges.length >= MANY_CALLS) this.send()
    else this.sendFull()
    return await decisions
  }

  /**
   * Decides at once, from what this thread knows: the last answer of the counter's shard, and what this thread let through
   * since. What passes is charged afterwards. Until the shard has answered, too much may pass.
   * @throws Error when the shard is known to be dead.
   */
  chargeLater(charge: Charge): Decision {
    const nowMs = this.clock()
    const durationMs = Math.min(charge.durationMs, WINDOW_MS_MAX)
    const endMs = (Math.floor(nowMs / durationMs) + 1) * durationMs
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
    await Promise.all(this.allQueues.map((queue) => queue.drained()))
    await this.together.settled()
    this.send() // their outcomes
    await Promise.all(this.allQueues.map((queue) => queue.drained()))
    this.stopTicking?.()
    for (const queue of this.allQueues) queue.close()
    this.control.close()
  }

  private queue(charge: Charge, nowMs: number): PendingDecision {
    const batch = this.enqueue(charge, nowMs)
    return new PendingDecision(batch, batch.calls - 1)
  }

  /** @returns the batch it joins, as its last call. */
  private enqueue(charge: Charge, nowMs: number): Batch {
    const owner = this.admit(charge)
    const hash = this.hash
    const durationMs = Math.min(charge.durationMs, WINDOW_MS_MAX)
    const queue = this.queueOf(hash.h0, charge)
    const { limit, cost } = charge
    const batch = queue.add(hash.h0, hash.h1, hash.h2, hash.h3, limit, durationMs, cost, nowMs, owner)
    if (!this.isSendDue) this.sendSoon()
    return batch
  }

  private place(charge: Charge): PlacedCharge {
    const owner = this.admit(charge)
    const { h0, h1, h2, h3 } = this.hash
    const { limit, cost } = charge
    const durationMs = Math.min(charge.durationMs, WINDOW_MS_MAX)
    return { queue: this.queueOf(h0, charge), h0, h1, h2, h3, limit, durationMs, cost, owner }
  }

  /** Leaves the counter's name in `hash`. @returns the charge's owner. */
  private admit(charge: Charge): number {
    const { limit, durationMs, cost } = charge
    if (
      !(limit >= 0 && limit <= COUNT_MAX && cost >= 0 && cost <= COUNT_MAX) ||
      !(durationMs >= 1 && durationMs <= COUNT_MAX)
    ) {
      throw new Error(`a charge out of bounds: limit ${limit}, cost ${cost}, duration ${durationMs} ms`)
    }
    if (this.isStopped) throw new Error('the limiter is stopped')
    const owner = charge.workspaceId === undefined ? UNKNOWN_OWNER : this.ownerOf(charge.workspaceId)
    if (charge.prefix === undefined) this.hash.update(charge.counter)
    else this.hash.updateAfter(charge.prefix, charge.counter)
    return this.isFleet ? ownerInFleet(owner, charge) : owner
  }

  private queueOf(h0: number, charge: Charge): ShardQueue {
    const queues = this.isFleet && charge.sharing === 'local' ? this.localQueues : this.queues
    return queues[shardOf(h0, queues.length)] as ShardQueue // a shard's index is below their number
  }

  private sendSoon(): void {
    if (this.isSendDue) return
    this.isSendDue = true
    this.timers.soon(this.sendQueued)
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
    for (const queue of this.allQueues) queue.send(this.ticks)
    this.stopTicking ??= this.timers.every(this.tickMs, () => this.tick())
  }

  private sendFull(): void {
    for (const queue of this.allQueues) queue.sendFull(this.ticks)
  }

  private tick(): void {
    this.ticks++
    let inFlight = 0
    for (const queue of this.allQueues) {
      queue.giveUpSentBefore(this.ticks - 2)
      inFlight += queue.callsInFlight
    }
    if (inFlight > 0) return
    this.stopTicking?.()
    this.stopTicking = null
  }
}

const ownerInFleet = (owner: number, { sharing }: Charge) =>
  sharing === 'local' ? owner : withOutageRule(owner, sharing ?? null)

/** Longer windows end when this one does, in a thousand years: the end must fit into a cell. */
const WINDOW_MS_MAX = 2 ** 45
/** Larger messages hardly make a call cheaper. */
const MANY_CALLS = 64
/** Each takes some 150 bytes. */
const OWNERS_KNOWN_MAX = 10_000
/** Enough for some 50 000 counters of {@link LimiterRouter.chargeLater}. */
const KNOWN_BYTES_MAX = 16 * 2 ** 20
