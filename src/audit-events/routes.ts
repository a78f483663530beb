import { type Endpoint, get } from '../http/endpoint.ts'
import { listEvents } from './list-events.ts'
import { ListEventsQuery, ListEventsReply } from './schema.ts'

export const auditEventRoutes: Endpoint[] = [
  get(
    '/v1/audit.listEvents',
    { input: ListEventsQuery, reply: ListEventsReply, summary: 'List what was changed, and by whom' },
    listEvents,
  ),
]
