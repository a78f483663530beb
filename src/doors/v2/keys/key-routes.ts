import { getApi } from '../../../api/apis/get-api.ts'
import { deleteKey } from '../../../api/keys/delete-key.ts'
import { textNotFound, whoami } from '../../../api/keys/whoami.ts'
import { authenticate, holdsOn } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { create, post } from '../endpoint.ts'
import { EmptyReply } from '../schema.ts'
import { createKeyEndpoint } from './create-key.ts'
import { plaintextsOf, requireDecryption } from './decryption.ts'
import { keyObject } from './key-object.ts'
import { keyWithRight } from './key-with-right.ts'
import { RerollKeyBody, rerollKeyEndpoint } from './reroll-key.ts'
import {
  CreateKeyBody,
  CreateKeyData,
  Credits,
  DeleteKeyBody,
  GetKeyBody,
  KeyObject,
  UpdateCreditsBody,
  UpdateKeyBody,
  WhoamiBody,
} from './schema.ts'
import { updateCreditsEndpoint } from './update-credits.ts'
import { updateKeyEndpoint } from './update-key.ts'

/** Endpoints that create, read, change and delete keys. */
export const keyRecordRoutes: Endpoint[] = [
  create(
    '/v2/keys.createKey',
    {
      input: CreateKeyBody,
      reply: CreateKeyData,
      summary: 'Create a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    createKeyEndpoint,
  ),
  post(
    '/v2/keys.getKey',
    {
      input: GetKeyBody,
      reply: KeyObject,
      summary: 'Get a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, decrypt = false }) => {
      const { actor, key } = await keyWithRight(services, call, 'read_key', keyId)
      if (!decrypt) return keyObject(key)
      requireDecryption(services, actor, await getApi(services, actor, key.apiId))
      const plaintexts = await plaintextsOf(services, actor, key.apiId, [key])
      return keyObject(key, plaintexts.get(keyId))
    },
  ),
  post(
    '/v2/keys.whoami',
    {
      input: WhoamiBody,
      reply: KeyObject,
      summary: 'Get a key by the key itself',
      errors: ['NOT_FOUND'],
    },
    async (services, call, { key: text }) => {
      const actor = await authenticate(services, call)
      const key = await whoami(services, actor, text)
      if (!holdsOn(actor, { resource: 'api', action: 'read_key' }, key.apiId)) throw textNotFound()
      return keyObject(key)
    },
  ),
  post(
    '/v2/keys.updateKey',
    {
      input: UpdateKeyBody,
      reply: EmptyReply,
      summary: 'Update a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateKeyEndpoint,
  ),
  post(
    '/v2/keys.deleteKey',
    { input: DeleteKeyBody, reply: EmptyReply, summary: 'Delete a key', errors: ['NOT_FOUND'] },
    async (services, call, { keyId, permanent: isPermanent = false }) => {
      const { actor, key } = await keyWithRight(services, call, 'delete_key', keyId)
      await deleteKey(services, actor, key, { isPermanent })
      return {}
    },
  ),
  post(
    '/v2/keys.updateCredits',
    {
      input: UpdateCreditsBody,
      reply: Credits,
      summary: 'Change the credits of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateCreditsEndpoint,
  ),
  create(
    '/v2/keys.rerollKey',
    {
      input: RerollKeyBody,
      reply: CreateKeyData,
      summary: 'Replace a key with a new one that is equal to it',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    rerollKeyEndpoint,
  ),
]
