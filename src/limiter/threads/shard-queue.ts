import { Unavailable } from '../../errors.ts'
import { type Link, type LinkEnd, toLink } from '../../lib/link.ts'
import type { Known } from '../table/known-counters.ts'
import type { Decision } from './charge.ts'
import {
  type Answers,
  type Calls,
  KIND,
  NUMBERS_PER_ANSWER,
  NUMBERS_PER_CALL,
  type OwnerNamed,
} from './protocol.ts'

/** A charge that was sent. */
export class PendingDecision {
  constructor(
    private readonly batch: Batch,
    private readonly index: number,
  ) {}

  /**
   * Resolves when its batch is answered: then ask for the {@link decision}. Rejects when the shard is dead or late: then the
   * call may have been charged.
   */
  get answered(): Promise<void> {
    return this.batch.answeredAt(this.index)
  }
  /** Null = not made yet. After `answered` that is a call that waits for the engine of shared limits: wait for it again. */
  get decision(): Decision | null {
    return this.batch.isAnsweredAt(this.index) ? this.batch.decision(this.index) : null
  }
  /** The decision once it is made: with a promise for each call, so not where every request passes. */
  async decided(): Promise<Decision> {
    let decision = this.decision
    while (decision === null) {
      await this.answered
      decision = this.decision
    }
    return decision
  }
}

/**
 * The calls of one message. All callers wait for the batch's one promise; then each reads its own place. A promise for each
 * call would be as fast for single calls (0.86 against 0.91 µs), but not for a thousand in one request.
 */
export class Batch {
  /** Number of calls. */
  calls = 0
  readonly message: Calls
  sentAtTick = 0
  /** The queue's connection over which it was sent. */
  connection = 0
  /** Called when its answers come after it was given up. */
  onLate: (() => void)[] = []
  /** Some of its calls are a part of a call that charges several counters together. */
  hasParts = false
  /** Of {@link LimiterRouter.chargeLater}, which nobody waits for. */
  protected asyncCharges: AsyncCharge[] | null = null
  protected readonly waiting = Promise.withResolvers<void>()
  protected answers: Answers | null = null

  constructor(readonly id: number) {
    this.message = [id]
  }

  get answered(): Promise<void> {
    return this.waiting.promise
  }

  /** As {@link PendingDecision.answered}, of the call at that place. */
  answeredAt(_index: number): Promise<void> {
    return this.waiting.promise
  }

  isAnsweredAt(_index: number): boolean {
    return this.answers !== null
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

  /** After {@link reject}. */
  resolveLate(answers: Answers): void {
    this.answers = answers
    for (const run of this.onLate) run()
  }

  /** As {@link decision}, without making one. */
  hasPassed(index: number): boolean {
    const answers = this.answers as Answers // it has resolved
    return (answers[1 + NUMBERS_PER_ANSWER * index] as number) >= 0 // an answer for each call
  }

  /** The shard keeps the charge of that call aside until it hears the outcome: its counter has no cell. */
  isHeld(index: number): boolean {
    const answers = this.answers as Answers // it has resolved
    return (answers[2 + NUMBERS_PER_ANSWER * index] as number) < 0 // an answer for each call
  }

  /** The decision on one of the calls, once `answered` has resolved. */
  decision(index: number): Decision {
    const answers = this.answers as Answers // it has resolved
    const used = answers[1 + NUMBERS_PER_ANSWER * index] as number // an answer for each call
    const resetAtMs = Math.abs(answers[2 + NUMBERS_PER_ANSWER * index] as number) // an answer for each call
    const atMs = this.message[NUMBERS_PER_CALL * (1 + index) - 1] as number // the last but one of that call
    return used >= 0
      ? { passed: true, used, resetAtMs, atMs }
      : { passed: false, used: -1 - used, resetAtMs, atMs }
  }
}

/** The calls to one shard: queued in this turn, then in flight. */
export class ShardQueue {
  callsInFlight = 0
  /** Null while the shard is dead. */
  private link: Link<Calls | OwnerNamed, Answers> | null = null
  /** With this many queued calls, a message is sent before the end of the turn. */
  private callsMax = Number.POSITIVE_INFINITY
  private queued: Batch
  /** Oldest first. */
  protected inFlight: Batch[] = []
  /** Given up as late, and of interest when they are answered after all. Oldest first, no more than {@link LATE_MAX}. */
  private late: Batch[] = []
  /** Grows with each new link. What is undone must be undone over the link over which it was charged. */
  private connection = 0
  private onDrained: (() => void)[] = []

  constructor(end: LinkEnd) {
    this.queued = this.makeBatch(1)
    this.reconnect(end)
  }

  protected makeBatch(id: number): Batch {
    return new Batch(id)
  }

