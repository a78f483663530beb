import { type AnySql, connect, type DatabaseAddress, type Sql } from '../../db/connect.ts'
import { requireDatabase } from '../../db/settings.ts'
import { systemTimers, within } from '../../lib/timers.ts'
import { SEGMENT_FORMAT, type Segment } from './segment.ts'

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
  /** See `owners.ts`. */
  owners: number[]
}

/** Cells whose first word, unsigned, lies from `first` to `last`, both included. */
export type HashRange = { first: number; last: number }

/** What there is of a node: how many rows, and its segments in the order they were written. */
export type StoredNode = {
  nodeId: string
  rows: number
  segments: { id: number; pass: number; bytes: number }[]
}

/** `format`: how `cells` are packed (`segment.ts`). */
export type StoredSegment = { format: number; cells: Uint8Array }

/** `cell`: a uuid as text. */
export type StoredRow = { cell: string; ends_at: number; used: number; owner: number }

/**
 * The windows in Postgres, in segments and rows, over one connection. No call waits longer than `STATEMENT_MS`, `list` not
 * longer than `LIST_MS`: after that, and after any other failure, the connection is dropped and the next call opens a new
 * one, which first asks whether it leads to the same database: windows given to an empty standby would be taken for written.
 * A write that was given up may still be carried out later; counts are absolute and never go back, so that is harmless.
 */
export class WindowStore {
  private sql: Sql | null = null
  /** The last connection that was found to lead to the right database. */
  private checked: Sql | null = null
  /** How many there have been: after each, another server may answer that lacks the last of what was written before. */
  connections = 0
  constructor(private readonly address: DatabaseAddress) {}

  /** Writes what a node has counted, once more: what is stored of the same windows stays. */
  async writeSegment(nodeId: string, pass: number, segment: Segment): Promise<void> {
    await this.run((sql) => insertSegment(sql, nodeId, pass, segment))
  }

  /** The same as rows: the same window keeps the higher count, a newer window replaces an older. */
  async write(nodeId: string, rows: WindowRows): Promise<void> {
    if (rows.ends.length === 0) return
    await this.run((sql) => upsertWindows(sql, nodeId, rows))
  }

  /** What there is, by node, of windows open at `nowMs` whose cell lies in the range. Segments may hold others too. */
  async list(hashes: HashRange, nowMs: number): Promise<StoredNode[]> {
    return await this.run((sql) => selectNodes(sql, hashes, nowMs), LIST_MS)
  }

  /** Rows of a node. Ask for ranges of some thousand, or it may not be done in time. */
  async readRows(hashes: HashRange, nodeId: string, nowMs: number): Promise<StoredRow[]> {
    return await this.run((sql) => selectRows(sql, hashes, nodeId, nowMs))
  }

  /** Ask for a megabyte or so. @returns fewer where some are superseded and deleted by now. */
  async readSegments(ids: number[]): Promise<StoredSegment[]> {
    return await this.run((sql) => selectSegments(sql, ids))
  }

  /**
   * Deletes segments that a node wrote in passes before that one, up to `rowsMax`. Those that hold cells outside of the
   * range too, as after a change of the number of shards, stay until their windows are over.
   * @returns whether there are no more.
   */
  async deleteSuperseded(which: {
    nodeId: string
    hashes: HashRange
    pass: number
    rowsMax: number
  }): Promise<boolean> {
    return await this.run(async (sql) => (await deleteSuperseded(sql, which)) < which.rowsMax)
  }

  /**
   * Deletes up to `rowsMax` rows, and a hundredth as many segments, of windows of any node that ended over `afterMs` before
   * `nowMs`. Where the database's clock is behind it, that one counts: a clock set wrong must not cost what others are
   * counting.
   * @returns whether there are no more.
   */
  async deleteEnded(which: { nowMs: number; afterMs: number; rowsMax: number }): Promise<boolean> {
    const segmentsMax = Math.ceil(which.rowsMax / 100)
    return await this.run(async (sql) => {
      const rows = await deleteEnded(sql, 'ratelimit_windows', which)
      const segments = await deleteEnded(sql, 'ratelimit_segments', { ...which, rowsMax: segmentsMax })
      return rows < which.rowsMax && segments < segmentsMax
    })
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
    this.connections++
    return sql
  }

  private async run<T>(statement: (sql: Sql) => Promise<T>, timeoutMs = STATEMENT_MS): Promise<T> {
    const sql = this.sql ?? this.open()
    try {
      return await within(systemTimers, timeoutMs, this.ask(sql, statement))
    } catch (cause) {
      void this.close().catch(() => {}) // it is broken already; what broke it is the error to report
      throw new Error('the window store is not available', { cause })
    }
  }

  private async ask<T>(sql: Sql, statement: (sql: Sql) => Promise<T>): Promise<T> {
    if (this.checked !== sql) await requireDatabase(sql, this.address)
    this.checked = sql
    return await statement(sql)
  }
}

