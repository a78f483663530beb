import type { Answer, Entry } from '../../fleet/engine.ts'

/**
 * What this server holds of one counter's window, and what it may let through of it. No clock, no I/O: `fleet-shard.ts` sends
 * the entries and brings the answers.
 *
 * Invariant: what is let through because it was given never exceeds what was given, whatever is lost or late.
 * - `own + reserved <= given`, but for what an outage rule let through: that is owed, and told with the next entry.
 * - What is returned is taken off `given` before it is told ({@link giveUp}), so that nobody here can still spend it.
 * - What an answer gives belongs to the window that the answer names ({@link answered}).
 * - What an exchange that failed may have given is not ours ({@link failed}), even if the engine says so: docs/decisions/0032.
 *
 * One entry at a time is under way. Until its end the window does not change and nothing is given up.
 */
export class Grant {
  /** Of the window, Unix ms. */
  endMs = 0
  /** Let through here. */
  own = 0
  /** Held, as the engine last told. */
  given = 0
  /** Held by other servers, as last told. Only the return of a lease lowers it. */
  others = 0
  /** Held for calls that are decided together with other counters. Neither spent nor free to be spent. */
  reserved = 0
  /** Before this, fleet time, a refusal may be followed by a pass. */
  looseUntilMs = 0
  /** Given up and not told yet. It is told once: what is lost on the way is wasted. */
  returned = 0
  /** The engine counts more for this server than it holds, and is to be told. */
  isOverstated = false
  /** The engine has told of this window, and it was not learning. */
  isTold = false
  /** More may have been let through here than `own` says: the cell had no memory, and the engine does not count by server. */
  isOwnPartial: boolean
  /** The entry under way. */
  entry: Entry | null = null
  /** The limit for which the unspent part was given: calls with another one do not draw on it. {@link NO_LIMIT} = none do. */
  private leaseLimit = NO_LIMIT
  /** When it was last given something, fleet time. */
  private leasedAtMs = 0
  /** What was unspent then. */
  private leased = 0
  /** `own` when the entry under way was made. */
  private ownOfEntry = 0
  private readonly demand = new Demand()

  constructor(
    readonly h0: number,
    readonly h1: number,
    readonly h2: number,
    readonly h3: number,
    /** There was no memory for this cell, so it may hold some of the window that it does not know of. */
    public hasForgotten: boolean,
  ) {
    this.isOwnPartial = hasForgotten
  }

  /** What may be let through without asking. */
  get unspent(): number {
    return Math.max(0, this.given - this.own - this.reserved)
  }

  /** Used by all servers, as far as this one knows. */
  get used(): number {
    return this.own + this.others
  }

  /** Moves on to the window of a call. An earlier one than the current is not entered. Not while an entry is under way. */
  enter(endMs: number): void {
    if (endMs <= this.endMs || this.entry !== null) return
    if (this.endMs !== 0) {
      this.hasForgotten = false
      this.isOwnPartial = false
    }
    this.endMs = endMs
    this.own = 0
    this.given = 0
    this.others = 0
    this.reserved = 0
    this.looseUntilMs = 0
    this.returned = 0
    this.isTold = false
    this.isOverstated = false
    this.leased = 0
  }

  /** Decides a call from what is known here, if that suffices. A pass is spent. */
  decide(limit: number, cost: number, nowMs: number): 'passed' | 'refused' | 'ask' {
    if (cost === 0) return this.look(limit, nowMs)
    if (limit === this.leaseLimit && cost <= this.unspent) {
      this.spend(cost, nowMs)
      return 'passed'
    }
    return this.isRefused(limit, cost, nowMs) ? 'refused' : 'ask'
  }

  /**
   * A refusal that nothing can change before the window's end: others give nothing back any more. It is made for this limit
   * and cost; higher limits and smaller costs ask anew.
   */
  isRefused(limit: number, cost: number, nowMs: number): boolean {
    return this.isTold && nowMs >= this.looseUntilMs && this.used + cost > limit
  }

  /** A call that waited for an answer: only what is given counts. A pass is spent. */
  passes(cost: number, nowMs: number): boolean {
    if (cost > this.unspent) return false
    this.spend(cost, nowMs)
    return true
  }

  /** As {@link passes}, but the cost is set aside until {@link settle}. */
  reserve(cost: number): boolean {
    if (cost > this.unspent) return false
    this.reserved += cost
    return true
  }

  /** The outcome of what was set aside in that window is known. */
  settle(endMs: number, cost: number, isSpent: boolean, nowMs: number): void {
    if (endMs !== this.endMs) return // that window is over
    this.reserved -= cost
    if (isSpent) this.spend(cost, nowMs)
  }

  /** Takes back what was spent in that window. It is held on, to be spent again or returned. */
  undo(endMs: number, cost: number): void {
    if (endMs === this.endMs) this.own = Math.max(0, this.own - cost)
  }

  /** An outage rule lets it through, given or not. */
  letThrough(cost: number): void {
    this.own += cost
  }

  /** What an outage rule let through beyond what was given. */
  get owed(): number {
    return Math.max(0, this.own + this.reserved - this.given)
  }

  /**
   * Makes the entry that asks for calls which wait, and it is under way until {@link answered} or {@link failed}.
   * @param wanted.cost Of all of them. @param wanted.least The smallest of their costs; of calls that need all, their sum.
   * @param wanted.ahead What is wanted to be left when they have been decided.
   */
  ask(wanted: { limit: number; cost: number; least: number; ahead: number; isTentative: boolean }): Entry {
    const { limit } = wanted
    if (limit !== this.leaseLimit) this.giveUp()
    const { unspent } = this
    const asked = Math.max(0, wanted.cost - unspent)
    const least = asked === 0 ? 0 : Math.min(asked, Math.max(1, wanted.least - unspent))
    const ahead = Math.max(0, wanted.ahead - Math.max(0, unspent - wanted.cost))
    return this.entryOf({ limit, asked, least, ahead, isTentative: wanted.isTentative })
  }

