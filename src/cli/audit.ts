import type { Command } from './arguments.ts'
import type { ListEventsReply } from './replies.ts'
import { MAX_ITEMS } from './shared-options.ts'
import { secondText, tableText } from './text.ts'

type AuditEvent = ListEventsReply['events'][number]

export const auditCommands: Command[] = [
  {
    name: 'audit list',
    about: 'list audit events: who changed what, oldest first',
    options: {
      since: { value: '<time>', about: 'only events since this time; 7d = 7 days ago; default: all' },
      until: { value: '<time>', about: 'only events before this time' },
      event: { value: '<name>', about: 'only events of this name, such as key.create' },
      actor: { value: '<id>', about: 'only events caused by this root key' },
      resource: { value: '<id>', about: 'only events that affected this key, API, role, …' },
      ...MAX_ITEMS,
    },
    example: 'audit list --since 7d --event key.create',
    async run(given) {
      const client = await given.client()
      const query = {
        start: given.time('since', 'back'),
        end: given.time('until', 'back'),
        event: given.text('event'),
        actorId: given.text('actor'),
        resourceId: given.text('resource'),
      }
      const events = await client.list<AuditEvent>('audit.listEvents', 'events', query, given.whole('max', 1))
      const rows = events.map((each) => [
        secondText(each.time),
        each.event,
        each.actor.id,
        each.description,
        each.location ?? '',
      ])
      given.print(tableText(['time (UTC)', 'event', 'actor', 'description', 'address'], rows), events)
    },
  },
]
