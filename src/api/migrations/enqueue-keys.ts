import { requireKeyBounds } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { KEY_IMPORTS } from './import-queue.ts'
import { importedKey, type KeyToImport, sealTexts } from './imports.ts'
import { insertKeyImports } from './store.ts'

/**
 * Queues keys for import, all or none. `import-queue.ts` later checks what depends on other keys, roles and permissions.
 * @param into An API with a keyspace, and the caller's name of the migration.
 * @throws ApiError PRECONDITION_FAILED when a key has more roles or permissions than the bound, or for a text without a
 *   vault key.
 */
export async function enqueueKeys(
  services: Pick<Services, 'database' | 'clock' | 'vault'>,
  actor: Actor,
  { migrationId, apiId }: { migrationId: string; apiId: string },
  inputs: readonly KeyToImport[],
): Promise<void> {
  if (inputs.length === 0) return
  const { workspaceId } = actor
  const imported = inputs.map(importedKey)
  const sealed = await sealTexts(services, workspaceId, imported)
  const sealedByKey = new Map(sealed.map((one) => [one.keyId, one]))
  await services.database.write(async (tx, invalidate) => {
    await requireKeyBounds(
      tx,
      workspaceId,
      imported.map(({ key }) => ({
        roles: [...new Set(key.roles)],
        permissions: [...new Set(key.permissions)],
      })),
    )
    await insertKeyImports(
      tx,
      actor,
      imported.map(({ key }) => ({ migrationId, apiId, key, sealed: sealedByKey.get(key.id) ?? null })),
      services.clock(),
    )
    invalidate(KEY_IMPORTS) // wakes the importers of all processes
  })
}
