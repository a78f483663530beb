import { Value } from '@sinclair/typebox/value'
import { REJECTED, type Spill, type Spills, type UnreadSpill } from '../data-dir/spill.ts'
import type { AnySql } from '../db/connect.ts'
import { Episode } from '../episodes.ts'
import { startOfMonth } from '../lib/buckets.ts'
import type { Clock } from '../lib/clock.ts'
import { type Cancel, systemTimers, type Timers, within } from '../lib/timers.ts'
import { log, logUnknownFormat } from '../log.ts'
import { BATCH_ROWS_MAX, newerFormatOf, spilledBatch, UsageBatch, type UsageColumns } from './batch.ts'
import { FullNamespaces, KnownIdentifiers } from './full-namespaces.ts'
import { codeOf, countBatch, findFull, listNamed, makeMonth, monthsOf, type NamespaceHour } from './rollup.ts'
import { type RatelimitEvent, UsageAccumulator, type VerificationEvent } from './usage-accumulator.ts'

export type { Outcome } from './batch.ts'

/** State of a recorder, for metrics. */
export type UsageStats = {
  /** Counts in memory that are not yet sent: rows, tag sets and their spellings; some 300 bytes each. */
  countsBuffered: number
  /** Batches to be sent after new counts: spill files, and in memory those that could not be written. */
  batchesSpilled: number
  /** What the last flush took, in ms, waiting for Postgres included. */
  flushTookMs: number
  /** For how long no flush has succeeded, in ms; 0 while they do. */
  flushAwayMs: number
}
export type { CounterRef } from './usage-accumulator.ts'

/**
 * Counts the decisions of one thread, and sends the counts to Postgres every `flushEveryMs`. A crash loses the counts since the
 * last completed flush began; nothing else is lost.
 *
 * 1. `record…` adds to the current accumulator. It never waits and never throws.
 * 2. A flush drains that accumulator into batches of bounded size. A batch is one statement, counted whole or not at all.
 * 3. A batch carries its writer and the writer's next number, so it never counts twice: without an answer the same batch is
 *    sent again, unchanged, before anything else.
 * 4. While Postgres is away or too slow, counts stay in the accumulator. Beyond `countsMax` they are spilled to files, and so
 *    are the counts that a stop cannot send. A spilled batch is the last of its writer, so spilled ones have no order.
 * 5. When the database takes in no more identifiers of a namespace in this hour, new ones count in its total alone.
 * 6. Each flush sends new counts first, then spilled batches until a flush interval is over. One recorder of a process also
 *    sends the spill files of earlier processes.
 */
