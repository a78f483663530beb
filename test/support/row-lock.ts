import type { Answer, TestServer } from './server.ts'

/**
 * Makes calls overlap: locks rows of a table until every call waits for one of them. A call that reads without a lock
 * before it changes something has read by then. Needs a real Postgres, as the embedded one runs one transaction at a time.
 */
export async function atOnce(
  { server: { deps } }: TestServer,
  { table, ids }: { table: 'keys' | 'workspaces'; ids: readonly string[] },
  calls: readonly (() => Promise<Answer>)[],
): Promise<Answer[]> {
  const answers = await deps.database.write(async (tx) => {
    await tx`select 1 from ${tx(table)} where id = any(${ids as string[]}::text[]) order by id for update`
    const under = Promise.all(calls.map((call) => call()))
    for (let waiting = 0; waiting < calls.length; await Bun.sleep(5)) {
      await tx`select pg_stat_clear_snapshot()`
      const [row] = await tx<{ waiting: number }[]>`
        select count(*)::integer as waiting from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`
      waiting = row?.waiting ?? 0
    }
    return { under } // wrapped, so that it is not awaited here: the calls end only after this transaction
  })
  return await answers.under
}
