import { type AnySql, connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { pause, systemTimers, type Timers, within } from '../lib/timers.ts'
import type { Invalidations } from './invalidations.ts'

/**
 * Polls for the changes of other processes, behind a pooler that shares connections between transactions: LISTEN needs a
 * connection of its own. A change takes effect here within {@link POLL_EVERY_MS} and the time of a query.
 *
 * 1. A row in `change_polling` says that somebody polls. Writes that see it leave a notice (`invalidations.ts`).
 * 2. Each poll reads the notices of transactions that were not committed in the last poll's snapshot. That is exact, however
 *    long transactions take and in whatever order they commit.
 * 3. A write that began before the row was written leaves no notice. Until those writes are over, every poll invalidates all.
 * 4. After a failed poll, {@link GAP_MS} of silence, or a database that went back in time, another database may have taken
 *    over: the next successful poll invalidates everything and starts again at 1.
 *
 * One connection is kept, and replaced when it fails: a fresh one for each poll would cost more than the query.
 */
export class ChangePoller {
  readonly #invalidations: Invalidations
  readonly #address: DatabaseAddress & { databaseId: string }
  readonly #timers: Timers
  readonly #afterBeat: (sql: Sql) => Promise<void>
  #sql: Sql
  #seen: Seen | null = null
  #saidAt = Number.NEGATIVE_INFINITY
  readonly #stopping = new AbortController()

  /**
   * @param address With the id of its database: what answers there later may be another one.
   * @param options.afterBeat Asks more after each poll. What it throws is ignored.
   */
  constructor(
    invalidations: Invalidations,
    address: DatabaseAddress & { databaseId: string },
    options: { timers?: Timers; afterBeat?: (sql: Sql) => Promise<void> } = {},
  ) {
    this.#invalidations = invalidations
    this.#address = address
    this.#timers = options.timers ?? systemTimers
    this.#afterBeat = options.afterBeat ?? (() => Promise.resolve())
    this.#sql = this.#connect()
  }

  /** @throws the driver's error when the database does not answer. */
  async start(): Promise<void> {
    this.#invalidations.startHearing()
    await this.poll()
    void this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#sql.end({ timeout: 0 })
  }

  /** Asks once. @throws the driver's error, or Error when it is another database. */
  async poll(): Promise<void> {
    const now = this.#timers.now()
    if (this.#seen !== null && now - this.#seen.at > GAP_MS) this.#seen = null
    if (this.#seen === null || now - this.#saidAt > SAY_EVERY_MS) await this.#say(now)
    if (this.#seen === null) {
      const snapshot = await this.#snapshot()
      this.#seen = { snapshot, at: now, unsure: { snapshot, until: now + UNSURE_MS } }
      this.#invalidations.broadcast(null)
      return
    }
    const { snapshot, unsure } = this.#seen
    const [row] = await this.#sql<
      { snapshot: string; payloads: string[]; isOlder: boolean; isUnsure: boolean }[]
    >`
      select pg_current_snapshot()::text as "snapshot",
             array(select payload from change_notices
                    where xact >= pg_snapshot_xmin(${snapshot}::pg_snapshot)
                      and not pg_visible_in_snapshot(xact, ${snapshot}::pg_snapshot)) as "payloads",
             pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(${snapshot}::pg_snapshot) as "isOlder",
             pg_snapshot_xmin(pg_current_snapshot()) < pg_snapshot_xmax(${unsure?.snapshot ?? snapshot}::pg_snapshot) as "isUnsure"
        from settings where name = 'database_id' and value = ${this.#address.databaseId}`
    if (row === undefined) throw new Error('another database answers at this address than at the start')
    if (row.isOlder) {
      this.#seen = null
      return await this.poll()
    }
    const isUnsure = unsure !== null && row.isUnsure && now < unsure.until
    // Once more when they are over: the last of them may have committed since.
    if (unsure !== null) this.#invalidations.broadcast(null)
    else for (const payload of row.payloads) this.#invalidations.hear(payload)
    this.#seen = { snapshot: row.snapshot, at: now, unsure: isUnsure ? unsure : null }
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await pause(this.#timers, POLL_EVERY_MS, this.#stopping.signal)
      if (this.#stopping.signal.aborted) return
      const old = this.#sql
      const asked = this.poll().catch((cause: unknown) => {
        if (old === this.#sql) this.#seen = null
        throw cause
      })
      if (await this.#isDoneWithin(PATIENCE_MS, asked)) {
        await this.#isDoneWithin(PATIENCE_MS, this.#afterBeat(old))
        continue
      }
      if (this.#stopping.signal.aborted) return
      this.#sql = this.#connect()
      old.end({ timeout: 0 }).catch(() => {}) // it is given up, whatever it says to that
    }
  }

  #connect(): Sql {
    return connect(this.#address, { connectionsMax: 1 })
  }

  /** That somebody asks; and what all have read by now goes. */
  async #say(now: number): Promise<void> {
    await this.#sql`
      insert into change_polling (polled_at) values (floor(extract(epoch from clock_timestamp()) * 1000))
      on conflict (is_only) do update set polled_at = excluded.polled_at`
    await deleteOldNotices(this.#sql)
    this.#saidAt = now
  }

  async #snapshot(): Promise<string> {
    const [row] = await this.#sql<{ snapshot: string }[]>`select pg_current_snapshot()::text as snapshot`
    if (row === undefined) throw new Error('the database has no snapshot')
    return row.snapshot
  }

  /** @returns false when the work fails, takes longer, or a stop comes first. */
  #isDoneWithin(ms: number, work: Promise<void>): Promise<boolean> {
    return within(this.#timers, ms, work, { signal: this.#stopping.signal }).then(
      () => true,
      () => false,
    )
  }
}

/** What all who ask have read by now. Also at each start: the last of them may be gone. */
export async function deleteOldNotices(sql: AnySql): Promise<void> {
  await sql`
    delete from change_notices where at < floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${2 * GAP_MS}::bigint`
}

type Seen = {
  /** Of the last answer: `pg_snapshot` as text. */
  snapshot: string
  /** On the clock of the timers, ms. */
  at: number
  /** Of when it was said that somebody asks, while writes from before may be under way; null = none is. */
  unsure: { snapshot: string; until: number } | null
}

const POLL_EVERY_MS = 1_000
const PATIENCE_MS = 2_000
/** Less than for how long notices are made and kept after it was last said that somebody asks. */
const GAP_MS = 300_000
const SAY_EVERY_MS = 60_000
/** No write takes longer (`MANY_KEYS_MS`). Transactions of others may, and are not waited for. */
const UNSURE_MS = 180_000
