import { nameOf } from '../table/holds.ts'
import type { Charge, Decision } from './charge.ts'
import { KIND, MODE } from './protocol.ts'
import type { Batch, ShardQueue } from './shard-queue.ts'

/** A charge and where it goes. */
export type PlacedCharge = {
  queue: ShardQueue
  h0: number
  h1: number
  h2: number
  h3: number
  limit: number
  durationMs: number
  cost: number
  owner: number
}

/**
 * Charges several counters, all or none. Calls whose counters are all on one shard are decided there, in one turn. Others:
 *
 * 1. Each shard gets its part in this turn's message, decides it as a whole, and charges it when all of it passes.
 * 2. When all parts passed, the call has. Only shards that hold something hear of it (`table/holds.ts`).
 * 3. When a part is refused, or its shard is dead or late, the next message undoes the others. An undo names the window.
 *
 * Last refuser first: of a call with a counter that has refused lately, only that counter's shard charges; the others look.
 * So a caller who goes on asking in vain takes nothing, not even for a moment, from counters that others share.
 * What is exact and what is not: docs/decisions/0028.
 */
export class Together {
  /** Counters by {@link nameOf} that refused a spanning call when they were last asked; the latest last. */
  private readonly refusers = new Set<number>()
  private partsMade = 0
  private open = 0
  private onSettled: (() => void)[] = []

  constructor(
    private readonly router: {
      /** @throws Error as `LimiterRouter.submit`. */
      place(charge: Charge): PlacedCharge
      /** Some calls wait to be sent. */
      queued(): void
    },
  ) {}

  /**
   * @returns for each charge whether it passes by itself, and what its counter has used afterwards.
   * @throws Error when a shard is dead or late: then nothing was charged, but by shards that may have died after it.
   */
  async charge(charges: readonly Charge[], nowMs: number): Promise<Decision[]> {
    const parts = partsOf(charges, this.router.place)
    for (const part of parts) part.queue.requireRoom(part.length)
    this.open++
    try {
      const [only] = parts
      if (only !== undefined && parts.length === 1) {
        this.ask(only, MODE.whole, nowMs)
        await answersOf(parts)
      } else await this.chargeParts(parts, nowMs)
      return decisionsOf(parts, charges.length)
    } finally {
      if (--this.open === 0) for (const resolve of this.onSettled.splice(0)) resolve()
    }
  }

  /** Resolves when every outcome is queued. */
  settled(): Promise<void> {
    return this.open === 0 ? Promise.resolve() : new Promise((resolve) => this.onSettled.push(resolve))
  }

  private async chargeParts(parts: readonly Part[], nowMs: number): Promise<void> {
    try {
      const refuser = this.refusers.size === 0 ? undefined : parts.find((part) => this.mayRefuse(part))
      for (const part of parts)
        this.ask(part, refuser === undefined || part === refuser ? MODE.undoable : MODE.look, nowMs)
      await answersOf(parts)
      if (refuser !== undefined && parts.every(({ passed }) => passed)) {
        const others = parts.filter((part) => part !== refuser)
        for (const part of others) part.queue.requireRoom(part.length)
        for (const part of others) this.ask(part, MODE.undoable, nowMs)
        await answersOf(others)
      }
    } catch (cause) {
      for (const part of parts) this.undoFailed(part)
      throw cause
    }
    const doPass = parts.every(({ passed }) => passed)
    if (!doPass || this.refusers.size > 0) for (const part of parts) this.remember(part)
    if (doPass) for (const part of parts) this.keep(part)
    else for (const part of parts) this.undo(part)
  }

  private ask(part: Part, mode: number, nowMs: number): void {
    part.ask(++this.partsMade, mode, nowMs)
    this.router.queued()
  }

  /** Its shard may have charged it, or may do so yet. */
  private undoFailed(part: Part): void {
    if (part.isAnswered) this.undo(part)
    else if (part.isAsked) part.batch.onLate.push(() => this.undo(part))
  }

  private undo(part: Part): void {
    if (part.undo()) this.router.queued()
  }

  private keep(part: Part): void {
    if (part.keep()) this.router.queued()
  }

  private mayRefuse({ calls }: Part): boolean {
    return calls.some(({ h0, h1 }) => this.refusers.has(nameOf(h0, h1)))
  }

  private remember({ batch, calls, first }: Part): void {
    for (const [i, { h0, h1 }] of calls.entries()) {
      const name = nameOf(h0, h1)
      this.refusers.delete(name)
      if (batch.hasPassed(first + i)) continue
      this.refusers.add(name)
      for (const oldest of this.refusers) {
        if (this.refusers.size <= REFUSERS_MAX) break
        this.refusers.delete(oldest)
      }
    }
  }
}

