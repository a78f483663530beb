import { cutPage, type Page } from '../../lib/page.ts'
import { findIdentityIds } from '../identities/store.ts'
import { countKeys, type KeyRow, listKeyRows } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/** Null = whatever it is. */
export type KeysWanted = {
  /** Of the identity that the keys are connected to. */
  externalId: string | null
  /** Stored with the keys. */
  ownerId: string | null
}

/**
 * Live keys of an API by id; fewer a page where their meta is long.
 * @param api From `getApiWithKeys`.
 * @returns `total` counts all of the API, whatever is wanted of them; 0 when there is no such identity.
 */
export async function listKeys(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { keyspaceId }: { keyspaceId: string },
  { externalId, ownerId }: KeysWanted,
  page: Page,
): Promise<{ items: KeyRow[]; cursor?: string; total: number }> {
  const identityId =
    externalId === null ? null : (await findIdentityIds(sql, workspaceId, [externalId])).get(externalId)
  if (identityId === undefined) return { items: [], total: 0 }
  const [{ rows, isCut }, total] = await Promise.all([
    listKeyRows(sql, workspaceId, { keyspaceId, identityId, ownerId }, page),
    countKeys(sql, workspaceId, keyspaceId),
  ])
  return { ...cutPage(rows, page.limit, { isCut }), total }
}
