import { Unavailable } from '../../errors.ts'
import { type Answers, NUMBERS_PER_ANSWER, WAITS } from '../threads/protocol.ts'
import { type AsyncCharge, Batch, ShardQueue } from '../threads/shard-queue.ts'

/**
 * A batch whose calls may be answered one by one: some wait for the engine. All callers wait for the first answers together;
 * only those whose calls wait then get a promise of their own.
 */
export class FleetBatch extends Batch {
  /** Calls that have no answer yet; null = none has. */
  private left: number | null = null
  private failure: Error | null = null
  /** Made with the first answer: then the batch is sent, and none comes on top. */
  private asyncByIndex: Map<number, AsyncCharge> | null = null
  private readonly callers = new Map<number, PromiseWithResolvers<void>>()

  get isComplete(): boolean {
    return this.left === 0
  }

  override answeredAt(index: number): Promise<void> {
    if (this.isAnsweredAt(index)) return Promise.resolve()
    if (this.failure !== null) return Promise.reject(this.failure)
    if (this.answers === null) return this.waiting.promise
    if (this.isUndecided(index)) return Promise.reject(undecided())
    let caller = this.callers.get(index)
    if (caller === undefined) {
      caller = Promise.withResolvers<void>()
      this.callers.set(index, caller)
    }
    return caller.promise
  }

  override isAnsweredAt(index: number): boolean {
    return this.answers !== null && !Number.isNaN(this.answers[1 + NUMBERS_PER_ANSWER * index])
  }

  override resolve(answers: Answers): void {
    this.answers = answers
    this.left = 0
    for (let index = 0; index < this.calls; index++)
      if (this.waits(index)) this.left++
      else this.settle(index)
    this.waiting.resolve()
  }

  /** Those that waited: three numbers each. */
  resolveMore(more: Answers): void {
    const answers = this.answers as Answers // those of the other calls came before
    for (let at = 1; at < more.length; at += 1 + NUMBERS_PER_ANSWER) {
      const [index = 0, used = 0, endMs = 0] = more.slice(at, at + 1 + NUMBERS_PER_ANSWER)
      if (!this.waits(index)) continue
      answers[1 + NUMBERS_PER_ANSWER * index] = used
      answers[2 + NUMBERS_PER_ANSWER * index] = endMs
      this.left = (this.left ?? 0) - 1
      this.settle(index)
    }
  }

  override reject(error: Error): void {
    if (this.failure !== null) return
    this.failure = error
    for (let index = 0; index < this.calls; index++) {
      if (this.answers !== null && !this.waits(index)) continue
      this.asyncAt(index)?.reject()
      this.callers.get(index)?.reject(error)
    }
    this.waiting.promise.catch(() => {}) // there may be no caller that waits
    this.waiting.reject(error)
  }

  private settle(index: number): void {
    if (this.isUndecided(index)) {
      this.asyncAt(index)?.reject()
      this.callers.get(index)?.reject(undecided())
      return
    }
    this.asyncAt(index)?.resolve(this.decision(index))
    this.callers.get(index)?.resolve()
  }

  private asyncAt(index: number): AsyncCharge | undefined {
    if (this.asyncCharges === null) return undefined
    this.asyncByIndex ??= new Map(this.asyncCharges.map((charge) => [charge.index, charge]))
    return this.asyncByIndex.get(index)
  }

  private waits(index: number): boolean {
    return this.answers !== null && !this.isAnsweredAt(index) && this.endAt(index) === WAITS
  }

  private isUndecided(index: number): boolean {
    return this.answers !== null && !this.isAnsweredAt(index) && this.endAt(index) !== WAITS
  }

  private endAt(index: number): number | undefined {
    return this.answers?.[2 + NUMBERS_PER_ANSWER * index]
  }
}

/** The calls to one shard, where servers share limits. A batch stays in flight until its last call is answered. */
export class FleetQueue extends ShardQueue {
  /** Batches some of whose calls wait for the engine. */
  private readonly waitingById = new Map<number, FleetBatch>()

  protected override makeBatch(id: number): Batch {
    return new FleetBatch(id)
  }

  override giveUpSentBefore(tick: number): void {
    super.giveUpSentBefore(tick)
    for (const batch of this.waitingById.values())
      if (batch.sentAtTick < tick) this.giveUpWaiting(batch, 'the limiter shard is late')
  }

  protected override receive(answers: Answers): void {
    const [id = 0] = answers
    if (id < 0) {
      const batch = this.waitingById.get(-id)
      if (batch === undefined) return // it was given up
      batch.resolveMore(answers)
      if (!batch.isComplete) return
      this.waitingById.delete(-id)
      this.settled(batch.calls)
      return
    }
    const [batch] = this.inFlight
    if (!(batch instanceof FleetBatch) || batch.id !== id) {
      this.receiveLate(answers)
      return
    }
    this.inFlight.shift()
    batch.resolve(answers)
    if (batch.isComplete) this.settled(batch.calls)
    else this.waitingById.set(id, batch)
  }

  protected override giveUpAll(reason: string): void {
    super.giveUpAll(reason)
    for (const batch of this.waitingById.values()) this.giveUpWaiting(batch, reason)
  }

  private giveUpWaiting(batch: FleetBatch, reason: string): void {
    this.waitingById.delete(batch.id)
    batch.reject(new Unavailable('limiter', reason))
    this.settled(batch.calls)
  }
}

const undecided = () => new Unavailable('limiter', 'the limiter cannot be asked')