  reconnect(end: LinkEnd): void {
    const old = this.link
    const link = toLink<Calls | OwnerNamed, Answers>(end)
    this.link = link
    this.forgetCharges()
    if (link.isDirect) this.callsMax = SAME_THREAD_CALLS_MAX
    if (old !== null) {
      old.close()
      this.giveUpAll('the limiter shard has been started again')
    }
    link.onMessage = (answers) => this.receive(answers)
    link.onClosed = () => {
      if (this.link !== link) return
      this.link = null
      this.forgetCharges()
      this.giveUpAll('the limiter shard is dead')
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
    if (this.link === null || this.callsInFlight + this.queued.calls >= WAITING_MAX) this.requireRoom(1)
    this.queued.message.push(h0, h1, h2, h3, limit, durationMs, cost, nowMs, owner)
    this.queued.calls++
    return this.queued
  }

  /** @throws Unavailable when it is dead, or when so many calls more are too many. */
  requireRoom(calls: number): void {
    if (this.link === null) throw new Unavailable('limiter', 'the limiter shard is dead')
    if (this.callsInFlight + this.queued.calls + calls > WAITING_MAX)
      throw new Unavailable('limiter', 'the limiter shard is overloaded')
  }

  /** As {@link add}, whatever waits. */
  append(
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
    this.queued.message.push(h0, h1, h2, h3, limit, durationMs, cost, nowMs, owner)
    this.queued.calls++
    return this.queued
  }

  /** Whether the shard that decided the batch is still there. */
  stillServes(batch: Batch): boolean {
    return this.link !== null && batch.connection === this.connection
  }

  /** Tells the shard the number of a workspace. A dead shard is told when it runs again. */
  name(owner: OwnerNamed): void {
    this.link?.post(owner)
  }

  send(tick: number): void {
    const batch = this.queued
    if (batch.calls === 0) return
    this.queued = this.makeBatch(batch.id + 1)
    batch.sentAtTick = tick
    batch.connection = this.connection
    this.inFlight.push(batch)
    this.callsInFlight += batch.calls
    if (this.link === null) this.giveUpAll('the limiter shard is dead')
    else this.link.post(batch.message)
  }

  sendFull(tick: number): void {
    if (this.queued.calls >= this.callsMax) this.send(tick)
  }

  /** Fails the batches sent before that tick. */
  giveUpSentBefore(tick: number): void {
    let late = 0
    while (late < this.inFlight.length && (this.inFlight[late] as Batch).sentAtTick < tick) late++ // in range
    if (late === 0) return
    for (const batch of this.inFlight.slice(0, late))
      if (batch.hasParts && this.late.length < LATE_MAX) this.late.push(batch)
    this.giveUp(late, 'the limiter shard is late')
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

  protected receive(answers: Answers): void {
    const batch = this.inFlight[0]
    if (batch === undefined || batch.id !== answers[0]) {
      this.receiveLate(answers)
      return
    }
    this.inFlight.shift()
    batch.resolve(answers)
    this.settled(batch.calls)
  }

  /** Answers to a batch that was given up. */
  protected receiveLate(answers: Answers): void {
    const at = this.late.findIndex(({ id }) => id === answers[0])
    if (at < 0) return
    const [batch] = this.late.splice(0, at + 1).slice(-1) // answers come in order: those before have none
    batch?.resolveLate(answers)
  }

  /** A shard that starts again does not know what was charged before. */
  private forgetCharges(): void {
    this.connection++
    this.late = []
    const { message } = this.queued
    for (let at = 5; at < message.length; at += NUMBERS_PER_CALL) {
      const kind = message[at]
      if (kind === KIND.undo || kind === KIND.keep || kind === KIND.release) message[at] = KIND.nothing
    }
  }

  protected giveUpAll(reason: string): void {
    this.giveUp(this.inFlight.length, reason)
  }

  protected giveUp(batches: number, reason: string): void {
    for (const batch of this.inFlight.splice(0, batches)) {
      batch.reject(new Unavailable('limiter', reason))
      this.settled(batch.calls)
    }
  }

  protected settled(calls: number): void {
    this.callsInFlight -= calls
    if (this.callsInFlight > 0 || this.onDrained.length === 0) return
    for (const resolve of this.onDrained.splice(0)) resolve()
  }
}

/** A cost that {@link LimiterRouter.chargeLater} let through, until the shard has answered. */
export class AsyncCharge {
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

/** Why 32: docs/decisions/0006. */
const SAME_THREAD_CALLS_MAX = 32
/** Calls of one thread that wait for one shard. With more, all would be late. */
const WAITING_MAX = 100_000
/** Of one shard. With more, what late parts charged stays charged. */
const LATE_MAX = 1_000
