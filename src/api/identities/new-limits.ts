import { newId } from '../../lib/ids.ts'
import type { IdentityLimit, IdentityLimitRow } from './store.ts'

/** Rows for new limits. Their ids ascend in the order of the list, so reading by id keeps that order. */
export function newLimits(limits: readonly IdentityLimit[]): IdentityLimitRow[] {
  const ids = limits.map(() => newId('rl')).sort()
  return limits.map(({ name, limit, durationMs }, index) => ({
    id: ids[index] as string, // one id for each limit
    name,
    limit,
    durationMs,
  }))
}
