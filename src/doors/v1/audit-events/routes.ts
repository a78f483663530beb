import { listEvents } from '../../../api/audit-events/list-events.ts'
import type { AuditEventRow } from '../../../api/audit-events/store.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import { pageOf } from '../page.ts'
import { ListEventsQuery, ListEventsReply } from './schema.ts'

export const auditEventRoutes: Endpoint[] = [
  get(
    '/v1/audit.listEvents',
    { input: ListEventsQuery, reply: ListEventsReply, summary: 'List audit events: who changed what' },
    async (services, call, query) => {
      const actor = await authenticate(services, call, anyOf('*', 'audit.*.read_event'))
      const { event = null, actorId = null, resourceId = null, start = null, end = null } = query
      const filter = { event, actorId, resourceId, start, end }
      const { items, ...page } = await listEvents(services, actor, filter, pageOf(query))
      return { events: items.map(eventOf), ...page }
    },
  ),
]

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
