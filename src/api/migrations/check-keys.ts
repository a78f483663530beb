import { boundReachedBy } from '../../db/bounds.ts'
import { ApiError } from '../../errors.ts'
import { listed } from '../../lib/listed.ts'
import { requireKeyBounds } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { importedKey, type KeyToImport, missingOf, readImportContext } from './imports.ts'
import { findTakenHashes } from './store.ts'

/** `new`: would be created; `exists`: a key has this hash; `refused`: would be refused, with the reason. */
export type CheckedKey = { outcome: 'new' | 'exists' } | { outcome: 'refused'; reason: string }

/**
 * What an import of these keys would do with each of them alone. Writes nothing. It does not foresee bounds of the whole
 * workspace, such as its number of keys, nor what changes until the import.
 * @param imports With the id of their APIs, which may not exist.
 * @returns one for each, in the same order. A later key with the hash of an earlier one exists.
 */
export async function checkKeys(
  services: Pick<Services, 'sql' | 'vault'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  imports: readonly { apiId: string; key: KeyToImport }[],
): Promise<CheckedKey[]> {
  if (imports.length === 0) return []
  const { sql, vault } = services
  const context = await readImportContext(sql, workspaceId, {
    apiIds: imports.map(({ apiId }) => apiId),
    keys: imports.map(({ key }) => key),
  })
  const imported = imports.map(({ apiId, key }) => ({ apiId, ...importedKey(key) }))
  const taken = new Set(await findTakenHashes(sql, [...new Set(imported.map(({ key }) => key.hash))]))
  const areSmall = (await boundOf(imported.map(({ key }) => key))) === null
  const checked: CheckedKey[] = []
  for (const { apiId, key, plaintext } of imported) {
    const api = context.apis.get(apiId)
    const roles = missingOf(key.roles, context.roles)
    const permissions = missingOf(key.permissions, context.permissions)
    const bound = areSmall ? null : await boundOf([key])
    if (api === undefined) checked.push(refused(`api ${apiId} not found`))
    else if (api.keyspaceId === null) checked.push(refused(`api ${apiId} has no keyspace`))
    else if (roles.length > 0) checked.push(refused(`roles not found: ${listed(roles)}`))
    else if (permissions.length > 0) checked.push(refused(`permissions not found: ${listed(permissions)}`))
    else if (bound !== null) checked.push(refused(bound))
    else if (plaintext !== null && !vault.isOpen) checked.push(refused(NO_VAULT_KEY))
    else {
      checked.push({ outcome: taken.has(key.hash) ? 'exists' : 'new' })
      taken.add(key.hash)
    }
  }
  return checked

  /** Which bound one of the keys exceeds by itself, in words. */
  async function boundOf(
    keys: readonly Pick<KeyToImport, 'roles' | 'permissions'>[],
  ): Promise<string | null> {
    const sizes = keys.map((key) => ({
      roles: [...new Set(key.roles)],
      permissions: [...new Set(key.permissions)],
    }))
    try {
      await requireKeyBounds(sql, workspaceId, sizes)
      return null
    } catch (cause) {
      const reached = cause instanceof ApiError ? cause : boundReachedBy(cause)
      if (reached === null) throw cause
      return reached.message
    }
  }
}

const refused = (reason: string): CheckedKey => ({ outcome: 'refused', reason })
const NO_VAULT_KEY =
  'its text would be stored encrypted, and this server has no vault key: set TOLLGATE_VAULT_KEY'
