import { newId } from '../../lib/ids.ts'
import type { IdentityLimit, IdentityLimitRow } from './store.ts'

/** Rows for new limits. Their ids sort in the order of the list, so that they are read in it. */
export function newLimits(limits: readonly IdentityLimit[]): IdentityLimitRow[] {
  const ids = limits.map(() => newId('rl')).sort()
  return limits.map(({ name, limit, durationMs }, index) => ({
    id: ids[index] as string, // as many as there are limits
    name,
    limit,
    durationMs,
  }))
}
