import { type Static, Type } from '@sinclair/typebox'
import { DURATION_MS_MAX, INT32_MAX } from '../lib/bounds.ts'

export const LimitBody = Type.Object({
  namespace: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 512,
      description: 'Groups limits; made on first use when the root key may. Default `default`.',
    }),
  ),
  identifier: Type.String({
    maxLength: 1024,
    description: 'Who or what is limited: a user id, an address, anything.',
  }),
  limit: Type.Integer({
    exclusiveMinimum: 0,
    maximum: INT32_MAX,
    description: 'Tokens allowed in a window. An override of the namespace beats it.',
  }),
  duration: Type.Integer({
    minimum: 1000,
    maximum: DURATION_MS_MAX,
    description:
      'Length of the window in milliseconds. Windows are fixed and begin at multiples of it since the epoch.',
  }),
  cost: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: INT32_MAX,
      description: 'Tokens to take, default 1. More than are left: refused, nothing taken. 0 only looks.',
    }),
  ),
  async: Type.Optional(
    Type.Boolean({
      description:
        'Answer at once from what is known here and count afterwards: faster, less exact. Default false.',
    }),
  ),
  meta: Type.Optional(Type.Record(Type.String(), Type.Unknown(), { description: 'Accepted, not stored.' })),
  resources: Type.Optional(
    Type.Array(
      Type.Object({
        type: Type.String({ maxLength: 256 }),
        id: Type.String({ maxLength: 256 }),
        name: Type.Optional(Type.String({ maxLength: 256 })),
        meta: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
      }),
      {
        maxItems: 100,
        description: 'What is about to be accessed; the decision is then written to the audit log.',
      },
    ),
  ),
})
export type LimitBody = Static<typeof LimitBody>

export const LimitReply = Type.Object({
  success: Type.Boolean({
    description: 'Whether the request may go on. A refusal is an answer with status 200.',
  }),
  limit: Type.Integer({ description: 'Tokens allowed in a window, after overrides.' }),
  remaining: Type.Integer({ description: 'Tokens left in this window, never below 0.' }),
  reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
})
export type LimitReply = Static<typeof LimitReply>
