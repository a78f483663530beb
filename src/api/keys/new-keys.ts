import { type AuditActor, type AuditEntry, audit } from '../../audit/log.ts'
import { bytesOfSlugs, requireBound, requirePermissionBounds } from '../../db/bounds.ts'
import type { AnySql } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { listed } from '../../lib/listed.ts'
import type { Invalidate } from '../../records/database.ts'
import { insertEncryptedKeys } from '../../vault/store.ts'
import type { SealedKey } from '../../vault/vault.ts'
import { holdKeyspaces } from '../apis/store.ts'
import { ensureIdentities } from '../identities/ensure-identities.ts'
import { ensurePermissions } from '../permissions/ensure-permissions.ts'
import { holdPermissions, holdRoles } from '../permissions/store.ts'
import { type KeyLimit, newLimitRows, writeKeyLimits } from './limits/store.ts'
import { type Refill, refillColumns } from './refill.ts'
import { insertKeyPermissions, insertKeyRoles, insertKeys, type NewKeyRow } from './store.ts'

/** A key to create, after all checks, with names resolved to ids. */
export type NewKey = {
  id: string
  apiId: string
  hash: string
  start: string
  name: string | null
  ownerId: string | null
  /** The identity with this external id is found or created with the key. */
  externalId: string | null
  meta: Record<string, unknown> | null
  environment: string | null
  enabled: boolean
  expiresAt: number | null
  remaining: number | null
  /** `lastAt`: Unix ms of the last refill; null = none yet. */
  refill: (Refill & { lastAt: number | null }) | null
  /** With distinct names. */
  limits: readonly KeyLimit[]
  roles: readonly { id: string; name: string }[]
  permissions: readonly { id: string; name: string; slug: string }[]
  /** Slugs of further permissions, each once. Those that do not exist are created. */
  ensuredSlugs: readonly string[]
}

/**
 * Writes keys with everything attached to them inside the caller's transaction, with a fixed number of statements.
 * @param options.sealed Encrypted texts of recoverable keys.
 * @param options.duplicates What to do with a key whose hash exists already, in the database or earlier in the list.
 * @returns the keys that were written.
 * @throws ApiError NOT_FOUND for a deleted API; CONFLICT naming the keys whose hash exists already, unless they are skipped;
 *   PRECONDITION_FAILED when a role or permission was deleted meanwhile. The caller must then roll back.
 */
export async function writeNewKeys(
  tx: AnySql,
  actor: AuditActor,
  keys: readonly NewKey[],
  {
    sealed,
    invalidate,
    now,
    duplicates = 'refuse',
  }: {
    sealed: readonly SealedKey[]
    invalidate: Invalidate
    now: number
    duplicates?: 'refuse' | 'skip'
  },
): Promise<NewKey[]> {
  const { workspaceId } = actor
  const keyspaces = await requireKeyspaces(tx, workspaceId, keys)
  await holdNamed(tx, workspaceId, keys)
  await requireKeyBounds(
    tx,
    workspaceId,
    keys.map(({ roles, permissions, ensuredSlugs }) => ({
      roles,
      permissions: [...permissions.map(({ slug }) => slug), ...ensuredSlugs],
    })),
  )
  const externalIds = keys.flatMap(({ externalId }) => externalId ?? [])
  const identities = await ensureIdentities(tx, actor, externalIds, now)
  const slugs = keys.flatMap(({ ensuredSlugs }) => ensuredSlugs)
  const ensured = await ensurePermissions(tx, actor, slugs, now)
  const permissionsOf = ({ permissions, ensuredSlugs }: NewKey) => [
    ...permissions,
    ...ensuredSlugs.flatMap((slug) => ensured.get(slug) ?? []),
  ]
  const rows = keys.map((key) => rowOf(key, { keyspaces, identities }))
  const inserted = new Set(await insertKeys(tx, workspaceId, rows, now))
  const written = keys.filter(({ id }) => inserted.has(id))
  const left = keys.flatMap(({ id }, index) => (inserted.has(id) ? [] : [index]))
  if (left.length > 0 && duplicates === 'refuse')
    throw new ApiError(
      'CONFLICT',
      // Names all of them, so that an import can leave them out and try again. `tollgate import` parses this message.
      left.length === 1
        ? `element ${left[0]}: a key with this hash already exists`
        : `elements ${left.join(', ')}: keys with these hashes already exist`,
    )

  await writeKeyLimits(
    tx,
    workspaceId,
    written.flatMap(({ id, limits }) => newLimitRows(id, limits)),
    now,
  )
  await insertEncryptedKeys(tx, workspaceId, sealed, now)
  await insertKeyRoles(
    tx,
    workspaceId,
    written.flatMap(({ id, roles }) => roles.map((role) => ({ keyId: id, roleId: role.id }))),
    now,
  )
  await insertKeyPermissions(
    tx,
    workspaceId,
    written.flatMap((key) => permissionsOf(key).map(({ id }) => ({ keyId: key.id, permissionId: id }))),
    now,
  )
  await audit(
    tx,
    actor,
    written.flatMap((key) => auditEntries({ ...key, permissions: permissionsOf(key) })),
  )
  // An earlier verification of the text may have cached "not found" under its hash.
  invalidate(...written.map(({ hash }) => hash))
  return written
}

