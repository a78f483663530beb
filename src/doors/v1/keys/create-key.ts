import { getApiWithKeys } from '../../../api/apis/get-api.ts'
import {
  createKey,
  findNamedPermissions,
  findNamedRoles,
  type Named,
  requireRecoverable,
} from '../../../api/keys/create-key.ts'
import { defaultLimit } from '../../../api/keys/limits/store.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../../../api/root-keys/authorize.ts'
import { ApiError } from '../../../errors.ts'
import { listed } from '../../../lib/listed.ts'
import { readMeta } from '../../../lib/meta.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { expiryOf, readRatelimit, readRefill } from './fields.ts'
import type { CreateKeyBody, CreateKeyReply } from './schema.ts'

/** Checks everything before it creates anything. The order of checks is contract. */
export async function createKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: CreateKeyBody,
): Promise<CreateKeyReply> {
  const { apiId, recoverable: isRecoverable = false, meta = null } = body
  readMeta(meta)
  const rights = anyOf('*', 'api.*.create_key', `api.${apiId}.create_key`)
  const actor = await authenticate(services, call, rights)
  const api = await getApiWithKeys(services, actor, apiId)
  if (isRecoverable) requireRecoverable(services, api)
  const refill = readRefill(body.refill, body.remaining, 'refill')
  const ratelimit = readRatelimit(body.ratelimit, 'ratelimit')
  const named = await findNamedRoles(services, actor, body.roles ?? [])
  const roles = requireAll(actor, named, { kind: 'roles', create: 'rbac.*.create_role' })
  const allowed = await findNamedPermissions(services, actor, body.permissions ?? [])
  const permissions = requireAll(actor, allowed, { kind: 'permissions', create: 'rbac.*.create_permission' })
  if (isRecoverable) requirePermission(actor, anyOf('*', 'api.*.encrypt_key', `api.${api.id}.encrypt_key`))

  const { id, text } = await createKey(services, actor, api, {
    prefix: body.prefix || null,
    byteLength: body.byteLength ?? null,
    isRecoverable,
    name: body.name ?? null,
    externalId: body.externalId || body.ownerId || null, // an empty text counts as absent
    meta,
    environment: body.environment ?? null,
    enabled: body.enabled ?? true,
    expiresAt: expiryOf(body.expires),
    remaining: body.remaining ?? null,
    refill,
    limits: ratelimit === null ? [] : [defaultLimit(ratelimit)],
    roles,
    permissions,
    ensuredSlugs: [],
  })
  return { keyId: id, key: text }
}

/**
 * @throws ApiError PRECONDITION_FAILED naming the missing ones; INSUFFICIENT_PERMISSIONS when the root key has no right to
 *   create them either.
 */
function requireAll<T>(
  actor: Actor,
  { found, missing }: Named<T>,
  { kind, create }: { kind: string; create: string },
): T[] {
  if (missing.length === 0) return found
  requirePermission(actor, anyOf('*', create))
  throw new ApiError('PRECONDITION_FAILED', `${kind} not found: ${listed([...new Set(missing)])}`)
}
