import type { AnySql } from '../../src/db/connect.ts'

type Plan = {
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  Plans?: Plan[]
}

/** Runs each statement under `explain analyze`, and returns how many rows of a table it read, in all its partitions. */
export function explaining(sql: AnySql) {
  let plan: Plan | undefined
  const explained = new Proxy(sql, {
    apply: (_, self, args) => {
      const query: unknown = Reflect.apply(sql, self, args)
      if (!(query instanceof Promise)) return query
      const explain = async (): Promise<never[]> => {
        const [row] = await sql<
          { 'QUERY PLAN': [{ Plan: Plan }] }[]
        >`explain (analyze, format json) ${query as never}` // the driver treats a query that has not run as a fragment
        plan = row?.['QUERY PLAN'][0].Plan
        return []
      }
      return Object.assign(query, {
        // biome-ignore lint/suspicious/noThenProperty: fragments are never awaited, so what is awaited is the whole statement
        then: (...told: Parameters<Promise<never[]>['then']>) => explain().then(...told),
      })
    },
  })
  const rowsOf = (table: string, { Plans = [], ...node }: Plan): number => {
    const isIts = node['Relation Name']?.startsWith(table) ?? false
    const read = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops']
    return Plans.reduce((sum, child) => sum + rowsOf(table, child), isIts ? read : 0)
  }
  return {
    sql: explained,
    rowsRead: (table: string) => {
      if (plan === undefined) throw new Error('no statement was run')
      return rowsOf(table, plan)
    },
  }
}
