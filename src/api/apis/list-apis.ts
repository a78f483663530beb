import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { ListApisQuery, ListApisReply } from './schema.ts'
import { countApis, listApiRows } from './store.ts'

/** Live APIs of the workspace, oldest first. */
export async function listApis(services: Services, call: Call, query: ListApisQuery): Promise<ListApisReply> {
  const { workspaceId } = await authenticate(services, call, anyOf('*', 'api.*.read_api'))
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '' } = query
  const [rows, total] = await Promise.all([
    listApiRows(services.sql, workspaceId, { limit, cursor }),
    countApis(services.sql, workspaceId),
  ])
  const { items: apis, ...page } = cutPage(rows, limit)
  return { apis, total, ...page }
}
