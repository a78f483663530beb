import type { Sql } from '../../src/db/connect.ts'
import { startOfMonth } from '../../src/lib/buckets.ts'
import { HOUR_MS } from '../../src/lib/clock.ts'
import { firstIdAt } from '../../src/lib/ids.ts'

/** Starts of these many months of the past, oldest first; the last has ended. */
export const pastMonths = (count: number): number[] =>
  Array.from({ length: count }, (_, index) => startOfMonth(Date.now(), index - count))

/**
 * Fills past months of the audit log, each with so many events about few things, within seconds: the indexes are built
 * when the rows are there. Workspace `ws_1`, by turns:
 *
 * | API | events | root key |
 * |---|---|---|
 * | api_a | key.create, key.update | key_1 |
 * | api_b, in the last month api_new | key.update, key.delete | key_2 |
 *
 * One event in a thousand names a key of its own. Ids and times are real ones, hour by hour.
 */
export async function fillAuditMonths(sql: Sql, months: readonly number[], rows: number): Promise<void> {
  await sql`insert into workspaces (id, name, created_at) values ('ws_1', 'one', 0)`
  for (const month of months) {
    const api = month === months.at(-1) ? 'api_new' : 'api_b'
    const hours = (startOfMonth(month, 1) - month) / HOUR_MS
    const heads = Array.from({ length: hours }, (_, hour) =>
      firstIdAt('log', month + hour * HOUR_MS + 1000).slice(0, 12),
    )
    const part = sql(`audit_events_${new Date(month).toISOString().slice(0, 7).replace('-', '')}`)
    await sql`create table ${part} (like audit_events_by_month including defaults)`
    await sql`
      insert into ${part} (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
      select head || lpad(n::text, 8, '0'), 'ws_1', (array['key.create', 'key.update', 'key.update', 'key.delete'])[1 + n % 4],
             'key', (array['key_1', 'key_1', 'key_2', 'key_2'])[1 + n % 4],
             case when n % 1000 = 0 then jsonb_build_array(jsonb_build_object('type', 'key', 'id', 'key_of_' || head || n)) else '[]' end
               || jsonb_build_array(jsonb_build_object('type', 'api', 'id', case when n % 4 < 2 then 'api_a' else ${api} end)),
             '', ${month}::bigint + hour * ${HOUR_MS}::bigint + 1000
        from generate_series(0, ${rows - 1}::integer) as n
        join unnest(${heads}::text[]) with ordinality as hours (head, number) on number = n / ${Math.ceil(rows / hours)}::integer + 1
        cross join lateral (select number - 1) as at (hour)
       order by n`
    await sql`alter table ${part} add primary key (id)`
    await sql`
      alter table audit_events_by_month attach partition ${part}
      for values from (${sql.unsafe(String(month))}) to (${sql.unsafe(String(startOfMonth(month, 1)))})`
  }
  await sql`vacuum analyze audit_events`
}
