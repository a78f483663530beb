import type { Deps } from '../deps.ts'
import type { Call } from '../http/endpoint.ts'
import { HOUR_MS } from '../lib/clock.ts'
import { firstIdAt } from '../lib/ids.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../lib/page.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { ListEventsQuery, ListEventsReply } from './schema.ts'
import { type AuditEventRow, listAuditEventRows } from './store.ts'

/** What was changed in the workspace, by whom. No total: a log only grows, and counting it would cost more each day. */
export async function listEvents(deps: Deps, call: Call, query: ListEventsQuery): Promise<ListEventsReply> {
  const { workspaceId } = await authenticate(deps, call, anyOf('*', 'audit.*.read_event'))
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '', event, actorId, resourceId, start, end } = query
  // Ids hold the second of their making, so those before the range need not be read.
  const first = start === undefined ? '' : firstIdAt('log', start)
  // Nor those after it. What is made in a range that is not over may still come, by any clock.
  const beforeId = end === undefined || end >= Date.now() ? null : firstIdAt('log', end + CLOCKS_APART_MS)
  const rows = await listAuditEventRows(
    deps.history,
    workspaceId,
    {
      event: event ?? null,
      actorId: actorId ?? null,
      resourceId: resourceId ?? null,
      start: start ?? null,
      end: end ?? null,
    },
    { limit, cursor: [cursor, first].sort().at(-1) ?? '', beforeId },
  )
  const { items, ...page } = cutPage(rows, limit)
  return { events: items.map(eventOf), ...page }
}

/** An id and the time of its event may be told by different clocks: the server's, and the database's. */
const CLOCKS_APART_MS = HOUR_MS

const eventOf = ({ id, occurredAt, event, description, ...row }: AuditEventRow) => ({
  id,
  time: occurredAt,
  event,
  description,
  actor: { type: row.actorType, id: row.actorId },
  resources: row.resources,
  ...(row.location === null ? {} : { location: row.location }),
  ...(row.userAgent === null ? {} : { userAgent: row.userAgent }),
})
