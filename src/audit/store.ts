import type { AnySql } from '../db/connect.ts'
import { dropMonths } from '../db/months.ts'
import { firstIdAt } from '../lib/ids.ts'

/** Makes the partition of a month unless it exists, and moves there what came before it did. */
export async function makeAuditMonth(sql: AnySql, at: number): Promise<void> {
  await sql`select make_audit_month(${at})`
}

/** Waits for a moment only, as every change waits with it. @returns the tables dropped. */
export async function dropAuditMonths(sql: AnySql, before: number): Promise<string[]> {
  return await dropMonths(sql, 'audit_events_by_month', { before, waitMs: 200 })
}

/**
 * Removes some of the events before `before` that are in no month: from before there were months, or of one that was never
 * made.
 * @returns whether none is left.
 */
export async function removeUndividedEvents(
  sql: AnySql,
  before: number,
  rowsMax = SLICE_ROWS,
): Promise<boolean> {
  const id = firstIdAt('log', before)
  const older = await sql`
    delete from audit_events_before
     where id in (select id from audit_events_before where id < ${id} order by id limit ${rowsMax})`
  const unplaced = await sql`
    delete from audit_events_unplaced
     where id in (select id from audit_events_unplaced where id < ${id} order by id limit ${rowsMax})`
  return older.count < rowsMax && unplaced.count < rowsMax
}

/** Rows a statement: some milliseconds. */
const SLICE_ROWS = 500
