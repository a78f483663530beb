import { cutPage, type Page } from '../../lib/page.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  countIdentities,
  countIdentitiesStarting,
  listIdentityRows,
  listIdentityRowsStarting,
} from './store.ts'

/** Identities of the workspace with their limits, oldest first. */
export async function listIdentities(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  page: Page,
) {
  const [rows, total] = await Promise.all([
    listIdentityRows(sql, workspaceId, page),
    countIdentities(sql, workspaceId),
  ])
  return { ...cutPage(rows, page.limit), total }
}

/**
 * Identities whose external id begins with a text, in the order of their external ids.
 * @returns `total` counts to {@link COUNTED_MAX}; the cursor is an external id.
 */
export async function searchIdentities(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  prefix: string,
  { limit, cursor }: Page,
) {
  const [rows, total] = await Promise.all([
    listIdentityRowsStarting(sql, workspaceId, { prefix, after: cursor, rows: limit + 1 }),
    countIdentitiesStarting(sql, workspaceId, { prefix, max: COUNTED_MAX }),
  ])
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return {
    items,
    total,
    ...(rows.length > limit && last !== undefined ? { cursor: last.externalId } : {}),
  }
}

/** More are not counted: it would take longer the more there are. */
export const COUNTED_MAX = 1000
