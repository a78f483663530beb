import { getApi, requireKeyspace } from '../../../api/apis/get-api.ts'
import type { Keep } from '../../../api/idempotency/answers.ts'
import { createKey, findNamedRoles, requireRecoverable } from '../../../api/keys/create-key.ts'
import { type Actor, authenticate, holdsOn } from '../../../api/root-keys/authorize.ts'
import { notFound } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { readLimits } from '../limits.ts'
import { requireShortMeta } from '../meta.ts'
import { readNewCredits } from './fields.ts'
import type { CreateKeyBody, CreateKeyData } from './schema.ts'

/** The order of checks is contract. Without the right to create keys in it, an API is not found. */
export async function createKeyEndpoint(
  services: DoorServices,
  call: HttpCall,
  body: CreateKeyBody,
  keep: Keep<CreateKeyData>,
): Promise<CreateKeyData> {
  const { apiId, meta = null, permissions = [] } = body
  const actor = await authenticate(services, call)
  const found = await getApi(services, actor, apiId)
  requireOrHide(actor, 'create_key', apiId)
  const api = requireKeyspace(found)
  if (body.recoverable) {
    services.vault.requireOpen()
    requireOrHide(actor, 'encrypt_key', apiId)
    requireRecoverable(services, api)
  }
  requireShortMeta(meta)
  const credits = readNewCredits(body.credits)
  const limits = readLimits(body.ratelimits ?? [])
  const { found: roles, missing } = await findNamedRoles(services, actor, body.roles ?? [])
  if (missing[0] !== undefined) throw notFound('role', missing[0])

  const key = {
    prefix: body.prefix ?? null,
    byteLength: body.byteLength ?? null,
    isRecoverable: body.recoverable ?? false,
    name: body.name ?? null,
    externalId: body.externalId ?? null,
    meta,
    environment: null,
    enabled: body.enabled ?? true,
    expiresAt: body.expires ?? null,
    ...credits,
    limits,
    roles,
    permissions: [],
    ensuredSlugs: [...new Set(permissions)],
  }
  return presentNew(await createKey(services, actor, api, key, (tx, made) => keep(tx, presentNew(made))))
}

export const presentNew = ({ id, text }: { id: string; text: string }): CreateKeyData => ({
  keyId: id,
  key: text,
})

function requireOrHide(actor: Actor, action: 'create_key' | 'encrypt_key', apiId: string): void {
  if (!holdsOn(actor, { resource: 'api', action }, apiId)) throw notFound('api', apiId)
}