const STATEMENT_MS = 5_000
/** It looks at all there are, at a start. */
const LIST_MS = 60_000

async function insertSegment(sql: AnySql, nodeId: string, pass: number, segment: Segment): Promise<void> {
  await sql`
    insert into ratelimit_segments (node_id, pass, first_hash, last_hash, ends_at, format, cells)
    values (${nodeId}, ${pass}, ${segment.firstHash}, ${segment.lastHash}, ${segment.endsAt}, ${SEGMENT_FORMAT},
            decode(${segment.cells}, 'hex'))`
}

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
    insert into ratelimit_windows as w (cell, node_id, ends_at, used, owner)
    select cell, ${nodeId}, ends_at, used, owner
      from unnest(${cells}::text::uuid[], ${`{${ends.join()}}`}::text::bigint[],
                  ${`{${rows.used.join()}}`}::text::bigint[],
                  ${`{${rows.owners.join()}}`}::text::integer[]) as c (cell, ends_at, used, owner)
    on conflict (cell, node_id) do update
       set ends_at = excluded.ends_at, used = excluded.used, owner = excluded.owner
     where excluded.ends_at > w.ends_at or (excluded.ends_at = w.ends_at and excluded.used > w.used)`
}

async function selectNodes(sql: AnySql, hashes: HashRange, nowMs: number): Promise<StoredNode[]> {
  const { from, to } = cellsOf(hashes)
  const nodes = new Map<string, StoredNode>()
  const nodeOf = (nodeId: string) => {
    const node = nodes.get(nodeId) ?? { nodeId, rows: 0, segments: [] }
    nodes.set(nodeId, node)
    return node
  }
  const rows = await sql<{ node_id: string; count: number }[]>`
    select node_id, count(*) as count
      from ratelimit_windows
     where cell between ${from}::uuid and ${to}::uuid and ends_at > ${nowMs}
     group by node_id`
  for (const { node_id, count } of rows) nodeOf(node_id).rows = count
  const segments = await sql<{ node_id: string; id: number; pass: number; bytes: number }[]>`
    select node_id, id, pass, octet_length(cells) as bytes
      from ratelimit_segments
     where first_hash <= ${hashes.last} and last_hash >= ${hashes.first} and ends_at > ${nowMs}
     order by id`
  for (const { node_id, ...segment } of segments) nodeOf(node_id).segments.push(segment)
  return [...nodes.values()]
}

/** Without an order: sorting by cell, the planner reads and sorts the whole range again for each part of it. */
async function selectRows(
  sql: AnySql,
  hashes: HashRange,
  nodeId: string,
  nowMs: number,
): Promise<StoredRow[]> {
  const { from, to } = cellsOf(hashes)
  return await sql<StoredRow[]>`
    select cell::text, ends_at, used, owner
      from ratelimit_windows
     where cell between ${from}::uuid and ${to}::uuid and node_id = ${nodeId} and ends_at > ${nowMs}`
}

async function selectSegments(sql: AnySql, ids: number[]): Promise<StoredSegment[]> {
  return await sql<StoredSegment[]>`
    select format, cells from ratelimit_segments where id = any(${`{${ids.join()}}`}::text::bigint[]) order by id`
}

/** The first and the last cell of a range, as hex digits. */
function cellsOf({ first, last }: HashRange): { from: string; to: string } {
  const hex8 = (value: number) => value.toString(16).padStart(8, '0')
  return { from: hex8(first) + '0'.repeat(24), to: hex8(last) + 'f'.repeat(24) }
}

async function deleteSuperseded(
  sql: AnySql,
  which: { nodeId: string; hashes: HashRange; pass: number; rowsMax: number },
): Promise<number> {
  const { nodeId, hashes, pass, rowsMax } = which
  const deleted = await sql`
    delete from ratelimit_segments
     where id in (
       select id from ratelimit_segments
        where node_id = ${nodeId} and pass < ${pass} and first_hash >= ${hashes.first} and last_hash <= ${hashes.last}
        limit ${rowsMax})`
  return deleted.count
}

async function deleteEnded(
  sql: AnySql,
  table: 'ratelimit_windows' | 'ratelimit_segments',
  { nowMs, afterMs, rowsMax }: { nowMs: number; afterMs: number; rowsMax: number },
): Promise<number> {
  const key = table === 'ratelimit_windows' ? sql`cell, node_id` : sql`id`
  const deleted = await sql`
    delete from ${sql(table)}
     where (${key}) in (
       select ${key} from ${sql(table)}
        where ends_at < least(${nowMs}::bigint, floor(extract(epoch from now()) * 1000)::bigint) - ${afterMs}::bigint
        order by ends_at limit ${rowsMax}
       for update skip locked)`
  return deleted.count
}
