import { notFound } from '../../errors.ts'
import type { Page } from '../../lib/page.ts'
import { findIdentity } from '../identities/store.ts'
import type { Services } from '../parts.ts'
import { findPermission, findRole } from '../permissions/store.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  countHoldingKeys,
  type Held,
  type HoldingKeyRow,
  listHoldingKeys,
  type Place,
} from './holders/store.ts'

/** More are not counted: it would take longer the more there are. */
export const COUNTED_MAX = 1000

/**
 * Keys of all APIs that belong to an identity, or that have a role or a permission of their own; without deleted keys. A page
 * holds fewer than `limit` where many of the keys were deleted.
 * @returns `total` counts to {@link COUNTED_MAX}.
 * @throws ApiError NOT_FOUND for the identity, role or permission.
 */
export async function listKeysThatHold(
  { history }: Pick<Services, 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  held: Held,
  { limit, cursor }: Page,
): Promise<{ items: HoldingKeyRow[]; total: number; cursor?: string }> {
  await requireHeld(history, workspaceId, held)
  const [{ keys, last }, total] = await Promise.all([
    listHoldingKeys(history, workspaceId, held, { after: placeOf(cursor), rows: limit }),
    countHoldingKeys(history, workspaceId, held, COUNTED_MAX),
  ])
  return { items: keys, total, ...(last === null ? {} : { cursor: cursorOf(last) }) }
}

async function requireHeld(
  sql: Services['history'],
  workspaceId: Actor['workspaceId'],
  held: Held,
): Promise<void> {
  if ('identityId' in held) {
    if ((await findIdentity(sql, workspaceId, { id: held.identityId })) === null)
      throw notFound('identity', held.identityId)
  } else if ('roleId' in held) {
    if ((await findRole(sql, workspaceId, { id: held.roleId })) === null) throw notFound('role', held.roleId)
  } else if ((await findPermission(sql, workspaceId, { id: held.permissionId })) === null)
    throw notFound('permission', held.permissionId)
}

const cursorOf = ({ keyspaceId, keyId }: Place) => (keyspaceId === '' ? keyId : `${keyspaceId}/${keyId}`)

function placeOf(cursor: string): Place {
  const at = cursor.indexOf('/')
  return { keyspaceId: cursor.slice(0, Math.max(0, at)), keyId: cursor.slice(at + 1) }
}
