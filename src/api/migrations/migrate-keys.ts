import { newId } from '../../lib/ids.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import { type NewKey, writeNewKeys } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import { ensureRoles } from '../permissions/ensure-permissions.ts'
import type { Actor } from '../root-keys/authorize.ts'

/** A key of another system. Roles and permissions that do not exist are created. */
export type KeyToMigrate = Pick<
  NewKey,
  'hash' | 'name' | 'externalId' | 'meta' | 'enabled' | 'expiresAt' | 'remaining' | 'limits'
> & {
  refill: Omit<NonNullable<NewKey['refill']>, 'lastAt'> | null
  /** Names, each once. */
  roles: readonly string[]
  /** Slugs, each once. */
  permissions: readonly string[]
}

/**
 * Imports the keys whose hash is new, in one transaction. Of two with one hash, the first.
 * @param api Has a keyspace.
 * @returns the ids of the imported keys by hash.
 * @throws ApiError NOT_FOUND when the API was deleted meanwhile; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function migrateKeys(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  api: { id: string },
  keys: readonly KeyToMigrate[],
  keep: Keep<ReadonlyMap<string, string>> = keepNothing,
): Promise<Map<string, string>> {
  const now = services.clock()
  const withIds = keys.map((key) => ({ ...key, id: newId('key') }))
  return await services.database.write(async (tx, invalidate) => {
    const roles = await ensureRoles(
      tx,
      actor,
      keys.flatMap((key) => key.roles),
      now,
    )
    const rows = withIds.map(
      ({ permissions, refill, ...key }): NewKey => ({
        ...key,
        apiId: api.id,
        start: '',
        ownerId: key.externalId,
        environment: null,
        refill: refill && { ...refill, lastAt: now },
        roles: key.roles.flatMap((name) => roles.get(name) ?? []),
        permissions: [],
        ensuredSlugs: permissions,
      }),
    )
    const written = await writeNewKeys(tx, actor, rows, { sealed: [], invalidate, now, duplicates: 'skip' })
    const ids = new Map(written.map(({ id, hash }) => [hash, id]))
    await keep(tx, ids)
    return ids
  })
}
