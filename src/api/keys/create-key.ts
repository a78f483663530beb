import type { CreateKeyBody, CreateKeyReply } from '../../doors/v1/keys/schema.ts'
import { ApiError, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { listed } from '../../lib/listed.ts'
import { readMeta } from '../../lib/meta.ts'
import { makeSecret } from '../../verify/secret.ts'
import { findApi } from '../apis/store.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { findPermissionsBySlug, findRolesByName } from '../permissions/store.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../root-keys/authorize.ts'
import { readRatelimit, readRefill, writeNewKeys } from './new-keys.ts'

/** Makes a key. Everything is checked first, then written in one transaction; the order of checks is contract. */
export async function createKey(
  services: Services,
  call: Call,
  body: CreateKeyBody,
): Promise<CreateKeyReply> {
  readMeta(body.meta)
  const actor = await authenticate(
    services,
    call,
    anyOf('*', 'api.*.create_key', `api.${body.apiId}.create_key`),
  )
  const api = await findApi(services.sql, actor.workspaceId, body.apiId)
  if (api === null) throw notFound(`api ${body.apiId}`)
  if (api.keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${api.id} has no keyspace`)

  if (body.recoverable) {
    if (!api.storeEncryptedKeys)
      throw new ApiError('PRECONDITION_FAILED', `api ${api.id} does not store recoverable keys`)
    services.vault.requireOpen()
  }
  const now = services.clock()
  const refill = readRefill(body.refill, body.remaining, { path: 'refill', lastAt: now })
  const ratelimit = readRatelimit(body.ratelimit, 'ratelimit')
  const roles = await requireRoles(services, actor, body.roles ?? [])
  const permissions = await requirePermissions(services, actor, body.permissions ?? [])

  if (body.recoverable) requirePermission(actor, anyOf('*', 'api.*.encrypt_key', `api.${api.id}.encrypt_key`))

  const id = newId('key')
  const secret = makeSecret({
    prefix: body.prefix === '' ? undefined : body.prefix,
    defaultPrefix: api.defaultPrefix,
    byteLength: body.byteLength ?? api.defaultBytes,
  })
  const externalId = body.externalId || body.ownerId || null // an empty text counts as absent
  const key = {
    id,
    apiId: api.id,
    keyspaceId: api.keyspaceId,
    hash: secret.hash,
    start: secret.start,
    name: body.name ?? null,
    ownerId: externalId,
    externalId,
    meta: body.meta ?? null,
    environment: body.environment ?? null,
    enabled: body.enabled ?? true,
    expiresAt: body.expires === undefined || body.expires === 0 ? null : body.expires,
    remaining: body.remaining ?? null,
    refill,
    ratelimit,
    roles,
    permissions,
  }
  const sealed = body.recoverable
    ? await services.vault.seal(actor.workspaceId, [{ keyId: id, plaintext: secret.key }])
    : []
  await services.database.write((tx, touch) => writeNewKeys(tx, actor, [key], { sealed, touch, now }))
  return { keyId: id, key: secret.key }
}

/**
 * @throws ApiError PRECONDITION_FAILED naming the roles that do not exist; INSUFFICIENT_PERMISSIONS where the root key
 *   could not have made them either.
 */
async function requireRoles(services: Services, actor: Actor, names: readonly string[]) {
  if (names.length === 0) return []
  const roles = await findRolesByName(services.sql, actor.workspaceId, names)
  const missing = names.filter((name) => !roles.some((role) => role.name === name))
  refuseMissing(actor, { kind: 'roles', missing, create: 'rbac.*.create_role' })
  return roles
}

/** As {@link requireRoles}, for permissions by slug. */
async function requirePermissions(services: Services, actor: Actor, slugs: readonly string[]) {
  if (slugs.length === 0) return []
  const permissions = await findPermissionsBySlug(services.sql, actor.workspaceId, slugs)
  const missing = slugs.filter((slug) => !permissions.some((permission) => permission.slug === slug))
  refuseMissing(actor, { kind: 'permissions', missing, create: 'rbac.*.create_permission' })
  return permissions
}

function refuseMissing(
  actor: Actor,
  { kind, missing, create }: { kind: string; missing: string[]; create: string },
): void {
  if (missing.length === 0) return
  requirePermission(actor, anyOf('*', create))
  throw new ApiError('PRECONDITION_FAILED', `${kind} not found: ${listed([...new Set(missing)])}`)
}
