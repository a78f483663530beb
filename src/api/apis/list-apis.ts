import type { Call } from '../../doors/http/endpoint.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Deps } from '../../server/deps.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { ListApisQuery, ListApisReply } from './schema.ts'
import { countApis, listApiRows } from './store.ts'

/** Live APIs of the workspace, oldest first. */
export async function listApis(deps: Deps, call: Call, query: ListApisQuery): Promise<ListApisReply> {
  const { workspaceId } = await authenticate(deps, call, anyOf('*', 'api.*.read_api'))
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '' } = query
  const [rows, total] = await Promise.all([
    listApiRows(deps.sql, workspaceId, { limit, cursor }),
    countApis(deps.sql, workspaceId),
  ])
  const { items: apis, ...page } = cutPage(rows, limit)
  return { apis, total, ...page }
}
