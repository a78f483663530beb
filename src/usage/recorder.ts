import { Value } from '@sinclair/typebox/value'
import type { Spill, Spills, UnreadSpill } from '../data-dir/spill.ts'
import type { AnySql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import { startOfMonth } from '../lib/buckets.ts'
import type { Clock } from '../lib/clock.ts'
import { type Cancel, systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import { UsageBatch, type UsageColumns } from './batch.ts'
import { closeRatelimitHours, codeOf, countBatch, makeMonth, monthsOf, openHoursFrom } from './rollup.ts'
import { type RatelimitEvent, UsageAccumulator, type VerificationEvent } from './usage-accumulator.ts'

export type { Outcome } from './batch.ts'

/** What a recorder tells of itself, for metrics. */
export type UsageStats = {
  /** Counts in memory that are not yet sent: cells, tag sets and their spellings; some 300 bytes each. */
  cellsBuffered: number
  /** Batches that wait, in spill files where those could be written, until what is new has been sent. */
  batchesSpilled: number
  /** What the last flush took, in ms, waiting for Postgres included. */
  flushTookMs: number
  /** Since when Postgres has not taken counts, in ms; 0 while it does. */
  flushAwayMs: number
}
export type { CounterRef } from './usage-accumulator.ts'

/**
 * Counts what one thread decides, and sends the counts to Postgres every `flushEveryMs`. A crash costs what was recorded since
 * the last completed flush began; nothing else is dropped.
 *
 * 1. `record…` adds to the fold: hour, key, identity, tag set → a count per outcome. It never waits and never throws.
 * 2. A flush takes the fold away and cuts it into batches of bounded size, each one statement, counted whole or not at all.
 * 3. A batch carries its writer and the writer's next number, so it never counts twice: without an answer the same batch is
 *    sent again, unchanged, before anything else.
 * 4. While Postgres is away or too slow, counts stay in the fold; beyond `cellsMax` they are spilled, and so is what a stop
 *    cannot send. A spilled batch is the last of its writer, so spilled ones may be sent in any order.
 * 5. Each flush sends new counts first, then spilled batches until a flush interval is over. One recorder of a process also
 *    sends the spill files of earlier processes.
 */
export class UsageRecorder {
  readonly #sql: AnySql
  readonly #writerId: string
  /** Who sends {@link #pending}, by the numbers up to {@link #lastNumber}. */
  #writer: string
  readonly #spills: Spills
  readonly #flushEveryMs: number
  readonly #clock: Clock
  readonly #timers: Timers
  readonly #cellsMax: number
  /** What is being recorded now. Replaced at each flush, so a fold being cut into batches no longer changes. */
  #fold = new UsageAccumulator()
  /** What a flush took away and has not yet made batches of; null = nothing. */
  #taken: Iterator<UsageColumns | null, void> | null = null
  /** How much it held when it was taken. */
  #takenSize = 0
  /** The batch whose count is not confirmed. Only once it is may the next be sent. */
  #pending: UsageBatch | null = null
  #lastNumber = 0
  /** Batches to be sent later, in any order; in memory those that could not be written to the data dir. */
  readonly #spilled: (UsageBatch | UnreadSpill)[]
  #ownWriters = 0
  /** Months whose partitions exist for all this thread knows. */
  readonly #months = new Set<number>()
  /** Hours of namespaces that began earlier are closed. */
  #closedBefore = 0
  /** Since when flushes fail; null = they do not. */
  #awaySinceMs: number | null = null
  #flushTookMs = 0
  /** Statements sent and neither answered nor failed, given up on or not. Each may hold a connection, so there is a bound. */
  #unanswered = 0
  /** Ends the waiting of whatever is being sent, once a stop has waited long enough. */
  #giveUp = new AbortController()
  #flushing: Promise<void> = Promise.resolve()
  #queued: Promise<void> | null = null
  #cancelNext: Cancel | undefined
  #isStarted = false

  constructor(options: {
    sql: AnySql
    /** Unique per process start and thread. */
    writerId: string
    spills: Spills
    flushEveryMs: number
    clock: Clock
    timers?: Timers
    /** Cells, tag sets and their spellings kept in memory while Postgres is away; some 300 bytes each. */
    cellsMax?: number
    /** Also sends the spill files that earlier processes left. One thread of a process does. */
    recovers?: boolean
  }) {
    this.#sql = options.sql
    this.#writerId = options.writerId
    this.#writer = options.writerId
    this.#spills = options.spills
    this.#flushEveryMs = options.flushEveryMs
    this.#clock = options.clock
    this.#timers = options.timers ?? systemTimers
    this.#cellsMax = options.cellsMax ?? 200_000
    this.#spilled = options.recovers === true ? options.spills.list(SPILL_KIND) : []
  }

  recordVerification(event: VerificationEvent): void {
    this.#fold.addVerification(event)
  }

  recordRatelimit(event: RatelimitEvent): void {
    this.#fold.addRatelimit(event)
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    const next = async () => {
      const began = this.#timers.now()
      await this.flush()
      if (this.#isStarted) this.#cancelNext = this.#timers.after(this.#restAfter(began), next)
    }
    this.#cancelNext = this.#timers.after(this.#flushEveryMs, next)
  }

  /** From the beginning of one flush to that of the next: what is recorded waits no longer where flushes are slow. */
  #restAfter(began: number): number {
    const everyMs = this.#flushEveryMs
    if (this.#awaySinceMs !== null) return everyMs
    return this.#spilled.length > 0 ? 0 : Math.max(everyMs - (this.#timers.now() - began), everyMs / 4)
  }

  /**
   * Sends everything recorded before this call, and waits for it; of what was spilled, as much as a flush interval
   * allows. Never rejects: what could not be sent is kept, and the failure is logged once an outage.
   */
  flush(): Promise<void> {
    // A flush that has not begun will take what this call is about; one that has may not.
    this.#queued ??= this.#flushing.then(() => {
      this.#queued = null
      this.#flushing = this.#flushOnce()
      return this.#flushing
    })
    return this.#queued
  }

  stats(): UsageStats {
    return {
      cellsBuffered: this.#takenSize + this.#fold.size,
      batchesSpilled: this.#spilled.length,
      flushTookMs: this.#flushTookMs,
      flushAwayMs: this.#awaySinceMs === null ? 0 : Math.ceil(this.#timers.now() - this.#awaySinceMs),
    }
  }

  /**
   * The last flush. What Postgres does not take within a few seconds goes to spill files, for the next process. Where this
   * one goes on, the next flush sends them.
   * @throws when the data dir cannot be written: then those counts are lost.
   */
  async stop(): Promise<void> {
    this.#isStarted = false
    this.#cancelNext?.()
    const giveUp = this.#giveUp
    const cancelDeadline = this.#timers.after(STOP_TIMEOUT_MS, () =>
      giveUp.abort(new Error('the last flush took too long')),
    )
    await this.flush()
    cancelDeadline()
    this.#giveUp = new AbortController()
    if (this.#pending !== null) {
      this.#spilled.push(this.#spills.write(SPILL_KIND, this.#pending))
      this.#pending = null
      // Were a later number counted first, that batch would pass for one that was counted before.
      this.#writer = this.#ownWriter()
      this.#lastNumber = 0
    }
    for (const [at, spilled] of this.#spilled.entries())
      if (isInMemory(spilled)) this.#spilled[at] = this.#spills.write(SPILL_KIND, spilled)
    do {
      for (let columns = this.#nextColumns(); columns !== null; columns = this.#nextColumns())
        this.#spilled.push(this.#spills.write(SPILL_KIND, this.#ownBatch(columns)))
    } while (this.#takeFold())
  }

  async #flushOnce(): Promise<void> {
    const began = this.#timers.now()
    await this.#flushAll(began + this.#flushEveryMs)
    this.#flushTookMs = this.#timers.now() - began
  }

  /** @param spilledUntil Until when it sends what was spilled, by the timers. */
  async #flushAll(spilledUntil: number): Promise<void> {
    try {
      await this.#sendTaken()
      // Only now, and once: while Postgres is away the fold goes on folding, and under load a flush ends all the same.
      if (this.#takeFold()) await this.#sendTaken()
      await this.#sendSpilled(spilledUntil)
      await this.#maintainPartitions()
    } catch (cause) {
      if (flushFailing.begin())
        log(
          'warn',
          'usage_flush_failing',
          'usage cannot be written to the database; it is kept and written later',
          { cause },
        )
      this.#awaySinceMs ??= this.#timers.now()
      if (this.#takenSize + this.#fold.size > this.#cellsMax) await this.#spill()
      return
    }
    const ended = flushFailing.end()
    if (ended !== null)
      log('info', 'usage_flush_recovered', 'usage is written to the database again', {
        awayMs: ended.lastedMs,
      })
    this.#awaySinceMs = null
  }

  async #sendTaken(): Promise<void> {
    for (;;) {
      if (this.#pending === null) {
        const columns = await this.#nextColumnsInSlices()
        if (columns === null) return
        this.#pending = { writer: this.#writer, number: ++this.#lastNumber, columns }
        // More comes in than the database takes: the same bound as while it is away. Not once all of it is sent: what came
        // meanwhile is taken next, and in a file it would have to be sent all the same.
        if (this.#fold.size > this.#cellsMax) await this.#spill()
      }
      await this.#send(this.#pending)
      this.#pending = null
    }
  }

  /** Resolves when the batch is counted, now or before. */
  async #send(batch: UsageBatch): Promise<void> {
    try {
      for (const month of monthsOf(batch)) await this.#haveMonth(month)
      await this.#answered(() => countBatch(this.#sql, batch, this.#clock()))
    } catch (cause) {
      if (isMonthMissing(cause)) this.#months.clear()
      if (!isRefusedData(cause)) throw cause
      // Better out of the way, and on disk for a person to see, than in front of all others for ever.
      this.#spills.write('rejected-usage', batch)
      log(
        'error',
        'usage_batch_refused',
        'the database refuses a batch of usage; the batch is kept in the data dir',
        { cause },
      )
    }
  }

  async #haveMonth(month: number): Promise<void> {
    if (this.#months.has(month)) return
    await this.#answered(() => makeMonth(this.#sql, month))
    this.#months.add(month)
  }

  /**
   * Ends when there is none left, at `until`, or when what is new has reached its bound; one at least is sent, or it would
   * never end while Postgres is slow.
   */
  async #sendSpilled(until: number): Promise<void> {
    for (let next = this.#spilled[0]; next !== undefined; next = this.#spilled[0]) {
      const spill = isInMemory(next) ? { value: next, done: () => {} } : next.read()
      const isSent = spill !== null && (await this.#sendSpill(spill))
      this.#spilled.shift()
      if (isSent && (this.#timers.now() >= until || this.#fold.size > this.#cellsMax)) return
    }
  }

  /** @returns false when it is no batch. */
  async #sendSpill({ value, done }: Spill): Promise<boolean> {
    if (!Value.Check(UsageBatch, value)) {
      log(
        'error',
        'usage_file_invalid',
        'a spill file of usage does not hold a batch of usage; it is left where it is',
      )
      return false
    }
    await this.#send(value)
    done()
    return true
  }

  /** The next months' partitions are there before they are needed, and hours that are over are closed. */
  async #maintainPartitions(): Promise<void> {
    const now = this.#clock()
    await this.#haveMonth(startOfMonth(now))
    await this.#haveMonth(startOfMonth(now, 1))
    const before = openHoursFrom(now)
    if (before <= this.#closedBefore) return
    await this.#answered(() => closeRatelimitHours(this.#sql, before))
    this.#closedBefore = before
  }

  /** Frees memory while Postgres is away or too slow. Requests go on being answered meanwhile. */
  async #spill(): Promise<void> {
    do {
      for (
        let columns = await this.#nextColumnsInSlices();
        columns !== null;
        columns = await this.#nextColumnsInSlices()
      ) {
        const batch = this.#ownBatch(columns)
        try {
          this.#spilled.push(await this.#spills.writeAsync(SPILL_KIND, batch))
        } catch (cause) {
          this.#spilled.unshift(batch) // first, to free memory
          if (spillFailing.begin())
            log('error', 'usage_spill_failing', 'usage cannot be moved to the data dir; it stays in memory', {
              cause,
            })
          return
        }
        if (spillFailing.end() !== null)
          log('info', 'usage_spill_recovered', 'usage can be moved to the data dir again')
        await this.#nextTurn()
      }
    } while (this.#fold.size > this.#cellsMax && this.#takeFold())
  }

  /** @returns whether there was anything in it. */
  #takeFold(): boolean {
    if (this.#fold.size === 0) return false
    this.#taken = this.#fold.columns()
    this.#takenSize = this.#fold.size
    this.#fold = this.#fold.next()
    return true
  }

  /** In one go, for who has no time to wait or nobody left to hold up. */
  #nextColumns(): UsageColumns | null {
    let columns = this.#buildColumns()
    while (columns === undefined) columns = this.#buildColumns()
    return columns
  }

  /** With what else the thread has to do in between. */
  async #nextColumnsInSlices(): Promise<UsageColumns | null> {
    let columns = this.#buildColumns()
    while (columns === undefined) {
      await this.#nextTurn()
      columns = this.#buildColumns()
    }
    return columns
  }

  /** Null = nothing is left of what was taken; undefined = a slice was done, ask again. */
  #buildColumns(): UsageColumns | null | undefined {
    const next = this.#taken?.next()
    if (next === undefined) return null
    if (next.done !== true) return next.value ?? undefined
    this.#taken = null
    this.#takenSize = 0
    return null
  }

  #nextTurn(): Promise<void> {
    return new Promise<void>((resolve) => this.#timers.soon(resolve))
  }

  /** Its writer sends nothing else, so it need not be sent before or after any other batch. */
  #ownBatch(columns: UsageColumns): UsageBatch {
    return { writer: this.#ownWriter(), number: 1, columns }
  }

  #ownWriter(): string {
    return `${this.#writerId}/${++this.#ownWriters}`
  }

  /** @throws when there is no answer in time. The statement may still be carried out. */
  async #answered<T>(statement: () => Promise<T>): Promise<T> {
    if (this.#unanswered >= UNANSWERED_MAX) throw new Error('earlier statements have had no answer')
    const { signal } = this.#giveUp
    signal.throwIfAborted()
    this.#unanswered++
    const sent = statement().finally(() => this.#unanswered--)
    return await within(this.#timers, SEND_TIMEOUT_MS, sent, { signal })
  }
}

/** Of the recorders of all threads. */
const flushFailing = new Episode('usage flush')
const spillFailing = new Episode('usage spill')

/** For one statement of a flush. */
export const SEND_TIMEOUT_MS = 10_000
const STOP_TIMEOUT_MS = 3_000
const UNANSWERED_MAX = 2

/** Begins the names of the files, also of those of before there was one kind. */
const SPILL_KIND = 'usage'

const isInMemory = (spilled: UsageBatch | UnreadSpill): spilled is UsageBatch => 'writer' in spilled

/** No partition for a row: a month was dropped since it was made. */
const isMonthMissing = (cause: unknown) => codeOf(cause) === '23514'

/** Data exceptions and broken constraints: sending it again cannot help. */
const isRefusedData = (cause: unknown) => /^2[23]/.test(codeOf(cause)) && !isMonthMissing(cause)
