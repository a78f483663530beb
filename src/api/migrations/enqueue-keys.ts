import type { EnqueueKeysBody } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { findApi } from '../apis/store.ts'
import type { Call } from '../call.ts'
import { requireKeyBounds } from '../keys/new-keys.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { KEY_IMPORTS } from './import-queue.ts'
import { readImport, requireFewLinks } from './imports.ts'
import { insertKeyImports } from './store.ts'

/**
 * Accepts keys to be imported soon: all of them are in the queue when this answers, or none. What can be said of a key
 * alone is checked here; what depends on others (its roles, another key of the same hash) by `import-queue.ts`.
 */
export async function enqueueKeys(
  services: Services,
  call: Call,
  { migrationId, apiId, keys }: EnqueueKeysBody,
): Promise<Record<string, never>> {
  requireFewLinks(keys, 'keys')
  const create = anyOf('api.*.create_key', `api.${apiId}.create_key`)
  const encrypt = anyOf('api.*.encrypt_key', `api.${apiId}.encrypt_key`)
  const hasPlaintext = keys.some(({ plaintext = '' }) => plaintext !== '')
  const actor = await authenticate(
    services,
    call,
    anyOf('*', hasPlaintext ? { and: [create, encrypt] } : create),
  )
  const api = await findApi(services.sql, actor.workspaceId, apiId)
  if (api === null) throw notFound(`api ${apiId}`)
  if (api.keyspaceId === null) throw notFound(`keyspace of api ${apiId}`)

  const imports = keys.map((element, index) => readImport(element, `keys.${index}`))
  const plaintexts = imports.flatMap(({ key, plaintext }) =>
    plaintext === null ? [] : { keyId: key.id, plaintext },
  )
  if (imports.length === 0) return {}
  const sealed = plaintexts.length === 0 ? [] : await services.vault.seal(actor.workspaceId, plaintexts)
  const sealedByKey = new Map(sealed.map((one) => [one.keyId, one]))
  await services.database.write(async (tx, touch) => {
    await requireKeyBounds(
      tx,
      actor.workspaceId,
      imports.map(({ key }) => ({
        roles: [...new Set(key.roles)],
        permissions: [...new Set(key.permissions)],
      })),
    )
    await insertKeyImports(
      tx,
      actor,
      imports.map(({ key }) => ({
        migrationId,
        apiId,
        key,
        sealed: sealedByKey.get(key.id) ?? null,
      })),
      services.clock(),
    )
    touch(KEY_IMPORTS) // whoever works on the queue, in whichever process, hears of it
  })
  return {}
}
