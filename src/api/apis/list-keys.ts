import { cutPage, type Page } from '../../lib/page.ts'
import { findIdentityIds } from '../identities/store.ts'
import { countKeys, type KeyRow, listKeyRows } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/** Filters of a list of keys. Null = no filter. */
export type KeysWanted = {
  /** External id of the identity that the keys are connected to. */
  externalId: string | null
  /** The owner id stored with the keys. */
  ownerId: string | null
}

/**
 * One page of an API's keys by id, without deleted ones. A page holds fewer than `limit` keys where their meta is long.
 * @param api From `getApiWithKeys`.
 * @returns `total` counts all keys of the API, ignoring the filters; it is 0 when the wanted identity does not exist.
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
