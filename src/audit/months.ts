import { type MonthlyWork, oldestMonthKept } from '../db/months.ts'
import { startOfMonth } from '../lib/buckets.ts'
import { log } from '../log.ts'
import { dropAuditMonths, makeAuditMonth, removeUndividedEvents } from './store.ts'

/**
 * Looks after the months of the audit log (sql/0022): makes the next one ahead of time, and drops those older than the
 * operator wants to keep. Events from before the log had months are removed in small statements.
 * @param keepMonths Null = all.
 */
export const auditMonths = (keepMonths: number | null): MonthlyWork => ({
  episode: 'audit retention',
  async round(sql, now) {
    await makeAuditMonth(sql, now)
    await makeAuditMonth(sql, startOfMonth(now, 1))
    if (keepMonths === null) return { dropped: [], isDone: true }
    const before = await oldestMonthKept(sql, keepMonths, now)
    const dropped = await dropAuditMonths(sql, before)
    const endsAt = Date.now() + REMOVING_MS
    let isDone = false
    while (!isDone && Date.now() < endsAt) isDone = await removeUndividedEvents(sql, before)
    return { dropped, isDone }
  },
  onDropped: (tables) =>
    log(
      'info',
      'audit_months_dropped',
      'months of the audit log older than TOLLGATE_AUDIT_RETENTION_MONTHS were dropped',
      { tables },
    ),
  onRecovered: (tables) =>
    log('info', 'audit_retention_recovered', 'months of the audit log can be created and dropped again', {
      tables,
    }),
  onWaiting: () =>
    log(
      'info',
      'audit_retention_waiting',
      'a long query blocks changing the months of the audit log; they are created and dropped within five minutes after it ends',
    ),
  onFailing: (cause) =>
    log(
      'error',
      'audit_retention_failing',
      'months of the audit log could not be created or dropped; the next attempt is in five minutes',
      { cause },
    ),
})

/** For the removal of one round. What is left waits for the next look. */
const REMOVING_MS = 30_000
