import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import type { Transaction } from '../../db/connect.ts'
import { notFound } from '../../errors.ts'
import type { Reference } from '../../lib/link-plan.ts'
import { parseMeta } from '../../lib/meta.ts'
import { ensureIdentities } from '../identities/ensure-identities.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  DEFAULT_LIMIT,
  deleteKeyLimits,
  type KeyLimit,
  type KeyLimitRow,
  newLimitRows,
  writeKeyLimits,
} from './limits/store.ts'
import { type LinkRules, replaceLinks } from './links.ts'
import { requireOwnCredits } from './own-credits.ts'

import { permissionLinks } from './permission-links.ts'
import { type Refill, refillChange, refillColumns, refillOf } from './refill.ts'
import { roleLinks } from './role-links.ts'
import { changeKey, findKey, holdKey, type KeyChange, type KeyRow } from './store.ts'

/** Fields that an update changes. Absent fields stay, null clears. */
export type KeyUpdate = {
  name?: string | null | undefined
  meta?: Record<string, unknown> | null | undefined
  /** The identity with this external id is found or created. */
  externalId?: string | null | undefined
  /** Unix ms; null = never. */
  expiresAt?: number | null | undefined
  /** Credits left; null = the key has no credits and no end of use. */
  remaining?: number | null | undefined
  refill?: Refill | null | undefined
  /**
   * One limit alone; null removes `default`. A null `durationMs` keeps the duration of the existing limit. `default` is
   * created if the key has none, and counts with every verification; one of another name must exist and counts as before.
   */
  ratelimit?: { name: string; limit: number; durationMs: number | null } | null | undefined
  /** Replaces all limits, `default` included. Limits that stay keep their ids. Names are distinct. */
  limits?: readonly KeyLimit[] | undefined
  enabled?: boolean | undefined
  /** Replaces all roles. */
  roles?: readonly Reference[] | undefined
  permissions?: readonly Reference[] | undefined
  /** Names of the changed fields in the caller's words, for the audit log. */
  fieldNames: readonly string[]
}

export type KeyUpdateRules = {
  readonly roles: LinkRules
  readonly permissions: LinkRules
  /** Refuses a limit without a duration on a key that has no limit yet. */
  readonly refuseMissingDuration: () => never
  /** Refuses the change of a limit that the key does not have. */
  readonly refuseUnknownLimit: (name: string) => never
  /** Called for a refill on a key without credits, which would never do anything. May throw. */
  readonly mayRefillUncounted: () => void
}

/**
 * Changes a key in one transaction.
 * @param key From `getKey`.
 * @throws ApiError NOT_FOUND when the key was deleted meanwhile, or for a role or permission as `setLinks`;
 *   PRECONDITION_FAILED at a bound.
 */
export async function updateKey(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { id: keyId, apiId }: { id: string; apiId: string },
  update: KeyUpdate,
  rules: KeyUpdateRules,
): Promise<void> {
  const { workspaceId } = actor
  const { roles, permissions, fieldNames } = update
  const now = services.clock()
  const change = plainChange(update, now)

  await services.database.write(async (tx, invalidate) => {
    const owner = await ownerChange(tx, actor, update, now)
    const hash = await holdKey(tx, workspaceId, keyId)
    const before = hash === null ? null : await findKey(tx, workspaceId, keyId)
    if (hash === null || before === null) throw notFound('key', keyId)
    const remaining = update.remaining === undefined ? before.remaining : update.remaining
    if (update.refill && remaining === null) rules.mayRefillUncounted()
    if (update.remaining !== undefined || update.refill !== undefined) requireOwnCredits(before)
    await changeKey(tx, workspaceId, keyId, { ...change, ...owner }, now)
    if (update.limits) await replaceLimits(tx, actor, { keyId, before: before.limits }, update.limits, now)
    else await changeLimit(tx, actor, { keyId, before: before.limits }, { update, rules, now })
    if (roles) {
      const request = { keyId, references: roles }
      await replaceLinks(roleLinks, tx, actor, request, { rules: rules.roles, now })
    }
    if (permissions) {
      const request = { keyId, references: permissions }
      await replaceLinks(permissionLinks, tx, actor, request, { rules: rules.permissions, now })
    }
    const after = await findKey(tx, workspaceId, keyId)
    const identityIds = new Set([before.identityId, after?.identityId])
    await audit(tx, actor, [
      {
        event: 'key.update',
        description: `updated key ${keyId}: ${fieldNames.join(', ')}`,
        resources: [
          {
            type: 'key',
            id: keyId,
            ...changesOf(fieldsOf(before, update), after && fieldsOf(after, update)),
          },
          { type: 'api', id: apiId },
          // Both the old and the new identity, so that a search for either finds the event.
          ...(identityIds.size === 1
            ? []
            : [...identityIds].flatMap((id) => (id ? [{ type: 'identity', id }] : []))),
        ],
      },
    ])
    invalidate(keyId, hash)
  })
}

