import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from './authorize.ts'
import type { ListRootKeysQuery, ListRootKeysReply } from './schema.ts'
import { countRootKeys, listRootKeyRows } from './store.ts'

/** Root keys of the caller's workspace, oldest first; never their text. */
export async function listRootKeys(
  services: Services,
  call: Call,
  query: ListRootKeysQuery,
): Promise<ListRootKeysReply> {
  const actor = await authenticate(services, call, anyOf('*', 'root_key.*.read_root_key'))
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '', grantedBy = null } = query
  const [rows, total] = await Promise.all([
    listRootKeyRows(services.sql, actor.workspaceId, { limit, cursor, grantedBy }),
    countRootKeys(services.sql, actor.workspaceId, grantedBy),
  ])
  const { items, ...page } = cutPage(rows, limit)
  const rootKeys = items.map(({ id, name, start, permissions, enabled, expiresAt, createdAt }) => ({
    id,
    ...(name === null ? {} : { name }),
    start,
    permissions,
    enabled,
    ...(expiresAt === null ? {} : { expires: expiresAt }),
    createdAt,
  }))
  return { rootKeys, total, ...page }
}
