import { isAddressListed } from '../lib/address.ts'
import type { ConfiguredLimit, KeyRecord } from './key-record.ts'
import { holdsPermissions, type PermissionQuery } from './permission-query.ts'

/** Why a key that was found may not be used; null = nothing speaks against it so far. In the order of the contract. */
export function checkState(
  record: KeyRecord,
  { apiId, caller }: { apiId: string | null; caller: { clientAddress(): string | null } },
  now: number,
): 'DISABLED' | 'FORBIDDEN' | 'EXPIRED' | null {
  if (!record.enabled) return 'DISABLED'
  if (apiId !== null && apiId !== record.apiId) return 'FORBIDDEN'
  if (record.expiresAt !== null && record.expiresAt < now) return 'EXPIRED'
  if (record.ipWhitelist !== null) {
    const address = caller.clientAddress()
    if (address === null || !isAddressListed(address, record.ipWhitelist)) return 'FORBIDDEN'
  }
  return null
}

export const checkPermissions = (
  record: KeyRecord,
  query: PermissionQuery | null,
): 'INSUFFICIENT_PERMISSIONS' | null =>
  query === null || holdsPermissions(record.permissions, query) ? null : 'INSUFFICIENT_PERMISSIONS'

/** A limit named by a verification. Both `limit` and `durationMs` given = used as they are, configured or not. */
export type RequestedLimit = {
  name: string
  cost: number
  limit: number | null
  durationMs: number | null
  /** Passed over, not refused, where it is not configured. */
  isOptional: boolean
}

export type SelectedLimit = { name: string; cost: number; limit: number; durationMs: number; ownerId: string }

/**
 * The limits a verification counts: every auto-applied one with cost 1, then the requested ones in their order. Naming
 * a limit again replaces its cost, it is never counted twice. An ad-hoc limit counts for the identity when there is one.
 * @returns a requested limit that is neither configured nor fully given, as `missing`.
 */
export function selectLimits(
  record: KeyRecord,
  requested: readonly RequestedLimit[],
): { selected: readonly SelectedLimit[] } | { missing: string } {
  if (requested.length === 0) return record.limits.length === 0 ? NONE : { selected: autoApplied(record) }
  const selected = new Map<string, SelectedLimit>()
  for (const limit of record.limits) if (limit.autoApply) selected.set(limit.name, select(limit, 1))
  for (const { name, cost, limit, durationMs, isOptional } of requested) {
    if (limit !== null && durationMs !== null) {
      selected.set(name, { name, cost, limit, durationMs, ownerId: record.identity?.id ?? record.id })
      continue
    }
    const configured = record.limits.find((candidate) => candidate.name === name)
    if (configured === undefined && isOptional) continue
    if (configured === undefined) return { missing: name }
    selected.set(name, select(configured, cost))
  }
  return { selected: [...selected.values()] }
}

/** Of root keys mostly, which come with every call: not made anew for each. */
const NONE = { selected: [] }

/** What nearly every verification counts; their names differ (`store.ts`). */
function autoApplied({ limits }: KeyRecord): SelectedLimit[] {
  const selected: SelectedLimit[] = []
  for (const limit of limits) if (limit.autoApply) selected.push(select(limit, 1))
  return selected
}

const select = ({ name, limit, durationMs, ownerId }: ConfiguredLimit, cost: number): SelectedLimit => ({
  name,
  cost,
  limit,
  durationMs,
  ownerId,
})
