import type { AnySql } from '../../db/connect.ts'
import { ApiError } from '../../errors.ts'
import { listed } from '../../lib/listed.ts'
import { type Actor, anyOf, requirePermission } from './authorize.ts'
import { findRootKey, type RootKeyRow } from './store.ts'

/**
 * The root key that grants. It may grant only permissions that it holds, until its own end at the latest, and may not
 * change a root key that holds more. All checks use its row, read and locked inside the transaction: its rights may have
 * changed since the request arrived.
 */
export type Granter = { id: string; holds: (permission: string) => boolean; expiresAt: number | null }

/**
 * The acting root key as it is now. The caller has locked its row.
 * @param options.right What it must still hold.
 * @throws ApiError UNAUTHORIZED, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS when it was deleted, disabled, ended or lost
 *   the right since the request was authenticated.
 */
export async function findGranter(
  tx: AnySql,
  actor: Actor,
  { right, now }: { right: string; now: number },
): Promise<Granter> {
  const row = await findRootKey(tx, actor.workspaceId, actor.rootKeyId)
  if (row === null) throw new ApiError('UNAUTHORIZED', 'key not found')
  if (!row.enabled) throw new ApiError('DISABLED', 'the root key is disabled')
  if (row.expiresAt !== null && row.expiresAt < now)
    throw new ApiError('EXPIRED', `the root key expired at ${instant(row.expiresAt)}`)
  const held = new Set(row.permissions)
  const { holds: heldThen } = asAsked(actor)
  const holds = (permission: string) => (held.has('*') || held.has(permission)) && heldThen(permission)
  if (!holds(right)) requirePermission({ permissions: held }, anyOf('*', right))
  return { id: row.id, holds, expiresAt: row.expiresAt }
}

/** The acting root key as it was when the request was authenticated: good enough to refuse by, not to grant by. */
export const asAsked = ({ rootKeyId: id, permissions }: Actor): Pick<Granter, 'id' | 'holds'> => ({
  id,
  holds: (permission) => permissions.has('*') || permissions.has(permission),
})

/** @throws ApiError INSUFFICIENT_PERMISSIONS naming the wanted permissions that the granter does not hold. */
export function requireHeld({ holds }: Granter, permissions: readonly string[]): void {
  const missing = permissions.filter((permission) => !holds(permission))
  if (missing.length > 0)
    throw new ApiError(
      'INSUFFICIENT_PERMISSIONS',
      `a root key can only grant permissions that it has; missing: ${listed(missing)}`,
    )
}

/**
 * Changing a root key's life needs every permission that it holds; an operator root key can be changed by operators only.
 * The error does not say what the root key holds.
 * @throws ApiError INSUFFICIENT_PERMISSIONS
 */
export function requireMayChange(
  granter: Pick<Granter, 'id' | 'holds'>,
  { isOperator }: Pick<Actor, 'isOperator'>,
  target: RootKeyRow,
): void {
  if (target.id === granter.id) return
  if (target.permissions.every(granter.holds) && (isOperator || !target.isOperator)) return
  throw new ApiError(
    'INSUFFICIENT_PERMISSIONS',
    'a root key can only change root keys whose permissions it has; the root key to change has others',
  )
}

/** Null = never. */
export const endsLater = (one: number | null, other: number | null): boolean =>
  other !== null && (one === null || one > other)

/** @throws ApiError INSUFFICIENT_PERMISSIONS when the wanted end is later than the granter's. */
export function requireNotLater({ expiresAt }: Granter, wanted: number | null): void {
  if (expiresAt === null || !endsLater(wanted, expiresAt)) return
  throw new ApiError(
    'INSUFFICIENT_PERMISSIONS',
    `expires: a root key cannot outlive the root key that creates it, which expires at ${instant(expiresAt)} (${expiresAt})`,
  )
}

const instant = (atMs: number) => new Date(atMs).toISOString()
