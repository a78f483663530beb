import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { type ApiChange, changeApi, changeKeyspace, type KeyspaceChange, lockApi } from './store.ts'

export type ApiSettings = {
  /** Shown to people; need not be unique. */
  name: string
  /** While true, the API cannot be deleted. */
  deleteProtection: boolean
  /** Addresses and CIDR ranges that may use keys of the API, already validated. Null = any address. */
  ipWhitelist: string[] | null
  /** Whether keys of the API may be made recoverable. */
  storeEncryptedKeys: boolean
  /** Prefix of new keys that name none. Null = none. */
  defaultPrefix: string | null
  /** Random bytes of new keys that give no length; 16 to 255. */
  defaultBytes: number
}

/**
 * Changes an API's settings. They apply to the next verification of its keys.
 * @param settings Absent settings stay.
 * @throws ApiError NOT_FOUND; PRECONDITION_FAILED for settings of keys on an API without a keyspace.
 */
export async function updateApi(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  apiId: string,
  settings: Partial<ApiSettings>,
): Promise<void> {
  const ofApi: ApiChange = {}
  if (settings.name !== undefined) ofApi.name = settings.name
  if (settings.deleteProtection !== undefined) ofApi.delete_protection = settings.deleteProtection
  if (settings.ipWhitelist !== undefined) ofApi.ip_whitelist = settings.ipWhitelist
  const ofKeyspace: KeyspaceChange = {}
  if (settings.storeEncryptedKeys !== undefined) ofKeyspace.store_encrypted_keys = settings.storeEncryptedKeys
  if (settings.defaultPrefix !== undefined) ofKeyspace.default_prefix = settings.defaultPrefix
  if (settings.defaultBytes !== undefined) ofKeyspace.default_bytes = settings.defaultBytes

  await services.database.write(async (tx, invalidate) => {
    const api = await lockApi(tx, actor.workspaceId, apiId)
    if (api === null) throw notFound('api', apiId)
    const now = services.clock()
    await changeApi(tx, actor.workspaceId, apiId, ofApi, now)
    if (Object.keys(ofKeyspace).length > 0) {
      if (api.keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${apiId} has no keyspace`)
      await changeKeyspace(tx, actor.workspaceId, api.keyspaceId, ofKeyspace, now)
    }
    await audit(tx, actor, [
      {
        event: 'api.update',
        description: `updated API ${apiId}: ${Object.keys(settings).join(', ')}`,
        resources: [
          {
            type: 'api',
            id: apiId,
            name: settings.name ?? api.name,
            ...changesOf(settingsOf(api), { ...settingsOf(api), ...settings }),
          },
        ],
      },
    ])
    if (settings.ipWhitelist !== undefined) invalidate(apiId) // the only setting that verifications read
  })
}

const settingsOf = (api: ApiSettings): ApiSettings => ({
  name: api.name,
  deleteProtection: api.deleteProtection,
  ipWhitelist: api.ipWhitelist,
  storeEncryptedKeys: api.storeEncryptedKeys,
  defaultPrefix: api.defaultPrefix,
  defaultBytes: api.defaultBytes,
})