/** Fields that an update can change. Roles and permissions have audit events of their own. */
const fieldsOf = (row: KeyRow, { limits, ratelimit }: KeyUpdate) => ({
  name: row.name,
  meta: parseMeta(row.meta),
  ownerId: row.ownerId,
  identityId: row.identityId,
  expires: row.expiresAt,
  remaining: row.remaining,
  refill: refillChange(refillOf(row)),
  ...(limits === undefined
    ? { ratelimit: limitOf(row, ratelimit?.name ?? DEFAULT_LIMIT) }
    : { ratelimits: row.limits.map(limitFields) }),
  enabled: row.enabled,
})

function limitOf({ limits }: KeyRow, wanted: string) {
  const found = limits.find(({ name }) => name === wanted)
  if (found === undefined) return null
  const { name, limit, durationMs: duration } = found
  return name === DEFAULT_LIMIT ? { limit, duration } : { name, limit, duration }
}

const limitFields = ({ name, limit, durationMs, autoApply }: KeyLimit) => ({
  name,
  limit,
  duration: durationMs,
  autoApply,
})

/** Changes that need no look-up. */
function plainChange(
  { name, meta, expiresAt, remaining, refill, enabled }: KeyUpdate,
  now: number,
): KeyChange {
  const change: KeyChange = {}
  if (name !== undefined) change.name = name
  if (meta !== undefined) change.meta = meta === null ? null : JSON.stringify(meta)
  if (expiresAt !== undefined) change.expires_at = expiresAt
  if (remaining !== undefined) change.remaining = remaining
  if (refill !== undefined) Object.assign(change, refillColumns(refill, now))
  if (enabled !== undefined) change.enabled = enabled
  return change
}

/** The identity is found or created. */
async function ownerChange(
  tx: Transaction,
  actor: Actor,
  { externalId }: KeyUpdate,
  now: number,
): Promise<KeyChange> {
  if (externalId === undefined) return {}
  if (externalId === null) return { owner_id: null, identity_id: null }
  const identities = await ensureIdentities(tx, actor, [externalId], now)
  return { owner_id: externalId, identity_id: identities.get(externalId) ?? null }
}

/** Under the key's lock, so that of several replacements at once one is there as a whole. */
async function replaceLimits(
  tx: Transaction,
  { workspaceId }: Actor,
  { keyId, before }: { keyId: string; before: readonly KeyLimitRow[] },
  limits: readonly KeyLimit[],
  now: number,
): Promise<void> {
  const wanted = new Set(limits.map(({ name }) => name))
  const gone = before.filter(({ name }) => !wanted.has(name))
  await deleteKeyLimits(
    tx,
    workspaceId,
    keyId,
    gone.map(({ name }) => name),
  )
  await writeKeyLimits(tx, workspaceId, newLimitRows(keyId, limits), now)
}

/** Changes one limit and leaves the others, under the key's lock. */
async function changeLimit(
  tx: Transaction,
  { workspaceId }: Actor,
  { keyId, before }: { keyId: string; before: readonly KeyLimitRow[] },
  { update: { ratelimit }, rules, now }: { update: KeyUpdate; rules: KeyUpdateRules; now: number },
): Promise<void> {
  if (ratelimit === undefined) return
  if (ratelimit === null) return await deleteKeyLimits(tx, workspaceId, keyId, [DEFAULT_LIMIT])
  const { name, limit } = ratelimit
  const existing = before.find((each) => each.name === name)
  if (existing === undefined && name !== DEFAULT_LIMIT) return rules.refuseUnknownLimit(name)
  const durationMs = ratelimit.durationMs ?? existing?.durationMs
  if (durationMs === undefined) return rules.refuseMissingDuration()
  const autoApply = name === DEFAULT_LIMIT || existing?.autoApply === true
  await writeKeyLimits(tx, workspaceId, newLimitRows(keyId, [{ name, limit, durationMs, autoApply }]), now)
}
