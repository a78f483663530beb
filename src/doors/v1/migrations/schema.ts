import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { NewKeyFields, NewKeyRatelimit } from '../keys/schema.ts'

const ImportFields = {
  hash: Type.Optional(
    Type.Object(
      {
        value: Type.String({
          maxLength: 256,
          description:
            'SHA-256 of the key’s UTF-8 text. Stored as standard base64 with padding; hex, base64url and missing padding are turned into it.',
        }),
        variant: Type.Literal('sha256_base64', { description: 'The only one there is.' }),
      },
      { description: 'The hash of the key; this or `plaintext`.' },
    ),
  ),
  plaintext: Type.Optional(
    Type.String({
      maxLength: 4096,
      description:
        'The key itself instead of its hash: it is then hashed here, and recoverable. Empty = not given.',
    }),
  ),
  start: Type.Optional(
    Type.String({ maxLength: 256, description: 'Visible beginning; default: the prefix and 4 characters.' }),
  ),
  prefix: Type.Optional(Type.String({ maxLength: 8, description: 'Only for the default of `start`.' })),
  ...NewKeyFields,
}

export const CreateKeysBody = Type.Array(
  Type.Object({
    apiId: Type.String({ maxLength: 256, description: 'The API the key belongs to.' }),
    ...ImportFields,
    ratelimit: Type.Optional(
      Type.Object(
        {
          limit: Type.Integer({ minimum: 1, maximum: COUNT_MAX, description: 'Verifications in a window.' }),
          refillRate: Type.Integer({
            minimum: 1,
            maximum: COUNT_MAX,
            deprecated: true,
            description: 'No effect.',
          }),
          refillInterval: Type.Integer({
            minimum: 1,
            maximum: DURATION_MS_MAX,
            description: 'Length of the window in milliseconds.',
          }),
          type: Type.Optional(
            Type.Union([Type.Literal('fast'), Type.Literal('consistent')], {
              deprecated: true,
              description: 'No effect.',
            }),
          ),
          async: Type.Optional(
            Type.Boolean({ default: false, description: 'No effect: limits of keys are always exact.' }),
          ),
        },
        { description: 'The limit that counts on every verification of the key.' },
      ),
    ),
  }),
  { maxItems: 100 },
)
export type CreateKeysBody = Static<typeof CreateKeysBody>
export const CreateKeysReply = Type.Object({
  keyIds: Type.Array(Type.String(), { description: 'In the order of the request.' }),
})
export type CreateKeysReply = Static<typeof CreateKeysReply>

/** Here a window must last at least a second. */
const QueuedElement = Type.Object({ ...ImportFields, ratelimit: Type.Optional(NewKeyRatelimit) })
export const EnqueueKeysBody = Type.Object({
  migrationId: Type.String({ minLength: 1, maxLength: 256, description: 'Your name of this migration.' }),
  apiId: Type.String({ minLength: 1, maxLength: 256, description: 'The API the keys belong to.' }),
  keys: Type.Array(QueuedElement, { maxItems: 100, description: 'The keys, at most 100 a call.' }),
})
export type EnqueueKeysBody = Static<typeof EnqueueKeysBody>
/** The type of an element in both endpoints. */
export type ImportElement = Static<typeof QueuedElement>
