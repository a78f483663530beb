import type { AnySql } from './connect.ts'

/** An index that gives the rows of a list in order. */
export type ListIndex = {
  table: string
  /** Its columns before the id, each with the value of the list. */
  of: Readonly<Record<string, string>>
  /** Its condition, of a partial index. */
  where?: string
}

/**
 * The ids of a page, as the table `page (id)` of a statement: up to `rows` of the list after `cursor`. It costs the same
 * however many rows are before, behind and beside it. [Decision](../../docs/decisions/0022-lists-and-totals.md)
 */
export const idsOfPage = (
  sql: AnySql,
  { table, of, where = 'true' }: ListIndex,
  { cursor, rows }: { cursor: string; rows: number },
) => sql`
  ids_of_page(${table}, ${Object.keys(of)}::text[], ${Object.values(of)}::text[], ${where}, ${cursor}, ${rows}) as page (id)`

/** Ids of any `rows` rows with these values, in no order, as the table `found (id)` of a statement. Reads no others. */
export const someIds = (sql: AnySql, { table, of, where = 'true' }: ListIndex, rows: number) => sql`
  ids_of_page(${table}, ${Object.keys(of)}::text[], ${Object.values(of)}::text[], ${where}, null, ${rows}) as found (id)`

/** Live rows of a kind: those of a workspace, or in one place of it. Kept by the writes (sql/0012, sql/0021). */
export async function totalOf(
  sql: AnySql,
  workspaceId: string,
  kind:
    | 'apis'
    | 'identities'
    | 'namespaces'
    | 'rootKeys'
    | 'workspaces'
    | `keys/${string}`
    | `overrides/${string}`,
): Promise<number> {
  const [row] = await sql<{ total: number }[]>`select total_of(${workspaceId}, ${kind}) as total`
  return row?.total ?? 0
}
