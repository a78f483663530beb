import { type Static, Type } from '@sinclair/typebox'
import { Closed, Count, Identity, Meta } from '../schema.ts'

const CREDITS_COST_MAX = 1_000_000_000_000

export const VerifyKeyBody = Closed({
  key: Type.String({ minLength: 1, maxLength: 512, description: 'The key itself, as your user sent it.' }),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 512 }), {
      maxItems: 20,
      description: 'Labels of this verification, to split usage by. They do not change the result.',
    }),
  ),
  permissions: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1000,
      description:
        'Permissions that the key must have: slugs with `AND`, `OR` and parentheses. `AND` binds before `OR`; `*` in a slug stands for itself.',
    }),
  ),
  credits: Type.Optional(
    Closed(
      {
        cost: Type.Integer({
          minimum: 0,
          maximum: CREDITS_COST_MAX,
          description: 'Credits to take. If fewer are left, the key is refused and no credits are taken.',
        }),
      },
      { description: 'Credits that this verification takes, of a key that has any; absent = 1.' },
    ),
  ),
  ratelimits: Type.Optional(
    Type.Array(
      Type.Object({
        name: Type.String({
          minLength: 3,
          maxLength: 255,
          description: 'Name of a limit of the key or its identity. With `limit` and `duration`, any name.',
        }),
        cost: Type.Optional(
          Count({ minimum: 0, default: 1, description: 'Tokens to take from the limit; 0 only looks.' }),
        ),
        limit: Type.Optional(
          Count({
            minimum: 0,
            description:
              'Tokens allowed in a window. Given together with `duration`, it replaces a configured limit of that name and counts for the key.',
          }),
        ),
        duration: Type.Optional(
          Count({
            minimum: 0,
            description: 'Length of the window in milliseconds, with `limit` at least 1.',
          }),
        ),
      }),
      {
        maxItems: 100,
        description:
          'Rate limits to check, in addition to those that every verification counts. All are charged or none.',
      },
    ),
  ),
  migrationId: Type.Optional(
    Type.String({ maxLength: 256, description: 'The migration that the key may come from.' }),
  ),
})
export type VerifyKeyBody = Static<typeof VerifyKeyBody>

/** One of the limits that a verification checked. */
const VerifyRatelimit = Type.Object({
  exceeded: Type.Boolean({ description: 'True for a limit that refuses this call.' }),
  id: Type.String({ description: 'Id of the limit; empty when only the request defines it.' }),
  name: Type.String({ description: 'Name of the limit.' }),
  limit: Type.Integer({ description: 'Tokens allowed in a window.' }),
  duration: Type.Integer({ description: 'Length of a window in milliseconds.' }),
  reset: Type.Integer({ description: 'When the window ends, Unix milliseconds.' }),
  remaining: Type.Integer({ description: 'Tokens left in the current window; 0 when exceeded.' }),
  autoApply: Type.Boolean({ description: 'Whether it counts at every verification.' }),
})

export const VerifyKeyData = Type.Object({
  valid: Type.Boolean({ description: 'True if the key may be used for this request.' }),
  code: Type.Union(
    [
      Type.Literal('VALID'),
      Type.Literal('NOT_FOUND'),
      Type.Literal('FORBIDDEN'),
      Type.Literal('INSUFFICIENT_PERMISSIONS'),
      Type.Literal('USAGE_EXCEEDED'),
      Type.Literal('RATE_LIMITED'),
      Type.Literal('DISABLED'),
      Type.Literal('EXPIRED'),
    ],
    {
      description:
        'Outcome of the verification: `VALID`, or why the key was refused. `NOT_FOUND` also for keys that the root key may not verify; then nothing else is told.',
    },
  ),
  keyId: Type.Optional(Type.String({ description: 'Id of the key.' })),
  enabled: Type.Optional(Type.Boolean({ description: 'False = the key is refused.' })),
  name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
  meta: Type.Optional(Meta('Your own data about the key. Absent when empty.')),
  expires: Type.Optional(
    Type.Integer({ description: 'When the key expires, Unix milliseconds; absent = never.' }),
  ),
  credits: Type.Optional(
    Type.Integer({
      description:
        'Credits left; absent = unlimited. Exact when credits were asked, else as the server last saw them.',
    }),
  ),
  permissions: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Slugs of the permissions that the key has, directly or through a role.',
    }),
  ),
  roles: Type.Optional(Type.Array(Type.String(), { description: 'Names of the key’s roles.' })),
  identity: Type.Optional(
    Type.Object(Identity.properties, { description: 'The identity that the key belongs to.' }),
  ),
  ratelimits: Type.Optional(
    Type.Array(VerifyRatelimit, { description: 'The limits that were checked. Absent when none was.' }),
  ),
})
export type VerifyKeyData = Static<typeof VerifyKeyData>
