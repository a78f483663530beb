import { type Static, Type } from '@sinclair/typebox'
import { getApi, requireKeyspace } from '../../../api/apis/get-api.ts'
import type { Keep } from '../../../api/idempotency/answers.ts'
import { LINKS_MAX } from '../../../api/migrations/imports.ts'
import { type KeyToMigrate, migrateKeys } from '../../../api/migrations/migrate-keys.ts'
import { anyOf, authenticate } from '../../../api/root-keys/authorize.ts'
import { InvalidInput } from '../../../errors.ts'
import { KEY_HASH_WANTED, readKeyHash } from '../../../lib/key-hash.ts'
import type { DoorServices, Endpoint, HttpCall } from '../../http/endpoint.ts'
import { create } from '../endpoint.ts'
import { readLimits } from '../limits.ts'
import { requireShortMeta } from '../meta.ts'
import { Closed, Expires, Id, Meta, RatelimitRequest, Slug } from '../schema.ts'
import { readNewCredits } from './fields.ts'
import { CreditsRequest } from './schema.ts'

const MigratedKey = Closed({
  hash: Type.String({
    minLength: 3,
    maxLength: 256,
    description: 'SHA-256 of the key’s UTF-8 text, as base64, base64url or hex.',
  }),
  name: Type.Optional(Type.String({ minLength: 1, maxLength: 255, description: 'Display name of the key.' })),
  externalId: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description: 'Your own id of the user or organisation. Its identity is created if missing.',
    }),
  ),
  meta: Type.Optional(Meta('Your own data, returned by every verification.')),
  roles: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 128 }), {
      maxItems: 100,
      description: 'Names of roles. Roles that do not exist are created, without permissions.',
    }),
  ),
  permissions: Type.Optional(
    Type.Array(Slug, {
      maxItems: 1000,
      description: 'Slugs of permissions. Permissions that do not exist are created.',
    }),
  ),
  expires: Type.Optional(Expires),
  enabled: Type.Optional(
    Type.Boolean({ default: true, description: 'False refuses every verification of the key.' }),
  ),
  credits: Type.Optional(CreditsRequest),
  ratelimits: Type.Optional(
    Type.Array(RatelimitRequest, {
      maxItems: 50,
      description: 'Rate limits of the key. Their names are distinct.',
    }),
  ),
})

const MigrateKeysBody = Closed({
  migrationId: Type.String({
    minLength: 3,
    maxLength: 255,
    description: 'Your name for this migration. It is not looked up.',
  }),
  apiId: Id('Id of the API that the keys belong to.', { minLength: 3 }),
  keys: Type.Array(MigratedKey, {
    minItems: 1,
    maxItems: 1000,
    description: 'The keys. Roles and permissions of all of them together are at most 10 000.',
  }),
})
type MigrateKeysBody = Static<typeof MigrateKeysBody>

const MigrateKeysData = Type.Object({
  migrated: Type.Array(
    Type.Object({
      hash: Type.String({ description: 'The hash as it was sent.' }),
      keyId: Type.String({ description: 'Id of the new key.' }),
    }),
    { description: 'The keys that were imported, in the order of the request.' },
  ),
  failed: Type.Array(Type.String(), {
    description: 'Hashes that exist already or stand earlier in the list; nothing was changed for them.',
  }),
})
type MigrateKeysData = Static<typeof MigrateKeysData>

export const migrateKeysEndpoint: Endpoint = create(
  '/v2/keys.migrateKeys',
  {
    input: MigrateKeysBody,
    reply: MigrateKeysData,
    summary: 'Import keys of another system by their hashes',
    errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
  },
  migrate,
)

async function migrate(
  services: DoorServices,
  call: HttpCall,
  body: MigrateKeysBody,
  keep: Keep<MigrateKeysData>,
): Promise<MigrateKeysData> {
  const { apiId } = body
  const rights = anyOf('*', 'api.*.create_key', `api.${apiId}.create_key`)
  const actor = await authenticate(services, call, rights)
  const api = requireKeyspace(await getApi(services, actor, apiId))
  const keys = body.keys.map(readKey)
  requireFewLinks(keys)
  const present = (ids: ReadonlyMap<string, string>): MigrateKeysData => {
    const left = new Map(ids)
    const data: MigrateKeysData = { migrated: [], failed: [] }
    for (const [index, { hash: sent }] of body.keys.entries()) {
      const { hash } = keys[index] as KeyToMigrate // one for each
      const keyId = left.get(hash)
      if (keyId === undefined) data.failed.push(sent)
      else data.migrated.push({ hash: sent, keyId })
      left.delete(hash) // a second one with this hash failed
    }
    return data
  }
  return present(await migrateKeys(services, actor, api, keys, (tx, ids) => keep(tx, present(ids))))
}

/** @throws InvalidInput naming the field of the key. */
function readKey(
  { hash: sent, meta, credits, ratelimits = [], ...key }: MigrateKeysBody['keys'][number],
  index: number,
): KeyToMigrate {
  const hash = readKeyHash(sent)
  if (hash === null) throw new InvalidInput(`keys.${index}.hash`, KEY_HASH_WANTED)
  requireShortMeta(meta)
  return {
    hash,
    name: key.name ?? null,
    externalId: key.externalId ?? null,
    meta: meta ?? null,
    enabled: key.enabled ?? true,
    expiresAt: key.expires ?? null,
    ...readNewCredits(credits),
    limits: readLimits(ratelimits),
    roles: [...new Set(key.roles)],
    permissions: [...new Set(key.permissions)],
  }
}

/** Each is a row and an audit event. @throws InvalidInput */
function requireFewLinks(keys: readonly KeyToMigrate[]): void {
  const links = keys.reduce((sum, { roles, permissions }) => sum + roles.length + permissions.length, 0)
  if (links > LINKS_MAX)
    throw new InvalidInput(
      'keys',
      `the keys of a call may have ${LINKS_MAX} roles and permissions in all, these have ${links}`,
    )
}
