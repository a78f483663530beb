import { ApiError } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { makeSecret } from '../../verify/secret.ts'
import type { ApiRow } from '../apis/store.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import { findPermissionsBySlug, findRolesByName } from '../permissions/store.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type NewKey, writeNewKeys } from './new-keys.ts'
import type { Refill } from './refill.ts'

/** A key to create. Its roles and permissions are already looked up. */
export type KeyToCreate = Omit<NewKey, 'id' | 'apiId' | 'hash' | 'start' | 'ownerId' | 'refill'> & {
  /** Text before the key's underscore; null = the API's default. */
  prefix: string | null
  /** Random bytes, 16 to 255; null = the API's default. */
  byteLength: number | null
  refill: Refill | null
  /** Also store the text encrypted. Call {@link requireRecoverable} first. */
  isRecoverable: boolean
}

/**
 * Creates a key.
 * @param api From `getApiWithKeys`.
 * @returns its id and its text. Only the hash of the text is stored, unless the key is recoverable.
 * @throws ApiError PRECONDITION_FAILED at a bound of the workspace, or when a role or permission was deleted meanwhile.
 */
export async function createKey(
  services: Pick<Services, 'database' | 'clock' | 'vault'>,
  actor: Actor,
  api: Pick<ApiRow, 'id' | 'defaultPrefix' | 'defaultBytes'>,
  { prefix, byteLength, isRecoverable, refill, ...fields }: KeyToCreate,
  keep: Keep<{ id: string; text: string }> = keepNothing,
): Promise<{ id: string; text: string }> {
  const now = services.clock()
  const id = newId('key')
  const secret = makeSecret({
    prefix: prefix ?? undefined,
    defaultPrefix: api.defaultPrefix,
    byteLength: byteLength ?? api.defaultBytes,
  })
  const key: NewKey = {
    ...fields,
    id,
    apiId: api.id,
    hash: secret.hash,
    start: secret.start,
    ownerId: fields.externalId,
    refill: refill && { ...refill, lastAt: now },
  }
  const sealed = isRecoverable
    ? await services.vault.seal(actor.workspaceId, [{ keyId: id, plaintext: secret.key }])
    : []
  const made = { id, text: secret.key }
  await services.database.write(async (tx, invalidate) => {
    await writeNewKeys(tx, actor, [key], { sealed, invalidate, now })
    await keep(tx, made)
  })
  return made
}

/** Checks that keys of this API can be stored encrypted. @throws ApiError PRECONDITION_FAILED */
export function requireRecoverable(
  { vault }: Pick<Services, 'vault'>,
  { id, storeEncryptedKeys }: Pick<ApiRow, 'id' | 'storeEncryptedKeys'>,
): void {
  if (!storeEncryptedKeys)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `api ${id} does not store recoverable keys; switch on storeEncryptedKeys with apis.updateApi`,
    )
  vault.requireOpen()
}

/** The named things that exist, and the names that do not. */
export type Named<T> = { found: T[]; missing: string[] }

/** Roles for a new key, by name. */
export async function findNamedRoles(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  names: readonly string[],
): Promise<Named<NewKey['roles'][number]>> {
  if (names.length === 0) return { found: [], missing: [] }
  const found = await findRolesByName(sql, workspaceId, names)
  return { found, missing: names.filter((name) => !found.some((role) => role.name === name)) }
}

/** Permissions for a new key, by slug. */
export async function findNamedPermissions(
  { sql }: Pick<Services, 'sql'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  slugs: readonly string[],
): Promise<Named<NewKey['permissions'][number]>> {
  if (slugs.length === 0) return { found: [], missing: [] }
  const found = await findPermissionsBySlug(sql, workspaceId, slugs)
  return { found, missing: slugs.filter((slug) => !found.some((permission) => permission.slug === slug)) }
}
