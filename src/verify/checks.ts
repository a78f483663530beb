import { isAddressListed } from '../lib/address.ts'
import type { ConfiguredLimit, KeyRecord } from './key-record.ts'
import { holdsPermissions, type PermissionQuery } from './permission-query.ts'

/** Checks the key's own state. @returns why the key may not be used, or null. The order of checks is contract. */
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

/**
 * A limit that a verification names. With both `limit` and `durationMs` these values apply, even over a configured limit.
 */
export type RequestedLimit = {
  name: string
  cost: number
  limit: number | null
  durationMs: number | null
  /** True: ignored when neither the key nor its identity has it. False: refused then. */
  isOptional: boolean
}

/** A limit that a verification counts. `id` is empty when only the request defines it. */
export type SelectedLimit = ConfiguredLimit & { cost: number }

/**
 * The limits that a verification counts: every auto-applied one with cost 1, then the requested ones in their order. Naming
 * an auto-applied limit replaces its cost; no limit is counted twice.
 * @param ownerId Of limits that the request defines.
 * @returns `missing` = a requested limit that is neither configured nor fully given.
 */
export function selectLimits(
  record: KeyRecord,
  requested: readonly RequestedLimit[],
  ownerId: string,
): { selected: readonly SelectedLimit[] } | { missing: string } {
  if (requested.length === 0) return record.limits.length === 0 ? NONE : { selected: autoApplied(record) }
  const selected = new Map<string, SelectedLimit>()
  for (const limit of record.limits) if (limit.autoApply) selected.set(limit.name, select(limit, 1))
  for (const { name, cost, limit, durationMs, isOptional } of requested) {
    if (limit !== null && durationMs !== null) {
      selected.set(name, { id: '', name, limit, durationMs, autoApply: false, ownerId, cost })
      continue
    }
    const configured = record.limits.find((candidate) => candidate.name === name)
    if (configured === undefined && isOptional) continue
    if (configured === undefined) return { missing: name }
    selected.set(name, select(configured, cost))
  }
  return { selected: [...selected.values()] }
}

/** One shared value: root keys, verified with every call, mostly have no limits. */
const NONE = { selected: [] }

/** The limits that nearly every verification counts. Their names are distinct (`store.ts`). */
function autoApplied({ limits }: KeyRecord): SelectedLimit[] {
  const selected: SelectedLimit[] = []
  for (const limit of limits) if (limit.autoApply) selected.push(select(limit, 1))
  return selected
}

const select = (
  { id, name, limit, durationMs, autoApply, ownerId }: ConfiguredLimit,
  cost: number,
): SelectedLimit => ({ id, name, limit, durationMs, autoApply, ownerId, cost })
