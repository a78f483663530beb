import type { AnySql } from '../../src/db/connect.ts'

/**
 * All rows of a workspace: table → its rows as text, in order. For comparison with an earlier state.
 * @param options.withoutUse Leave out usage and credits, which any holder of a key may change by verifying it.
 */
export async function rowsOfWorkspace(
  sql: AnySql,
  workspaceId: string,
  { withoutUse }: { withoutUse: boolean },
): Promise<Record<string, string[]>> {
  const tables = await sql<{ name: string; columns: string[] }[]>`
    select c.table_name as name, array_agg(c.column_name::text) as columns
      from information_schema.columns c
      join pg_class p on p.relname = c.table_name and p.relkind in ('r', 'p') and not p.relispartition
     where c.table_schema = 'public'
       and c.column_name in ('workspace_id', 'for_workspace_id')
     group by 1
     order by 1`
  const rows: Record<string, string[]> = {}
  for (const { name, columns } of tables) {
    if (withoutUse && name.startsWith('usage')) continue
    const owner = columns.includes('for_workspace_id')
      ? sql`workspace_id = ${workspaceId} or for_workspace_id = ${workspaceId}`
      : sql`workspace_id = ${workspaceId}`
    const used = withoutUse ? ['remaining', 'updated_at', 'last_refill_at'] : []
    const found = await sql<{ row: string }[]>`
      select (to_jsonb(t) - ${used}::text[])::text as row from ${sql(name)} t where ${owner} order by 1`
    rows[name] = found.map(({ row }) => row)
  }
  const [workspace] = await sql<{ row: string }[]>`
    select to_jsonb(t)::text as row from workspaces t where id = ${workspaceId}`
  rows.workspaces = workspace === undefined ? [] : [workspace.row]
  return rows
}
