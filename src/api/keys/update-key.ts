import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import type { UpdateKeyBody } from '../../doors/v1/keys/schema.ts'
import { badRequest, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { readReferences } from '../../lib/link-plan.ts'
import { parseMeta, readMeta } from '../../lib/meta.ts'
import type { Call } from '../call.ts'
import { ensureIdentities } from '../identities/ensure-identities.ts'
import type { Services } from '../parts.ts'
import { type Actor, authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import { replaceLinks } from './links.ts'
import { refillDayOf } from './new-keys.ts'
import { permissionLinks } from './permission-links.ts'
import { roleLinks } from './role-links.ts'
import {
  changeDefaultLimit,
  changeKey,
  deleteDefaultLimit,
  findKey,
  holdKey,
  type KeyChange,
  type KeyRow,
  upsertDefaultLimit,
} from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'update_key' }

/** Changes a key: what is absent stays, null clears. Everything is checked first, then written in one transaction. */
export async function updateKey(
  services: Services,
  call: Call,
  body: UpdateKeyBody,
): Promise<Record<string, never>> {
  const { keyId } = body
  readMeta(body.meta)
  const roles = body.roles && readReferences(body.roles, 'roles')
  const permissions = body.permissions && readReferences(body.permissions, 'permissions')
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const { workspaceId } = actor
  const key = await findKey(services.sql, workspaceId, keyId)
  if (key === null) throw notFound(`key ${keyId}`)
  requireOn(actor, RIGHT, key.apiId)
  if (body.remaining === null && body.refill)
    throw badRequest('refill: uses that are not counted (remaining is null) cannot be refilled')
  const now = services.clock()
  const change = plainChange(body, now)

  await services.database.write(async (tx, touch) => {
    const owner = await ownerChange(tx, actor, body, now)
    const before = (await holdKey(tx, workspaceId, keyId)) ? await findKey(tx, workspaceId, keyId) : null
    if (before === null) throw notFound(`key ${keyId}`)
    await changeKey(tx, workspaceId, keyId, { ...change, ...owner }, now)
    await changeLimit(tx, actor, body, now)
    if (roles) await replaceLinks(roleLinks, tx, actor, { keyId, references: roles, now })
    if (permissions) await replaceLinks(permissionLinks, tx, actor, { keyId, references: permissions, now })
    const after = await findKey(tx, workspaceId, keyId)
    const identityIds = new Set([before.identityId, after?.identityId])
    await audit(tx, actor, [
      {
        event: 'key.update',
        description: `updated key ${keyId}: ${Object.keys(body)
          .filter((field) => field !== 'keyId')
          .join(', ')}`,
        resources: [
          { type: 'key', id: keyId, ...changesOf(fieldsOf(before), after && fieldsOf(after)) },
          { type: 'api', id: key.apiId },
          // Those that it was taken from and given to: who looks for an identity finds them.
          ...(identityIds.size === 1
            ? []
            : [...identityIds].flatMap((id) => (id ? [{ type: 'identity', id }] : []))),
        ],
      },
    ])
    touch(keyId)
  })
  return {}
}

/** What an update can change, but for roles and permissions: they have entries of their own. */
const fieldsOf = (row: KeyRow) => ({
  name: row.name,
  meta: parseMeta(row.meta),
  ownerId: row.ownerId,
  identityId: row.identityId,
  expires: row.expiresAt,
  remaining: row.remaining,
  refill:
    row.refillAmount === null
      ? null
      : { amount: row.refillAmount, ...(row.refillDay === null ? {} : { refillDay: row.refillDay }) },
  ratelimit: row.ratelimit && { limit: row.ratelimit.limit, duration: row.ratelimit.durationMs },
  enabled: row.enabled,
})

/** What needs no look at the database. @throws ApiError BAD_REQUEST for a day on a daily refill. */
function plainChange(
  { name, meta, expires, remaining, refill, enabled }: UpdateKeyBody,
  now: number,
): KeyChange {
  const change: KeyChange = {}
  if (name !== undefined) change.name = name
  if (meta !== undefined) change.meta = readMeta(meta)
  if (expires !== undefined) change.expires_at = expires === 0 ? null : expires
  if (remaining !== undefined) change.remaining = remaining
  if (refill !== undefined) {
    change.refill_amount = refill === null ? null : refill.amount
    change.refill_day = refill === null ? null : refillDayOf(refill, 'refill').day
    change.last_refill_at = refill === null ? null : now
  }
  if (enabled !== undefined) change.enabled = enabled
  return change
}

/** The identity is found or made. `ownerId` is only looked at when `externalId` is absent. */
async function ownerChange(
  tx: Transaction,
  actor: Actor,
  { externalId, ownerId }: UpdateKeyBody,
  now: number,
): Promise<KeyChange> {
  const wanted = externalId === undefined ? ownerId : externalId
  if (wanted === undefined) return {}
  if (wanted === null || wanted === '') return { owner_id: null, identity_id: null }
  const identities = await ensureIdentities(tx, actor, [wanted], now)
  return { owner_id: wanted, identity_id: identities.get(wanted) ?? null }
}

/** Only the limit `default` is managed here. Without a duration an existing one keeps its own. */
async function changeLimit(
  tx: Transaction,
  { workspaceId }: Actor,
  { keyId, ratelimit }: UpdateKeyBody,
  now: number,
): Promise<void> {
  if (ratelimit === undefined) return
  if (ratelimit === null) return await deleteDefaultLimit(tx, workspaceId, keyId)
  const { limit, duration, refillInterval } = ratelimit
  const durationMs = duration ?? refillInterval
  if (durationMs !== undefined)
    return await upsertDefaultLimit(tx, workspaceId, { id: newId('rl'), keyId, limit, durationMs }, now)
  if (!(await changeDefaultLimit(tx, workspaceId, { keyId, limit }, now)))
    throw badRequest('ratelimit.duration: Required')
}
