import type { Page } from '../lib/page.ts'
import type { AnySql } from './connect.ts'
import { idsOfPage, type ListIndex } from './lists.ts'

/** A list that can be searched. */
export type SearchedList = ListIndex & {
  /** Where a search looks; `id` is one of them. */
  columns: readonly string[]
}

/** `next`: the page after this one begins behind that id; null = there is none. */
export type PageOfIds = { ids: string[]; next: string | null }

/**
 * The ids of a page, of the rows in whose columns the text occurs. Upper and lower case are the same, as far as the locale of
 * the database knows them; no character has a meaning. An empty text occurs in all.
 *
 * A search reads the list in the order of its ids, in statements of a few milliseconds, and ends its page early when it has
 * read {@link ROWS_MAX} rows or searched for {@link SEARCH_MS}: the page may even be empty, and the next one goes on. So it
 * costs the same however many rows the list has. No index would find what is inside of words, without an extension of
 * Postgres that is not everywhere.
 */
export async function findPage(
  sql: AnySql,
  list: SearchedList,
  { limit, cursor }: Page,
  text: string,
  { now = () => performance.now() } = {},
): Promise<PageOfIds> {
  if (text === '') return cutIds(await listIds(sql, list, { cursor, rows: limit + 1 }), limit)
  const endsAt = now() + SEARCH_MS
  const ids: string[] = []
  let after = cursor
  for (let read = 0; read < ROWS_MAX; read += SLICE_ROWS) {
    if (read > 0 && now() >= endsAt) break
    const slice = await searchSlice(sql, list, text, { after, rows: limit + 1 - ids.length })
    ids.push(...slice.found)
    if (ids.length > limit || slice.rows < SLICE_ROWS) return cutIds(ids, limit)
    after = slice.last
  }
  return { ids, next: after }
}

const cutIds = (ids: readonly string[], limit: number): PageOfIds => ({
  ids: ids.slice(0, limit),
  next: ids.length > limit ? (ids[limit - 1] ?? null) : null,
})

/** Some 4 µs a row. */
export const SLICE_ROWS = 2_000
/** Rows that one page reads: some 200 ms of one connection. */
export const ROWS_MAX = 50_000
/** Where the database is slow, a page ends sooner. */
export const SEARCH_MS = 500

async function listIds(
  sql: AnySql,
  list: ListIndex,
  page: { cursor: string; rows: number },
): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`select id from ${idsOfPage(sql, list, page)}`
  return rows.map(({ id }) => id)
}

type Slice = { rows: number; last: string; found: string[] }

/** Reads up to {@link SLICE_ROWS} rows. @param page.rows How many to find at most. */
async function searchSlice(
  sql: AnySql,
  list: SearchedList,
  text: string,
  { after, rows }: { after: string; rows: number },
): Promise<Slice> {
  const { table, columns } = list
  const [slice] = await sql<Slice[]>`
    with wanted as (select lower(${text}::text collate "default") as text),
    listed as materialized (
      select row.id, false ${columns.map(
        (column) => sql`or strpos(lower(row.${sql(column)} collate "default"), wanted.text) > 0`,
      )} as is_found
        from ${idsOfPage(sql, list, { cursor: after, rows: SLICE_ROWS })}
       cross join wanted
       cross join lateral (select ${sql([...columns])} from ${sql(table)} where id = page.id offset 0) as row
    )
    select count(*)::integer as rows, coalesce(max(id), '') as last,
           array(select id from listed where is_found order by id limit ${rows}) as found
      from listed`
  return slice ?? { rows: 0, last: '', found: [] }
}
