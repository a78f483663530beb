import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { ApiError, badRequest, notFound } from '../../errors.ts'
import { isAddressOrRange } from '../../lib/address.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import type { UpdateApiBody } from './schema.ts'
import { type ApiChange, changeApi, changeKeyspace, type KeyspaceChange, lockApi } from './store.ts'

/** Changes an API's settings; what is not sent stays. Effective on the next verification of its keys. */
export async function updateApi(
  services: Services,
  call: Call,
  body: UpdateApiBody,
): Promise<Record<string, never>> {
  const { apiId, ...settings } = body
  refuseUnreadable(body.ipWhitelist ?? [])
  const actor = await authenticate(services, call, anyOf('*', 'api.*.update_api', `api.${apiId}.update_api`))
  const ofApi: ApiChange = {}
  if (body.name !== undefined) ofApi.name = body.name
  if (body.deleteProtection !== undefined) ofApi.delete_protection = body.deleteProtection
  if (body.ipWhitelist !== undefined) ofApi.ip_whitelist = body.ipWhitelist
  const ofKeyspace: KeyspaceChange = {}
  if (body.storeEncryptedKeys !== undefined) ofKeyspace.store_encrypted_keys = body.storeEncryptedKeys
  if (body.defaultPrefix !== undefined) ofKeyspace.default_prefix = body.defaultPrefix
  if (body.defaultBytes !== undefined) ofKeyspace.default_bytes = body.defaultBytes

  await services.database.write(async (tx, touch) => {
    const api = await lockApi(tx, actor.workspaceId, apiId)
    if (api === null) throw notFound(`api ${apiId}`)
    const now = services.clock()
    await changeApi(tx, actor.workspaceId, apiId, ofApi, now)
    if (Object.keys(ofKeyspace).length > 0) {
      if (api.keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${apiId} has no keyspace`)
      await changeKeyspace(tx, actor.workspaceId, api.keyspaceId, ofKeyspace, now)
    }
    await audit(tx, actor, [
      {
        event: 'api.update',
        description: `updated API ${apiId}: ${Object.keys(body)
          .filter((field) => field !== 'apiId')
          .join(', ')}`,
        resources: [
          {
            type: 'api',
            id: apiId,
            name: body.name ?? api.name,
            ...changesOf(settingsOf(api), { ...settingsOf(api), ...settings }),
          },
        ],
      },
    ])
    touch(apiId)
  })
  return {}
}

const settingsOf = (api: Required<Omit<UpdateApiBody, 'apiId'>>) => ({
  name: api.name,
  deleteProtection: api.deleteProtection,
  ipWhitelist: api.ipWhitelist,
  storeEncryptedKeys: api.storeEncryptedKeys,
  defaultPrefix: api.defaultPrefix,
  defaultBytes: api.defaultBytes,
})

/** @throws ApiError BAD_REQUEST naming the first entry that is neither an address nor a range. */
function refuseUnreadable(list: readonly string[]): void {
  const index = list.findIndex((entry) => !isAddressOrRange(entry))
  if (index >= 0) throw badRequest(`ipWhitelist.${index}: Expected an IP address or a CIDR range`)
}
