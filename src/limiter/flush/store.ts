import { type AnySql, connect, type DatabaseAddress, type Sql } from '../../db/connect.ts'
import { requireDatabase } from '../../db/settings.ts'
import { systemTimers, within } from '../../lib/timers.ts'
import { SEGMENT_FORMAT, type Segment } from './segment.ts'

/** Cells whose first word, unsigned, lies from `first` to `last`, both included. */
export type HashRange = { first: number; last: number }

/** What is stored of a node: how many rows, and its segments in the order they were written. */
export type StoredNode = {
  nodeId: string
  rows: number
  segments: { id: number; generation: number; bytes: number }[]
}

/** `format`: how `cells` are packed (`segment.ts`). */
export type StoredSegment = { format: number; cells: Uint8Array }

/** `cell`: a uuid as text. */
export type StoredRow = { cell: string; ends_at: number; used: number; owner: number }

/**
 * The windows in Postgres, over one connection. They are written as segments; rows of releases up to 0.1 are read and
 * deleted (docs/decisions/0010).
 *
 * A call waits `STATEMENT_MS` at most, `list` `LIST_MS`. After that, and after any other failure, the connection is dropped.
 * The next call opens a new one and first asks whether it leads to the same database: windows given to an empty standby
 * would be taken for written. A write that was given up may still be carried out later. That is harmless: counts are
 * absolute.
 */
export class WindowStore {
  private sql: Sql | null = null
  /** The last connection that was found to lead to the right database. */
  private checked: Sql | null = null
  /** How many connections there have been. A new one may lead to a standby that lacks what was written last. */
  connections = 0
  /**
   * The most segments for one `writeSegments`. Half a megabyte takes this thread 0.5 ms to send. Embedded, it would hold up all
   * other statements for 20 ms, and there is no disk to wait for.
   */
  readonly segmentsMax: number

  constructor(private readonly address: DatabaseAddress) {
    this.segmentsMax = address.kind === 'embedded' ? 4 : 16
  }

  /** Adds segments in one statement: all or none. What is stored of the same windows stays. */
  async writeSegments(nodeId: string, generation: number, segments: readonly Segment[]): Promise<void> {
    await this.run((sql) => insertSegments(sql, nodeId, generation, segments))
  }

  /** What is stored, by node, of windows open at `nowMs` whose name lies in the range. Segments may hold others too. */
  async list(hashes: HashRange, nowMs: number): Promise<StoredNode[]> {
    return await this.run((sql) => selectNodes(sql, hashes, nowMs), LIST_MS)
  }

  /** Rows of a node, as releases up to 0.1 wrote them. Ask for ranges of some thousand, or it may not be done in time. */
  async readRows(hashes: HashRange, nodeId: string, nowMs: number): Promise<StoredRow[]> {
    return await this.run((sql) => selectRows(sql, hashes, nodeId, nowMs))
  }

  /** Ask for a megabyte or so. @returns fewer when some are superseded and deleted by now. */
  async readSegments(ids: number[]): Promise<StoredSegment[]> {
    return await this.run((sql) => selectSegments(sql, ids))
  }

  /**
   * Deletes up to `rowsMax` segments that a node wrote in generations before that one, but none of a newer release, which is
   * not superseded: it was not read. A segment with cells outside of the
   * range, as after a change of the number of shards, stays until its windows are over.
   * @returns whether there are no more.
   */
  async deleteSuperseded(which: {
    nodeId: string
    hashes: HashRange
    generation: number
    rowsMax: number
  }): Promise<boolean> {
    return await this.run(async (sql) => (await deleteSuperseded(sql, which)) < which.rowsMax)
  }

  /**
   * Deletes up to `rowsMax` rows, and a hundredth as many segments, of any node whose windows ended over `afterMs` before
   * `nowMs`, or before the database's time if that is earlier: a clock set wrong must not delete what others are counting.
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

/** The cells of all go as one text: the driver would copy the texts of an array character by character. */
async function insertSegments(
  sql: AnySql,
  nodeId: string,
  generation: number,
  segments: readonly Segment[],
): Promise<void> {
  const list = (each: (segment: Segment, i: number) => number) => `{${segments.map(each).join()}}`
  const from = [1]
  for (const { cells } of segments) from.push((from.at(-1) ?? 1) + cells.length / 2)
  await sql`
    with given as materialized (select decode(${segments.map(({ cells }) => cells).join('')}, 'hex') as cells)
    insert into ratelimit_segments (node_id, pass, first_hash, last_hash, ends_at, format, cells)
    select ${nodeId}, ${generation}, s.first_hash, s.last_hash, s.ends_at, ${SEGMENT_FORMAT},
           substring(given.cells from s.at for s.bytes)
      from given, unnest(
        ${list(({ firstHash }) => firstHash)}::text::bigint[],
        ${list(({ lastHash }) => lastHash)}::text::bigint[],
        ${list(({ endsAt }) => endsAt)}::text::bigint[],
        ${list((_, i) => from[i] ?? 1)}::text::integer[],
        ${list(({ cells }) => cells.length / 2)}::text::integer[]
      ) as s (first_hash, last_hash, ends_at, at, bytes)`
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
  const segments = await sql<{ node_id: string; id: number; generation: number; bytes: number }[]>`
    select node_id, id, pass as generation, octet_length(cells) as bytes
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
  which: { nodeId: string; hashes: HashRange; generation: number; rowsMax: number },
): Promise<number> {
  const { nodeId, hashes, generation, rowsMax } = which
  const deleted = await sql`
    delete from ratelimit_segments
     where id in (
       select id from ratelimit_segments
        where node_id = ${nodeId} and pass < ${generation} and format <= ${SEGMENT_FORMAT} and first_hash >= ${hashes.first} and last_hash <= ${hashes.last}
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
