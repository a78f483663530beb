import type { MonthlyWork } from '../db/months.ts'
import { log } from '../log.ts'
import { dropOldPartitions } from './rollup.ts'

/** Drops months of usage that are older than the setting. */
export const usageRetention = (keepMonths: number): MonthlyWork => ({
  episode: 'usage retention',
  round: async (sql, now) => ({ dropped: await dropOldPartitions(sql, keepMonths, now), isDone: true }),
  onDropped: (tables) =>
    log(
      'info',
      'usage_months_dropped',
      'months of usage older than TOLLGATE_USAGE_RETENTION_MONTHS were dropped',
      { tables },
    ),
  onRecovered: (tables) =>
    log('info', 'usage_retention_recovered', 'old months of usage can be dropped again', { tables }),
  onWaiting: () =>
    log(
      'info',
      'usage_retention_waiting',
      'a long query blocks dropping old months of usage; they are dropped within five minutes after it ends',
    ),
  onFailing: (cause) =>
    log(
      'error',
      'usage_retention_failing',
      'old months of usage could not be dropped; the next attempt is in five minutes',
      { cause },
    ),
})
