import { type AnySql, connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { requireDatabase } from '../db/settings.ts'

/** Hex digits of a cell's name. */
export const CELL_DIGITS = 32

/** Cells as they travel to Postgres. Plain data: it is also what a spill file holds. */
export type WindowRows = {
  /** {@link CELL_DIGITS} for each cell, one after the other. */
  cells: string
  /** Unix ms. */
  ends: number[]
  /** By one node, absolute. */
  used: number[]
}

/** From and to as 32 hex digits each, both inclusive. */
export type CellRange = { from: string; to: string }

/** `is_own`: counted by the node that asks. */
export type StoredWindow = { cell: string; ends_at: number; used: number; is_own: boolean }

/**
 * The window rows in Postgres, over one connection. No call waits longer than `STATEMENT_MS`, the count at a start longer
 * than `COUNT_MS`: after that, and after any other failure, the connection is dropped and the next call opens a new one,
 * which first asks whether it leads to the same database: windows given to an empty standby would be taken for written. A
 * write that was given up may still be carried out later; rows are absolute and never go back, so that is harmless.
 */
export class WindowStore {
  private sql: Sql | null = null
  /** Of this connection: its database is the right one. */
  private isKnown = false
  constructor(private readonly address: DatabaseAddress) {}

  /** Writes what a node has counted: the same window keeps the higher count, a newer window replaces an older. */
  async write(nodeId: string, rows: WindowRows): Promise<void> {
    if (rows.ends.length === 0) return
    await this.run((sql) => upsertWindows(sql, nodeId, rows))
  }

  /** How many windows are open at `nowMs`, of all nodes, whose cell lies in the range. */
  async countOpen(range: CellRange, nowMs: number): Promise<number> {
    return await this.run((sql) => countOpen(sql, range, nowMs), COUNT_MS)
  }

  /** Those windows. Ask for ranges of some thousand, or it may not be done in time. */
  async readOpen(range: CellRange, nodeId: string, nowMs: number): Promise<StoredWindow[]> {
    return await this.run((sql) => selectOpen(sql, range, nodeId, nowMs))
  }

  /**
   * Deletes up to `rowsMax` rows of windows, of any node, that ended over `afterMs` before `nowMs`. Where the database's
   * clock is behind it, that one counts: a clock set wrong must not cost what others are counting.
   * @returns how many.
   */
  async deleteEnded(which: { nowMs: number; afterMs: number; rowsMax: number }): Promise<number> {
    return await this.run((sql) => deleteEnded(sql, which))
  }

  /** Closes the connection; a statement under way fails. The store can be used again. */
  async close(): Promise<void> {
    const sql = this.sql
    this.sql = null
    await sql?.end({ timeout: 0 })
  }

  private open(): Sql {
    const onClose = () => {
      if (this.sql === sql) this.sql = null // the driver would open another by itself
    }
    const sql = connect(this.address, { connectionsMax: 1, onClose })
    this.sql = sql
    this.isKnown = false
    return sql
  }

  private async run<T>(statement: (sql: Sql) => Promise<T>, timeoutMs = STATEMENT_MS): Promise<T> {
    const sql = this.sql ?? this.open()
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    })
    try {
      if (!this.isKnown) await Promise.race([requireDatabase(sql, this.address), late])
      this.isKnown = true
      return await Promise.race([statement(sql), late])
    } catch (cause) {
      void this.close().catch(() => {}) // it is broken already; what broke it is the error to report
      throw new Error('the window store is not available', { cause })
    } finally {
      clearTimeout(timer)
    }
  }
}

const STATEMENT_MS = 5_000
/** It reads them all, at a start. */
const COUNT_MS = 60_000

async function upsertWindows(sql: AnySql, nodeId: string, rows: WindowRows): Promise<void> {
  // As array literals in text: the driver's own conversion of arrays costs several times as much.
  let cells = `{${rows.cells.slice(0, CELL_DIGITS)}`
  for (let at = CELL_DIGITS; at < rows.cells.length; at += CELL_DIGITS)
    cells += `,${rows.cells.slice(at, at + CELL_DIGITS)}`
  cells += '}'
  // Making text of one takes its time, and one after the other they are mostly the same.
  let lastEnd = Number.NaN
  let lastText = ''
  const ends = rows.ends.map((end) => {
    if (end !== lastEnd) lastText = String(end)
    lastEnd = end
    return lastText
  })
  await sql`
    insert into ratelimit_windows as w (cell, node_id, ends_at, used)
    select cell, ${nodeId}, ends_at, used
      from unnest(${cells}::text::uuid[], ${`{${ends.join()}}`}::text::bigint[],
                  ${`{${rows.used.join()}}`}::text::bigint[]) as c (cell, ends_at, used)
    on conflict (cell, node_id) do update
       set ends_at = excluded.ends_at, used = excluded.used
     where excluded.ends_at > w.ends_at or (excluded.ends_at = w.ends_at and excluded.used > w.used)`
}

async function countOpen(sql: AnySql, range: CellRange, nowMs: number): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*) as count
      from ratelimit_windows
     where cell between ${range.from}::uuid and ${range.to}::uuid and ends_at > ${nowMs}`
  return row?.count ?? 0
}

/** Without an order: sorting by cell, the planner reads and sorts the whole range again for each part of it. */
async function selectOpen(
  sql: AnySql,
  range: CellRange,
  nodeId: string,
  nowMs: number,
): Promise<StoredWindow[]> {
  return await sql<StoredWindow[]>`
    select cell::text, ends_at, used, node_id = ${nodeId} as is_own
      from ratelimit_windows
     where cell between ${range.from}::uuid and ${range.to}::uuid and ends_at > ${nowMs}`
}

async function deleteEnded(
  sql: AnySql,
  { nowMs, afterMs, rowsMax }: { nowMs: number; afterMs: number; rowsMax: number },
): Promise<number> {
  const deleted = await sql`
    delete from ratelimit_windows
     where (cell, node_id) in (
       select cell, node_id from ratelimit_windows
        where ends_at < least(${nowMs}::bigint, floor(extract(epoch from now()) * 1000)::bigint) - ${afterMs}::bigint
        order by ends_at limit ${rowsMax}
       for update skip locked)`
  return deleted.count
}
