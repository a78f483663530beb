import type { AnySql } from '../../db/connect.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { cutPage, type Page } from '../../lib/page.ts'
import { findIdentityIds } from '../identities/store.ts'
import { countKeys, type KeyFilter, type KeyRow, listKeyRows } from '../keys/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/** A filter of a list of keys: the external id of their identity, or the owner id stored with them. */
export type KeysWanted = { externalId: string } | { ownerId: string }

/**
 * One page of an API's keys by id, without deleted ones. A page holds fewer than `limit` keys where their meta is long.
 * @param api From `getApiWithKeys`.
 * @returns `total` counts all keys of the API, ignoring the filter; it is 0 when the wanted identity does not exist.
 */
export async function listKeys(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { keyspaceId }: { keyspaceId: string },
  wanted: KeysWanted | null,
  page: Page,
): Promise<{ items: KeyRow[]; cursor?: string; total: number }> {
  const filter = await filterOf(sql, workspaceId, wanted)
  if (filter === 'none') return { items: [], total: 0 }
  const [{ rows, isCut }, total] = await Promise.all([
    listKeyRows(sql, workspaceId, keyspaceId, filter, { ...page, limits: 'default' }),
    countKeys(sql, workspaceId, keyspaceId),
  ])
  return { ...cutPage(rows, page.limit, { isCut }), total }
}

/** As {@link listKeys}, with all limits of keys and identities, which also make a page shorter, and without the total. */
export async function listKeysWithLimits(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { keyspaceId }: { keyspaceId: string },
  wanted: KeysWanted | null,
  page: Page,
): Promise<{ items: KeyRow[]; cursor?: string }> {
  const filter = await filterOf(sql, workspaceId, wanted)
  if (filter === 'none') return { items: [] }
  const { rows, isCut } = await listKeyRows(sql, workspaceId, keyspaceId, filter, { ...page, limits: 'all' })
  return cutPage(rows, page.limit, { isCut })
}

/** @returns 'none' when the wanted identity does not exist. */
async function filterOf(
  sql: AnySql,
  workspaceId: WorkspaceId,
  wanted: KeysWanted | null,
): Promise<KeyFilter | null | 'none'> {
  if (wanted === null || 'ownerId' in wanted) return wanted
  const identityId = (await findIdentityIds(sql, workspaceId, [wanted.externalId])).get(wanted.externalId)
  return identityId === undefined ? 'none' : { identityId }
}
