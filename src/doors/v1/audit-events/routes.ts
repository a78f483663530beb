import { listEvents } from '../../../api/audit-events/list-events.ts'
import type { AuditEventRow } from '../../../api/audit-events/store.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import type { AuditResource } from '../../../audit/log.ts'
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
      const { order = 'oldestFirst' } = query
      const { items, ...page } = await listEvents(services, actor, filter, { ...pageOf(query), order })
      return { events: items.map(eventOf), ...page }
    },
  ),
]

const eventOf = ({ id, occurredAt, event, description, ...row }: AuditEventRow) => {
  const changes = row.resources.flatMap(changedFields)
  return {
    id,
    time: occurredAt,
    event,
    description,
    actor: { type: row.actorType, id: row.actorId },
    resources: row.resources,
    ...(changes.length === 0 ? {} : { changes }),
    ...(row.location === null ? {} : { location: row.location }),
    ...(row.userAgent === null ? {} : { userAgent: row.userAgent }),
  }
}

/** The fields of a resource that changed. What a new or a deleted thing had are no changes. */
function changedFields({ id: resourceId, before, after }: AuditResource) {
  if (before === undefined || after === undefined) return []
  return Object.keys(after).map((field) => ({
    resourceId,
    field,
    before: before[field] ?? null,
    after: after[field] ?? null,
  }))
}
