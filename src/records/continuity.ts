import type { AnySql } from '../db/connect.ts'

/**
 * Tells when what answers is no longer the database that this process used until now, but another copy of it or an older state,
 * with the same id:
 *
 * - a dump was restored: the Postgres, the database or its tables are others (`database_place` in sql/0048);
 * - the database went back in time, by point-in-time recovery, a snapshot of its disk, or a standby that took over and lacked the last
 *   writes: then it does not know the last mark that it answered to this process.
 *
 * A standby that lacks nothing goes unnoticed, and so does an answer that was lost on its way.
 */
export class Continuity {
  readonly #processId: string
  #place: string | null = null
  #sent = 0
  /** The highest mark that was answered. */
  #answered = 0

  constructor(processId: string) {
    this.#processId = processId
  }

  /**
   * Writes the next mark.
   * @returns what shows that the database was replaced since the last call; null = it was not, as far as can be told.
   * @throws the driver's error when it does not answer or takes no writes. Nothing is known then.
   */
  async check(sql: AnySql): Promise<Replaced | null> {
    const mark = ++this.#sent
    const answer = await writeMark(sql, this.#processId, mark).catch((cause: unknown) => {
      // Tables of before sql/0048.
      if (this.#answered > 0 && isUnknown(cause)) return null
      throw cause
    })
    const replaced = answer === null ? 'older tables' : this.#compare(answer)
    this.#place = answer?.place ?? null
    this.#answered = answer === null ? 0 : mark
    return replaced
  }

  #compare({ place, markWas }: { place: string; markWas: number | null }): Replaced | null {
    if (this.#place !== null && place !== this.#place) return 'another copy'
    return this.#answered > 0 && (markWas ?? 0) < this.#answered ? 'older state' : null
  }

  /** After the last check: removes the row. */
  async end(sql: AnySql): Promise<void> {
    await sql`delete from server_marks where process_id = ${this.#processId}`
  }
}

export type Replaced = 'another copy' | 'older state' | 'older tables'

async function writeMark(
  sql: AnySql,
  processId: string,
  mark: number,
): Promise<{ place: string; markWas: number | null }> {
  const [row] = await sql<{ place: string; markWas: number | null }[]>`
    with was as materialized (
      select mark from server_marks where process_id = ${processId}
    ), marked as (
      insert into server_marks (process_id, mark, marked_at)
      values (${processId}, ${mark}, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
      on conflict (process_id) do update set mark = excluded.mark, marked_at = excluded.marked_at
    )
    select database_place() as place, (select mark from was) as "markWas"`
  if (row === undefined) throw new Error('a query without a table has a row')
  return row
}

/** Rows of processes that were killed. One that was away for longer takes the database for an older one, which costs little. */
export async function deleteOldMarks(sql: AnySql): Promise<void> {
  await sql`
    delete from server_marks
     where marked_at < floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${KEPT_MS}::bigint`
}

/** How many other processes marked the database within {@link MARKED_MS}: those that run and reach it. */
export async function countOtherProcesses(sql: AnySql, processId: string): Promise<number> {
  const [row] = await sql<{ processes: number }[]>`
    select count(*)::integer as processes from server_marks
     where process_id <> ${processId}
       and marked_at >= floor(extract(epoch from clock_timestamp()) * 1000)::bigint - ${MARKED_MS}::bigint`
  return row?.processes ?? 0
}

/** Three times as long as between two marks. */
const MARKED_MS = 6_000
const KEPT_MS = 86_400_000

/** No such table or function. */
const isUnknown = (cause: unknown) =>
  cause instanceof Error && 'code' in cause && (cause.code === '42P01' || cause.code === '42883')
