import { type Static, Type } from '@sinclair/typebox'
import { COUNT_MAX, DURATION_MS_MAX } from '../../../lib/bounds.ts'
import { NewKeyFields, NewKeyRatelimit } from '../keys/schema.ts'
import { PageQuery, PageReply } from '../page.ts'

const ImportFields = {
  hash: Type.Optional(
    Type.Object(
      {
        value: Type.String({
          maxLength: 256,
          description:
            'SHA-256 of the key’s UTF-8 text, as base64, base64url or hex. Stored as standard base64 with padding.',
        }),
        variant: Type.Literal('sha256_base64', { description: 'Kind of hash. Only this one is supported.' }),
      },
      { description: 'Hash of the key. `hash` or `plaintext` is required.' },
    ),
  ),
  plaintext: Type.Optional(
    Type.String({
      maxLength: 4096,
      description:
        'The key itself, instead of its hash. Tollgate hashes it and also stores it encrypted, so that it is recoverable. An empty text counts as absent.',
    }),
  ),
  start: Type.Optional(
    Type.String({
      maxLength: 256,
      description: 'First characters of the key, to recognise it by. Default: the prefix and 4 characters.',
    }),
  ),
  prefix: Type.Optional(
    Type.String({ maxLength: 8, description: 'Prefix of the key. Only used for the default of `start`.' }),
  ),
  ...NewKeyFields,
}

export const ImportedElement = Type.Object({
  apiId: Type.String({ maxLength: 256, description: 'Id of the API that the key belongs to.' }),
  ...ImportFields,
  ratelimit: Type.Optional(
    Type.Object(
      {
        limit: Type.Integer({
          minimum: 1,
          maximum: COUNT_MAX,
          description: 'Verifications allowed in a window.',
        }),
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
          Type.Boolean({ default: false, description: 'No effect: rate limits of keys are always exact.' }),
        ),
      },
      { description: 'Rate limit that every verification of the key counts against.' },
    ),
  ),
})
export const CreateKeysBody = Type.Array(ImportedElement, { maxItems: 100 })
export type CreateKeysBody = Static<typeof CreateKeysBody>
export const CreateKeysReply = Type.Object({
  keyIds: Type.Array(Type.String(), { description: 'Ids of the new keys, in the order of the request.' }),
})
export type CreateKeysReply = Static<typeof CreateKeysReply>

export const CheckKeysBody = Type.Object({
  keys: Type.Array(Type.Record(Type.String(), Type.Unknown()), {
    minItems: 1,
    maxItems: 100,
    description:
      'Elements of `migrations.createKeys`, at most 100 per call. What is wrong with one is said in its place.',
  }),
})
export type CheckKeysBody = Static<typeof CheckKeysBody>
export const CheckKeysReply = Type.Object({
  keys: Type.Array(
    Type.Object({
      outcome: Type.Union([Type.Literal('new'), Type.Literal('exists'), Type.Literal('refused')], {
        description:
          '`new`: would be created. `exists`: a key with this hash exists, a deleted one too, or stands earlier in the call. `refused`: see `reason`.',
      }),
      reason: Type.Optional(Type.String({ description: 'Why the key would be refused.' })),
    }),
    {
      description:
        'One for each key, in the order of the request. What the whole workspace has no room for is not foreseen.',
    },
  ),
})
export type CheckKeysReply = Static<typeof CheckKeysReply>

/** Here a window must last at least a second. */
const QueuedElement = Type.Object({ ...ImportFields, ratelimit: Type.Optional(NewKeyRatelimit) })
export const EnqueueKeysBody = Type.Object({
  migrationId: Type.String({ minLength: 1, maxLength: 256, description: 'Your name for this migration.' }),
  apiId: Type.String({ minLength: 1, maxLength: 256, description: 'Id of the API that the keys belong to.' }),
  keys: Type.Array(QueuedElement, { maxItems: 100, description: 'Keys to import, at most 100 per call.' }),
})
export type EnqueueKeysBody = Static<typeof EnqueueKeysBody>
/** The type of an element in both endpoints. */
export type ImportElement = Static<typeof QueuedElement>

const ImportId = Type.String({
  maxLength: 18,
  pattern: '^[0-9]{1,18}$',
  errorMessage: 'must be the id of an import',
})
const ImportIds = Type.Array(ImportId, {
  minItems: 1,
  maxItems: 100,
  description: 'Ids of failed imports, from migrations.listImports. Ids of others are ignored.',
})

export const ListImportsQuery = Type.Object({
  limit: PageQuery.limit,
  cursor: Type.Optional(
    Type.String({
      maxLength: 18,
      pattern: '^[0-9]{1,18}$',
      errorMessage: 'must be a cursor of this list',
      description: '`cursor` of the previous page.',
    }),
  ),
})
export type ListImportsQuery = Static<typeof ListImportsQuery>
export const ListImportsReply = Type.Object({
  waiting: Type.Integer({
    description: 'Number of queued keys that wait for their import; counts to 10 000.',
  }),
  failed: Type.Integer({ description: 'Number of queued keys that were given up; counts to 10 000.' }),
  imports: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the import.' }),
      migrationId: Type.String({ description: 'Name of the migration, as given.' }),
      apiId: Type.String({ description: 'Id of the API that the key is for.' }),
      keyId: Type.String({ description: 'Id that the key gets.' }),
      start: Type.String({ description: 'The first characters of the key.' }),
      name: Type.Optional(Type.String({ description: 'Display name of the key.' })),
      reason: Type.String({ description: 'Why the last attempt failed.' }),
      attempts: Type.Integer({ description: 'Number of attempts.' }),
      enqueuedAt: Type.Integer({ description: 'When the key was enqueued, Unix milliseconds.' }),
      failedAt: Type.Integer({ description: 'When it was given up, Unix milliseconds.' }),
    }),
    { description: 'One page of the keys that were given up, oldest first.' },
  ),
  cursor: PageReply.cursor,
})
export type ListImportsReply = Static<typeof ListImportsReply>

export const RetryImportsBody = Type.Object({ importIds: ImportIds })
export type RetryImportsBody = Static<typeof RetryImportsBody>
export const RetryImportsReply = Type.Object({
  retried: Type.Integer({ description: 'Number of imports that were queued again.' }),
})
export type RetryImportsReply = Static<typeof RetryImportsReply>

export const DiscardImportsBody = Type.Object({ importIds: ImportIds })
export type DiscardImportsBody = Static<typeof DiscardImportsBody>
export const DiscardImportsReply = Type.Object({
  discarded: Type.Integer({ description: 'Number of imports that were removed.' }),
})
export type DiscardImportsReply = Static<typeof DiscardImportsReply>
