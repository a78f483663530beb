import { type Static, Type } from '@sinclair/typebox'
import { PageQuery } from '../page.ts'
import { UnixMs } from '../unix-ms.ts'

const Filter = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, maxLength: 256, description }))
const Instant = (description: string) => Type.Optional(UnixMs({ description }))

export const ListEventsQuery = Type.Object({
  ...PageQuery,
  event: Filter('Only events of this name, such as `key.create`.'),
  actorId: Filter('Only what this root key did.'),
  resourceId: Filter('Only what affected this key, API, role, …'),
  start: Instant('Unix milliseconds; only events from then on.'),
  end: Instant('Unix milliseconds; only events before.'),
})
export type ListEventsQuery = Static<typeof ListEventsQuery>

export const ListEventsReply = Type.Object({
  events: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the event.' }),
      time: Type.Integer({ description: 'Unix milliseconds.' }),
      event: Type.String({ description: 'Its name, such as `key.create`.' }),
      description: Type.String({ description: 'One sentence for a person.' }),
      actor: Type.Object(
        {
          type: Type.String({ description: 'Always `key`.' }),
          id: Type.String({ description: 'Of the root key.' }),
        },
        { description: 'Who did it.' },
      ),
      resources: Type.Array(
        Type.Object({
          type: Type.String({ description: 'Kind of resource: `key`, `api`, `role`, …' }),
          id: Type.String({ description: 'Its id.' }),
          name: Type.Optional(Type.String({ description: 'Its name at the time.' })),
          meta: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), { description: 'Facts of the change.' }),
          ),
          before: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), {
              description:
                'The fields that changed, as they were; null = not set. Absent for what was made. Long values are cut. Never a secret.',
            }),
          ),
          after: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), {
              description: 'The same fields as they are since. Absent for what was deleted.',
            }),
          ),
        }),
        { description: 'What was affected, the main thing first.' },
      ),
      location: Type.Optional(Type.String({ description: 'Address the call came from.' })),
      userAgent: Type.Optional(Type.String({ description: 'Client the call came with.' })),
    }),
    {
      description:
        'In the order in which they happened, oldest first. One whose change is still being written has its place and appears there later: who follows the log asks again from some time before the last one.',
    },
  ),
  cursor: Type.Optional(
    Type.String({ description: 'Send it to get the next page; absent on the last one.' }),
  ),
})
export type ListEventsReply = Static<typeof ListEventsReply>