/** The charges of one call that one shard decides. */
class Part {
  readonly calls: PlacedCharge[] = []
  /** The place of each in the request. */
  readonly places: number[] = []
  /** The message in which it was last asked, and the place of its first call there. Set by {@link ask}. */
  batch!: Batch
  first = 0
  isAsked = false
  private number = 0
  private mode: number = MODE.look
  private isUndone = false

  constructor(readonly queue: ShardQueue) {}

  /** Records that it takes in a message. */
  get length(): number {
    return 1 + this.calls.length
  }

  get isAnswered(): boolean {
    return this.isAsked && this.batch.isAnsweredAt(this.first)
  }

  /** All its calls are answered at once. */
  get answered(): Promise<void> {
    return this.batch.answeredAt(this.first)
  }

  /** All of it passes. */
  get passed(): boolean {
    for (let i = 0; i < this.calls.length; i++) if (!this.batch.hasPassed(this.first + i)) return false
    return true
  }

  ask(number: number, mode: number, nowMs: number): void {
    const { queue, calls } = this
    this.number = number
    this.mode = mode
    queue.append(calls.length, number, mode, 0, KIND.part, 0, 0, nowMs, 0)
    for (const { h0, h1, h2, h3, limit, durationMs, cost, owner } of calls)
      this.batch = queue.append(h0, h1, h2, h3, limit, durationMs, cost, nowMs, owner)
    this.batch.hasParts = true
    this.first = this.batch.calls - calls.length
    this.isAsked = true
  }

  /** Takes back what was charged. @returns whether there was anything. */
  undo(): boolean {
    const { queue, calls, batch, first } = this
    if (this.mode !== MODE.undoable || !this.passed) return false
    this.isUndone = true
    if (!queue.stillServes(batch)) return false
    let hasHolds = false
    for (const [i, { h0, h1, h2, h3, cost, owner }] of calls.entries()) {
      if (cost === 0) continue
      const { resetAtMs, atMs } = batch.decision(first + i)
      if (batch.isHeld(first + i)) hasHolds = true
      else queue.append(h0, h1, h2, h3, KIND.undo, resetAtMs, cost, atMs, owner)
    }
    if (hasHolds) this.tell(KIND.release)
    return true
  }

  /** Nothing of it will be undone. @returns whether the shard must be told. */
  keep(): boolean {
    const { queue, calls, batch, first } = this
    if (!calls.some((_, i) => batch.isHeld(first + i)) || !queue.stillServes(batch)) return false
    this.tell(KIND.keep)
    return true
  }

  decision(i: number): Decision {
    const decision = this.batch.decision(this.first + i)
    if (this.isUndone) decision.used -= this.costUpTo(i)
    return decision
  }

  /** What its calls up to this one have taken from this one's counter. */
  private costUpTo(i: number): number {
    const { h0, h1, h2, h3 } = this.calls[i] as PlacedCharge // in range
    let sum = 0
    for (const call of this.calls.slice(0, i + 1))
      if (call.h0 === h0 && call.h1 === h1 && call.h2 === h2 && call.h3 === h3) sum += call.cost
    return sum
  }

  private tell(outcome: typeof KIND.keep | typeof KIND.release): void {
    this.queue.append(0, this.number, 0, 0, outcome, 0, 0, 0, 0)
  }
}

function partsOf(charges: readonly Charge[], place: (charge: Charge) => PlacedCharge): Part[] {
  const parts: Part[] = []
  for (const [i, charge] of charges.entries()) {
    const call = place(charge)
    let part = parts.find(({ queue }) => queue === call.queue)
    if (part === undefined) {
      part = new Part(call.queue)
      parts.push(part)
    }
    part.calls.push(call)
    part.places.push(i)
  }
  return parts
}

/** Waits for all of them. @throws Error the first that has none. */
async function answersOf(parts: readonly Part[]): Promise<void> {
  let failure: unknown = null
  for (const part of parts)
    try {
      do await part.answered
      while (!part.isAnswered)
    } catch (cause) {
      failure ??= cause
    }
  if (failure !== null) throw failure
}

/** In the order of the request. */
function decisionsOf(parts: readonly Part[], count: number): Decision[] {
  const decisions = new Array<Decision>(count)
  for (const part of parts)
    for (const [i, place] of part.places.entries()) decisions[place] = part.decision(i)
  return decisions
}

const REFUSERS_MAX = 10_000
