import type { AnySql } from '../../src/db/connect.ts'

type Node = {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  'Shared Hit Blocks'?: number
  'Shared Read Blocks'?: number
  Plans?: Node[]
}

/**
 * Runs each statement under `explain`, and describes how the last one ran. Its result is always empty.
 *
 * A table includes its partitions, such as `audit_events_202611` and `audit_events_before`.
 */
export function explaining(sql: AnySql) {
  let plan: Node | undefined
  const explained = new Proxy(sql, {
    apply: (_, self, args) => {
      const query: unknown = Reflect.apply(sql, self, args)
      if (!(query instanceof Promise)) return query
      const explain = async (): Promise<never[]> => {
        const [row] = await sql<
          { 'QUERY PLAN': [{ Plan: Node }] }[]
        >`explain (analyze, buffers, timing off, format json) ${query as never}` // a query not run yet is a fragment to the driver
        plan = row?.['QUERY PLAN'][0].Plan
        return []
      }
      return Object.assign(query, {
        // biome-ignore lint/suspicious/noThenProperty: fragments are never awaited, so what is awaited is the whole statement
        then: (...told: Parameters<Promise<never[]>['then']>) => explain().then(...told),
      })
    },
  })
  const top = () => {
    if (plan === undefined) throw new Error('no statement was run')
    return plan
  }
  const nodesOf = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)]
  const nodesReading = (table: string) => {
    const isOfTable = new RegExp(`^${table}(_[0-9]+|_before|_unplaced|_default)?$`)
    return nodesOf(top()).filter(
      (node) => node['Node Type'] !== 'ModifyTable' && isOfTable.test(node['Relation Name'] ?? ''),
    )
  }
  return {
    sql: explained,
    /** Rows read from a table, including those that a condition removed. */
    rowsRead: (table: string) =>
      nodesReading(table).reduce((sum, node) => {
        const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
        return sum + (node['Actual Rows'] + removed) * node['Actual Loops']
      }, 0),
    /** How a table was read: kinds of nodes with their indexes, for example `Index Scan keys_pkey`. */
    waysTo: (table: string) => [
      ...new Set(
        nodesReading(table).map((node) => `${node['Node Type']} ${node['Index Name'] ?? ''}`.trimEnd()),
      ),
    ],
    /** Pages of 8 kB that the whole statement read, of tables and indexes. */
    pagesRead: () => (top()['Shared Hit Blocks'] ?? 0) + (top()['Shared Read Blocks'] ?? 0),
  }
}