  /** Makes the entry that says what is held and owed, and what was given up. As {@link ask}. */
  tell(): Entry {
    return this.entryOf({
      limit: Math.max(0, this.leaseLimit),
      asked: 0,
      least: 0,
      ahead: 0,
      isTentative: false,
    })
  }

  /** Takes what is unspent off what is held, to be told with the next entry. Not while an entry is under way. */
  giveUp(): void {
    const { unspent } = this
    this.given -= unspent
    this.returned += unspent
    this.leased = 0
  }

  /** The answer to the entry under way. @param options.isByServer It comes from an engine that knows what each server holds. */
  answered(answer: Answer, options: { isLearning: boolean; isByServer: boolean; nowMs: number }): void {
    const { entry } = this
    if (entry === null) throw new Error('no entry of this cell is under way')
    this.entry = null
    const before = this.given
    if (answer.endMs !== this.endMs) {
      this.enter(answer.endMs)
      this.given = answer.gift
    } else if (this.hasForgotten) {
      const spentSince = this.own - this.ownOfEntry
      this.own = answer.given - answer.gift + spentSince
      this.given = answer.given
      this.hasForgotten = options.isLearning // then the engine does not know either
      if (options.isByServer) this.isOwnPartial = options.isLearning
    } else this.given = entry.given + entry.owed + answer.gift
    this.isOverstated = answer.given > this.given
    this.others = Math.max(0, answer.sum - answer.given)
    this.looseUntilMs = Math.max(this.looseUntilMs, answer.looseUntilMs)
    this.isTold = !options.isLearning
    if (this.given > before || this.leaseLimit !== entry.limit) this.leasedAtMs = options.nowMs
    // Above the limit nobody gets more, so what an outage rule let through and is taken back is not spent again.
    this.leaseLimit = answer.sum > entry.limit ? NO_LIMIT : entry.limit
    if (this.leaseLimit === NO_LIMIT) this.giveUp()
  }

  /** After the calls that waited were decided: what is left is a lease. */
  rest(): void {
    this.leased = this.unspent
  }

  /** The entry under way failed. What it returned stays given up. */
  failed(): void {
    this.entry = null
  }

  /** How much to ask ahead: what was spent in the last `leaseMs`; nothing for cells that are seldom used. */
  aheadOf(nowMs: number, leaseMs: number): number {
    if (leaseMs === 0) return 0
    const spent = this.demand.over(nowMs, leaseMs)
    return spent < AHEAD_LEAST ? 0 : spent
  }

  /** The lease is down to a quarter and the engine may have more, so it is asked before a call must wait. */
  isLow(): boolean {
    if (this.entry !== null || this.leased === 0 || 4 * this.unspent > this.leased) return false
    return this.given + this.others < this.leaseLimit
  }

  /** What is unspent has not been used up in time, so it is to be returned. */
  isIdle(nowMs: number, leaseMs: number): boolean {
    return this.entry === null && this.unspent > 0 && nowMs - this.leasedAtMs >= leaseMs
  }

  /** Calls with this limit may draw on what is unspent; those with another may not. */
  get limit(): number {
    return this.leaseLimit
  }

  /** Looks cost nothing. Where a lease is held, what others used is as old as its last answer. */
  private look(limit: number, nowMs: number): 'passed' | 'refused' | 'ask' {
    if (limit === this.leaseLimit && this.unspent > 0) return 'passed'
    if (!this.isTold || nowMs < this.looseUntilMs || this.used < limit) return 'ask'
    return this.used > limit ? 'refused' : 'passed'
  }

  private spend(cost: number, nowMs: number): void {
    this.own += cost
    this.demand.add(cost, nowMs)
  }

  private entryOf(wanted: Pick<Entry, 'limit' | 'asked' | 'least' | 'ahead' | 'isTentative'>): Entry {
    const { h0, h1, h2, h3, endMs, hasForgotten, owed } = this
    const returned = hasForgotten ? 0 : this.returned
    const given = hasForgotten ? 0 : this.given
    this.returned = 0
    this.ownOfEntry = this.own
    const { limit, asked, least, ahead, isTentative } = wanted
    this.entry = {
      h0,
      h1,
      h2,
      h3,
      endMs,
      limit,
      given,
      hasForgotten,
      returned,
      owed,
      asked,
      least,
      ahead,
      isTentative,
    }
    return this.entry
  }
}

/** What was spent in the last so many milliseconds, about: two counters, of which the older fades. */
class Demand {
  private fromMs = 0
  private now = 0
  private before = 0

  add(cost: number, nowMs: number): void {
    if (nowMs - this.fromMs >= PERIOD_MS) this.roll(nowMs)
    this.now += cost
  }

  over(nowMs: number, lastMs: number): number {
    if (nowMs - this.fromMs >= PERIOD_MS) this.roll(nowMs)
    const passed = (nowMs - this.fromMs) / PERIOD_MS
    return Math.ceil(((this.now + this.before * (1 - passed)) * lastMs) / PERIOD_MS)
  }

  private roll(nowMs: number): void {
    this.before = nowMs - this.fromMs < 2 * PERIOD_MS ? this.now : 0
    this.now = 0
    this.fromMs = nowMs - (nowMs % PERIOD_MS)
  }
}

/** What is unspent is to be returned. */
const NO_LIMIT = -1
const PERIOD_MS = 250
/** Nothing below is asked ahead: leases of cells that are seldom used would mostly come back. */
const AHEAD_LEAST = 4
