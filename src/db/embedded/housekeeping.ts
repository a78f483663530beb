import { Episode } from '../../episodes.ts'
import { log } from '../../log.ts'
import { connect, type DatabaseAddress, type Sql } from '../connect.ts'

/**
 * Checkpoints and vacuum for the embedded database, which lacks the background processes of a real Postgres. Without
 * checkpoints the write-ahead log and the time of recovery grow without end. Without vacuum tables grow, the planner has no
 * statistics, and transaction ids run out.
 */

const EVERY_MS = 30_000
/** Recovery of this much takes well under a second. */
const LOG_BYTES_MAX = 32 * 1024 * 1024

const failing = new Episode('housekeeping')

/** Runs a round every {@link EVERY_MS} until stopped. A failed round is logged; the next one tries again. */
export function startHousekeeping(address: DatabaseAddress): { stop(): void } {
  let isStopped = false
  let isRunning = false
  const timer = setInterval(async () => {
    if (isRunning) return
    isRunning = true
    const sql = connect(address, { connectionsMax: 1 })
    try {
      await vacuumDue(sql, { logBytesMax: LOG_BYTES_MAX })
      const ended = failing.end()
      if (ended !== null)
        log('info', 'housekeeping_recovered', 'vacuum and checkpoint of the embedded database work again', {
          lastedMs: ended.lastedMs,
        })
    } catch (cause) {
      if (!isStopped && failing.begin())
        log(
          'warn',
          'housekeeping_failing',
          'vacuum or checkpoint of the embedded database failed; the next attempt is in 30 seconds',
          {
            cause,
          },
        )
    }
    await sql.end({ timeout: 1 })
    isRunning = false
  }, EVERY_MS)
  timer.unref()
  return {
    stop() {
      isStopped = true
      clearInterval(timer)
    },
  }
}

/**
 * One round. The thresholds for tables are those of autovacuum. Each table is a statement of its own, so that other
 * connections get their turn in between.
 * @param options.logBytesMax A checkpoint is due when more has been logged since the last one.
 */
export async function vacuumDue(
  sql: Sql,
  options: { logBytesMax: number },
): Promise<{ vacuumed: string[]; checkpointed: boolean }> {
  const tables = await sql<{ name: string }[]>`
    select quote_ident(s.schemaname) || '.' || quote_ident(s.relname) as name
      from pg_stat_all_tables s
      join pg_class c on c.oid = s.relid
     where c.relkind in ('r', 'm')
       and (s.n_dead_tup > 50 + 0.2 * greatest(c.reltuples, 0)
         or s.n_mod_since_analyze > 50 + 0.1 * greatest(c.reltuples, 0)
         or age(c.relfrozenxid) > 200000000)
     order by s.relid`
  for (const { name } of tables) await sql.unsafe(`vacuum (analyze) ${name}`)
  const [logged] = await sql<{ bytes: number }[]>`
    select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::int8 as bytes from pg_control_checkpoint()`
  const checkpointed = logged !== undefined && logged.bytes > options.logBytesMax
  if (checkpointed) await sql`checkpoint`
  return { vacuumed: tables.map(({ name }) => name), checkpointed }
}
