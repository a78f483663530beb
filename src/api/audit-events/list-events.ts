import type { ListEventsQuery, ListEventsReply } from '../../doors/v1/audit-events/schema.ts'
import { cutPage, PAGE_ITEMS_DEFAULT } from '../../lib/page.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { type AuditEventRow, listAuditEventRows } from './store.ts'

/** What was changed in the workspace, by whom. No total: a log only grows, and counting it would cost more each day. */
export async function listEvents(
  services: Services,
  call: Call,
  query: ListEventsQuery,
): Promise<ListEventsReply> {
  const { workspaceId } = await authenticate(services, call, anyOf('*', 'audit.*.read_event'))
  const { limit = PAGE_ITEMS_DEFAULT, cursor = '', event, actorId, resourceId, start, end } = query
  const { rows, isCut } = await listAuditEventRows(
    services.history,
    workspaceId,
    {
      event: event ?? null,
      actorId: actorId ?? null,
      resourceId: resourceId ?? null,
      start: start ?? null,
      end: end ?? null,
    },
    { limit, cursor },
  )
  const { items, ...page } = cutPage(rows, limit, { isCut })
  return { events: items.map(eventOf), ...page }
}

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
