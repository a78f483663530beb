import { writeNewKeys } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type ImportContext, importedKey, type KeyToImport, resolveImport, sealTexts } from './imports.ts'

/**
 * Imports keys in one transaction: all or none.
 * @param imports The keys, each with its API from `requireApi`.
 * @param context The names that the keys use, checked by `requireNamed`.
 * @returns the key ids in the same order.
 * @throws ApiError CONFLICT naming the keys whose hash exists already; PRECONDITION_FAILED at a bound of the workspace,
 *   when a role or permission was deleted meanwhile, or for a text without a vault key.
 */
export async function createKeys(
  services: Pick<Services, 'database' | 'clock' | 'vault'>,
  actor: Actor,
  imports: readonly { api: { id: string }; key: KeyToImport }[],
  context: ImportContext,
): Promise<string[]> {
  if (imports.length === 0) return []
  const imported = imports.map(({ api, key }) => ({ api, ...importedKey(key) }))
  const sealed = await sealTexts(services, actor.workspaceId, imported)
  const keys = imported.map(({ api, key }) => resolveImport(key, api, context))
  const now = services.clock()
  await services.database.write((tx, invalidate) =>
    writeNewKeys(tx, actor, keys, { sealed, invalidate, now }),
  )
  return keys.map(({ id }) => id)
}
