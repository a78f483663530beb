import { type Static, Type } from '@sinclair/typebox'
import { PageQuery } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

const Filter = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 256, description }))
const Instant = (description: string) => Type.Optional(UnixMs({ description }))

export const ListEventsQuery = Type.Object({
  ...PageQuery,
  order: Type.Optional(
    Type.Union([Type.Literal('oldestFirst'), Type.Literal('newestFirst')], {
      default: 'oldestFirst',
      description:
        'Order of the events; default `oldestFirst`. A cursor belongs to the order that it came with.',
    }),
  ),
  event: Filter('Only events of this name, such as `key.create`.'),
  actorId: Filter('Only events caused by this root key.'),
  resourceId: Filter('Only events that affected the resource with this id: a key, an API, a role, …'),
  start: Instant('Only events from this time on, Unix milliseconds.'),
  end: Instant('Only events before this time, Unix milliseconds.'),
})
export type ListEventsQuery = Static<typeof ListEventsQuery>

export const ListEventsReply = Type.Object({
  events: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the event.' }),
      time: Type.Integer({ description: 'When it happened, Unix milliseconds.' }),
      event: Type.String({ description: 'Name of the event, such as `key.create`.' }),
      description: Type.String({ description: 'What happened, as a sentence.' }),
      actor: Type.Object(
        {
          type: Type.String({ description: 'Always `key`.' }),
          id: Type.String({ description: 'Id of the root key.' }),
        },
        { description: 'The root key that made the call.' },
      ),
      resources: Type.Array(
        Type.Object({
          type: Type.String({ description: 'Kind of resource: `key`, `api`, `role`, …' }),
          id: Type.String({ description: 'Id of the resource.' }),
          name: Type.Optional(Type.String({ description: 'Name of the resource at the time.' })),
          meta: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), { description: 'More facts about the event.' }),
          ),
          before: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), {
              description:
                'Changed fields with their values before the change; null = not set. Absent if the resource was created. Long values are cut; secrets are never included.',
            }),
          ),
          after: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), {
              description:
                'The same fields with their values after the change. Absent if the resource was deleted.',
            }),
          ),
        }),
        { description: 'Affected resources, the main one first.' },
      ),
      changes: Type.Optional(
        Type.Array(
          Type.Object({
            resourceId: Type.String({ description: 'Id of the resource that has the field.' }),
            field: Type.String({ description: 'Name of the field in the API.' }),
            before: Type.Unknown({ description: 'Value before the change; null = not set.' }),
            after: Type.Unknown({ description: 'Value after the change; null = not set.' }),
          }),
          {
            description:
              'Changed fields of all resources, as in their `before` and `after`. Absent if the event changed no field of an existing resource.',
          },
        ),
      ),
      location: Type.Optional(Type.String({ description: 'IP address of the client.' })),
      userAgent: Type.Optional(Type.String({ description: 'User-Agent header of the call.' })),
    }),
    {
      description:
        'Events in the order in which they happened. An event can appear late, before events that were listed already: to follow the log, ask again from a few seconds before the last event.',
    },
  ),
  cursor: Type.Optional(
    Type.String({ description: 'Send this as `cursor` to get the next page. Absent on the last page.' }),
  ),
})
export type ListEventsReply = Static<typeof ListEventsReply>