/**
 * @param keys With the slugs of their permissions, each once.
 * @throws ApiError PRECONDITION_FAILED when a key has more roles or permissions than the bound.
 */
export async function requireKeyBounds(
  tx: AnySql,
  workspaceId: WorkspaceId,
  keys: readonly { roles: readonly unknown[]; permissions: readonly string[] }[],
): Promise<void> {
  const roles = keys.reduce((most, key) => Math.max(most, key.roles.length), 0)
  if (roles > 0) await requireBound(tx, workspaceId, { name: 'rolesPerKey', rows: roles })
  const most = { rows: 0, bytes: 0 }
  for (const { permissions } of keys) {
    most.rows = Math.max(most.rows, permissions.length)
    most.bytes = Math.max(most.bytes, bytesOfSlugs(permissions))
  }
  if (most.rows > 0)
    await requirePermissionBounds(tx, workspaceId, { of: 'Key', before: { rows: 0, bytes: 0 }, after: most })
}

/**
 * Locks the named roles and permissions against deletion until the transaction ends.
 * @throws ApiError PRECONDITION_FAILED naming those deleted since they were looked up.
 */
async function holdNamed(tx: AnySql, workspaceId: WorkspaceId, keys: readonly NewKey[]): Promise<void> {
  const roles = new Map(keys.flatMap(({ roles }) => roles.map(({ id, name }) => [id, name])))
  const permissions = new Map(
    keys.flatMap(({ permissions }) => permissions.map(({ id, name }) => [id, name])),
  )
  if (roles.size > 0)
    for (const { id } of await holdRoles(tx, workspaceId, { ids: [...roles.keys()], names: [] }))
      roles.delete(id)
  if (permissions.size > 0)
    for (const { id } of await holdPermissions(tx, workspaceId, { ids: [...permissions.keys()], slugs: [] }))
      permissions.delete(id)
  const gone = [...roles.values(), ...permissions.values()]
  if (gone.length > 0)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `roles or permissions deleted during this call: ${listed(gone)}`,
    )
}

/** Locks the keyspaces that the keys go to. @throws ApiError NOT_FOUND naming an API that was deleted meanwhile. */
async function requireKeyspaces(
  tx: AnySql,
  workspaceId: WorkspaceId,
  keys: readonly NewKey[],
): Promise<Map<string, string>> {
  const apiIds = [...new Set(keys.map(({ apiId }) => apiId))]
  const keyspaces = await holdKeyspaces(tx, workspaceId, apiIds)
  const gone = apiIds.find((id) => !keyspaces.has(id))
  if (gone !== undefined) throw notFound('api', gone)
  return keyspaces
}

const rowOf = (
  key: NewKey,
  { keyspaces, identities }: Record<'keyspaces' | 'identities', ReadonlyMap<string, string>>,
): NewKeyRow => ({
  id: key.id,
  keyspace_id: keyspaces.get(key.apiId) as string, // each has one, see requireKeyspaces
  hash: key.hash,
  start: key.start,
  name: key.name,
  owner_id: key.ownerId,
  identity_id: key.externalId === null ? null : (identities.get(key.externalId) ?? null),
  meta: key.meta === null ? null : JSON.stringify(key.meta),
  environment: key.environment,
  enabled: key.enabled,
  expires_at: key.expiresAt,
  remaining: key.remaining,
  ...refillColumns(key.refill, key.refill?.lastAt ?? null),
})

function auditEntries({ id, apiId, roles, permissions }: NewKey): AuditEntry[] {
  const key = { type: 'key', id }
  return [
    {
      event: 'key.create',
      description: `created key ${id} in API ${apiId}`,
      resources: [key, { type: 'api', id: apiId }],
    },
    ...roles.map(
      (role): AuditEntry => ({
        event: 'authorization.connect_role_and_key',
        description: `connected role ${role.id} and key ${id}`,
        resources: [key, { type: 'role', id: role.id, name: role.name }],
      }),
    ),
    ...permissions.map(
      (permission): AuditEntry => ({
        event: 'authorization.connect_permission_and_key',
        description: `connected permission ${permission.id} and key ${id}`,
        resources: [key, { type: 'permission', id: permission.id, name: permission.name }],
      }),
    ),
  ]
}