export class UsageRecorder {
  readonly #sql: AnySql
  readonly #writerId: string
  /** Writer of {@link #pending} and of the numbers up to {@link #lastNumber}. */
  #writer: string
  readonly #spills: Spills
  readonly #flushEveryMs: number
  readonly #clock: Clock
  readonly #timers: Timers
  readonly #countsMax: number
  /** Counts new events. Each flush replaces it, so the one being drained no longer changes. */
  #current: UsageAccumulator
  readonly #full = new FullNamespaces()
  /** Columns of the accumulator that is being drained; null = none. */
  #draining: Iterator<UsageColumns | null, void> | null = null
  /** Its size at the beginning. */
  #drainingSize = 0
  /** The batch without an answer. The next is sent after its answer only. */
  #pending: UsageBatch | null = null
  #lastNumber = 0
  /** Batches to be sent later, in any order: files, and in memory those that could not be written. */
  readonly #spilled: (UsageBatch | UnreadSpill)[]
  #ownWriters = 0
  /** Months whose partitions exist, as far as this thread knows. */
  readonly #months = new Set<number>()
  /** Since when flushes fail; null = they do not. */
  #awaySinceMs: number | null = null
  #flushTookMs = 0
  /** Statements without an answer or an error, also after their time limit. Each may hold a connection, so there is a bound. */
  #unanswered = 0
  /** Ends the wait for an answer when a stop has waited long enough. */
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
    /** Rows, tag sets and their spellings in memory while Postgres is away; some 300 bytes each. */
    countsMax?: number
    /** Also sends the spill files that earlier processes left. One thread of a process does. */
    recovers?: boolean
  }) {
    this.#current = new UsageAccumulator({ full: this.#full })
    this.#sql = options.sql
    this.#writerId = options.writerId
    this.#writer = options.writerId
    this.#spills = options.spills
    this.#flushEveryMs = options.flushEveryMs
    this.#clock = options.clock
    this.#timers = options.timers ?? systemTimers
    this.#countsMax = options.countsMax ?? 200_000
    this.#spilled = options.recovers === true ? options.spills.list(SPILL_KIND) : []
  }

  recordVerification(event: VerificationEvent): void {
    this.#current.addVerification(event)
  }

  recordRatelimit(event: RatelimitEvent): void {
    this.#current.addRatelimit(event)
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    const next = async () => {
      const began = this.#timers.now()
      await this.flush()
      if (this.#isStarted) this.#cancelNext = this.#timers.after(this.#delayAfter(began), next)
    }
    this.#cancelNext = this.#timers.after(this.#flushEveryMs, next)
  }

  /** An interval runs from the start of one flush to the start of the next, so slow flushes do not make counts wait longer. */
  #delayAfter(began: number): number {
    const everyMs = this.#flushEveryMs
    if (this.#awaySinceMs !== null) return everyMs
    return this.#spilled.length > 0 ? 0 : Math.max(everyMs - (this.#timers.now() - began), everyMs / 4)
  }

  /**
   * Sends everything recorded before this call, and spilled batches for up to a flush interval. Never rejects: counts that
   * could not be sent are kept, and each outage is logged once.
   */
  flush(): Promise<void> {
    // A flush under way may have drained the accumulator already, so this call needs the next one.
    this.#queued ??= this.#flushing.then(() => {
      this.#queued = null
      this.#flushing = this.#flushOnce()
      return this.#flushing
    })
    return this.#queued
  }

  stats(): UsageStats {
    return {
      countsBuffered: this.#drainingSize + this.#current.size,
      batchesSpilled: this.#spilled.length,
      flushTookMs: this.#flushTookMs,
      flushAwayMs: this.#awaySinceMs === null ? 0 : Math.ceil(this.#timers.now() - this.#awaySinceMs),
    }
  }

  /**
   * The last flush. Counts that Postgres does not take within a few seconds go to spill files, for the next process. If this
   * recorder goes on, its next flush sends them.
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
      this.#spilled.push(this.#spills.write(SPILL_KIND, spilledBatch(this.#pending)))
      this.#pending = null
      // If a later number of this writer were counted first, the spilled batch would look as if it had been counted.
      this.#writer = this.#ownWriter()
      this.#lastNumber = 0
    }
    for (const [at, spilled] of this.#spilled.entries())
      if (isInMemory(spilled)) this.#spilled[at] = this.#spills.write(SPILL_KIND, spilledBatch(spilled))
    do {
      for (let columns = this.#nextColumns(); columns !== null; columns = this.#nextColumns())
        this.#spilled.push(this.#spills.write(SPILL_KIND, spilledBatch(this.#ownBatch(columns))))
    } while (this.#drain())
  }

  async #flushOnce(): Promise<void> {
    const began = this.#timers.now()
    await this.#flushAll(began + this.#flushEveryMs)
    this.#flushTookMs = this.#timers.now() - began
  }

  /** @param spilledUntil Time, by the timers, until which it sends spilled batches. */
  async #flushAll(spilledUntil: number): Promise<void> {
    try {
      await this.#sendDraining()
      // After the rest of the last drain, and once: while Postgres is away counts add up in one accumulator, and a flush ends
      // also under load.
      if (this.#drain()) await this.#sendDraining()
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
      if (this.#drainingSize + this.#current.size > this.#countsMax) await this.#spill()
      return
    }
    const ended = flushFailing.end()
    if (ended !== null)
      log('info', 'usage_flush_recovered', 'usage is written to the database again', {
        awayMs: ended.lastedMs,
      })
    this.#awaySinceMs = null
  }

  async #sendDraining(): Promise<void> {
    for (;;) {
      if (this.#pending === null) {
        const columns = await this.#nextColumnsInSlices()
        if (columns === null) return
        this.#pending = { writer: this.#writer, number: ++this.#lastNumber, columns }
        // More is recorded than the database takes: the same bound as while it is away. Not when the drain is done: its
        // successor is drained next, and a file would have to be sent as well.
        if (this.#current.size > this.#countsMax) await this.#spill()
      }
      const { columns } = this.#pending
      await this.#send(this.#pending)
      this.#pending = null
      await this.#findFull(columns)
    }
  }

  /** Resolves when the batch has been counted, by this call or before. */
  async #send(batch: UsageBatch): Promise<void> {
    try {
      for (const month of monthsOf(batch)) await this.#haveMonth(month)
      await this.#answered(() => countBatch(this.#sql, batch, this.#clock()))
    } catch (cause) {
      if (isMonthMissing(cause)) this.#months.clear()
      if (!isRefusedData(cause)) throw cause
      // In a file for a person to see; otherwise it would hold up all later batches for ever.
      this.#spills.write(`${REJECTED}usage`, spilledBatch(batch))
      log(
        'error',
        'usage_batch_refused',
        'the database rejects a batch of usage; the batch is kept in the data dir',
        { cause },
      )
    }
  }

  /**
   * After a batch of many identifiers: whether their hours take in no more. Then new identifiers count in totals alone, also those
   * that wait to be sent.
   */
  async #findFull({ totals, identifiers }: UsageColumns): Promise<void> {
    if (identifiers.total.length < BATCH_ROWS_MAX / 2) return
    const counts = totals.hour.map(() => 0)
    for (const total of identifiers.total) counts[total - 1] = (counts[total - 1] ?? 0) + 1
    const asked = totals.hour
      .map((hour, at): NamespaceHour => ({ namespaceId: totals.namespaceId[at] ?? '', hour }))
      .filter(({ namespaceId, hour }, at) => {
        const isMany = (counts[at] ?? 0) >= IDENTIFIERS_MANY
        return isMany && this.#full.knownOf(namespaceId, hour) === null
      })
    if (asked.length === 0) return
    for (const { namespaceId, hour } of await this.#answered(() => findFull(this.#sql, asked))) {
      const named: string[] = []
      for (let page = [''], after = ''; page.length > 0; after = page.at(-1) ?? '') {
        page = await this.#answered(() => listNamed(this.#sql, { namespaceId, hour }, after, NAMES_PAGE))
        named.push(...page)
      }
      this.#full.set(namespaceId, hour, new KnownIdentifiers(named))
    }
  }

  async #haveMonth(month: number): Promise<void> {
    if (this.#months.has(month)) return
    await this.#answered(() => makeMonth(this.#sql, month))
    this.#months.add(month)
  }

  /**
   * Ends when no spilled batch is left, at `until`, or when new counts have reached their bound. At least one is sent, or
   * they would never get fewer while Postgres is slow.
   */
  async #sendSpilled(until: number): Promise<void> {
    for (let next = this.#spilled[0]; next !== undefined; next = this.#spilled[0]) {
      const spill = isInMemory(next) ? { value: next, done: () => {} } : next.read()
      const isSent = spill !== null && (await this.#sendSpill(spill))
      this.#spilled.shift()
      if (isSent && (this.#timers.now() >= until || this.#current.size > this.#countsMax)) return
    }
  }

  /** @returns false when it is no batch, or one of a newer release, whose next start sends it. */
  async #sendSpill({ value, done }: Spill): Promise<boolean> {
    const newer = newerFormatOf(value)
    if (newer !== null) {
      logUnknownFormat('spill file of usage', newer)
      return false
    }
    if (!Value.Check(UsageBatch, value)) {
      log(
        'error',
        'usage_file_invalid',
        'a spill file of usage has invalid content; it stays in the data dir',
      )
      return false
    }
    await this.#send(value)
    done()
    return true
  }

  /** Makes this month's and the next month's partitions. */
  async #maintainPartitions(): Promise<void> {
    const now = this.#clock()
    await this.#haveMonth(startOfMonth(now))
    await this.#haveMonth(startOfMonth(now, 1))
  }

  /** Frees memory while Postgres is away or too slow. The thread answers requests meanwhile. */
  async #spill(): Promise<void> {
    do {
      for (
        let columns = await this.#nextColumnsInSlices();
        columns !== null;
        columns = await this.#nextColumnsInSlices()
      ) {
        const batch = this.#ownBatch(columns)
        try {
          this.#spilled.push(await this.#spills.writeAsync(SPILL_KIND, spilledBatch(batch)))
        } catch (cause) {
          this.#spilled.unshift(batch) // first, to free memory
          if (spillFailing.begin())
            log(
              'error',
              'usage_spill_failing',
              'usage cannot be written to the database or to a spill file; it stays in memory',
              {
                cause,
              },
            )
          return
        }
        if (spillFailing.end() !== null)
          log('info', 'usage_spill_recovered', 'usage can be written to spill files again')
        await this.#nextTurn()
      }
    } while (this.#current.size > this.#countsMax && this.#drain())
  }

  /** Begins to drain the current accumulator. @returns false when it is empty. */
  #drain(): boolean {
    if (this.#current.size === 0) return false
    this.#draining = this.#current.columns()
    this.#drainingSize = this.#current.size
    this.#current = this.#current.next()
    return true
  }

  /** Without a pause, for a stop: there are no requests left to hold up. */
  #nextColumns(): UsageColumns | null {
    let columns = this.#buildColumns()
    while (columns === undefined) columns = this.#buildColumns()
    return columns
  }

  /** With pauses in which the thread answers requests. */
  async #nextColumnsInSlices(): Promise<UsageColumns | null> {
    let columns = this.#buildColumns()
    while (columns === undefined) {
      await this.#nextTurn()
      columns = this.#buildColumns()
    }
    return columns
  }

  /** Null = the drain is done; undefined = a slice is done, call again. */
  #buildColumns(): UsageColumns | null | undefined {
    const next = this.#draining?.next()
    if (next === undefined) return null
    if (next.done !== true) return next.value ?? undefined
    this.#draining = null
    this.#drainingSize = 0
    return null
  }

  #nextTurn(): Promise<void> {
    return new Promise<void>((resolve) => this.#timers.soon(resolve))
  }

  /** Its writer sends nothing else, so its order among other batches does not matter. */
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

/** States shared by the recorders of all threads. */
const flushFailing = new Episode('usage flush')
const spillFailing = new Episode('usage spill')

/** For one statement of a flush. */
export const SEND_TIMEOUT_MS = 10_000
const STOP_TIMEOUT_MS = 3_000
const UNANSWERED_MAX = 2
/** Of one namespace in one batch. Fewer fill no memory. */
const IDENTIFIERS_MANY = 20
/** Names read in one statement: some milliseconds. */
const NAMES_PAGE = 2_000

/** File names of earlier versions begin with it too (`usage-<id>-…`). */
const SPILL_KIND = 'usage'

const isInMemory = (spilled: UsageBatch | UnreadSpill): spilled is UsageBatch => 'writer' in spilled

/** A row without a partition: its month was dropped after this thread made it. */
const isMonthMissing = (cause: unknown) => codeOf(cause) === '23514'

/** Data exceptions and broken constraints: sending the batch again cannot help. */
const isRefusedData = (cause: unknown) => /^2[23]/.test(codeOf(cause)) && !isMonthMissing(cause)
