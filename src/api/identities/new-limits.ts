import { newId } from '../../lib/ids.ts'
import type { IdentityLimit, IdentityLimitRow } from './store.ts'

/** A limit as a call wants it. `autoApply: null` = as it is; of a new limit, false. */
export type WantedLimit = Omit<IdentityLimit, 'autoApply'> & { autoApply: boolean | null }

/** Rows for new limits. Their ids ascend in the order of the list, so reading by id keeps that order. */
export function newLimits(limits: readonly WantedLimit[]): IdentityLimitRow[] {
  const ids = limits.map(() => newId('rl')).sort()
  return limits.map(({ name, limit, durationMs, autoApply }, index) => ({
    id: ids[index] as string, // one id for each limit
    name,
    limit,
    durationMs,
    autoApply: autoApply ?? false,
  }))
}
