import { listEvents } from '../../../api/audit-events/list-events.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import { ListEventsQuery, ListEventsReply } from './schema.ts'

export const auditEventRoutes: Endpoint[] = [
  get(
    '/v1/audit.listEvents',
    { input: ListEventsQuery, reply: ListEventsReply, summary: 'List what was changed, and by whom' },
    listEvents,
  ),
]
