import { decryptKeys } from '../../../api/keys/decryption.ts'
import { deleteKey } from '../../../api/keys/delete-key.ts'
import { whoami } from '../../../api/keys/whoami.ts'
import {
  anyOf,
  authenticate,
  type Right,
  requireOn,
  requireOnAny,
  requireRight,
} from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EraseReply } from '../erase-reply.ts'
import { EmptyReply } from '../page.ts'
import { AskServersReply } from '../server-answers.ts'
import { askServersEndpoint } from './ask-servers.ts'
import { createKeyEndpoint } from './create-key.ts'
import { eraseKeyEndpoint } from './erase-key.ts'
import { explainKeyEndpoint } from './explain-key.ts'
import { keyVerifications } from './get-verifications.ts'
import { keyObject, whoamiObject } from './key-object.ts'
import { lastUsedEndpoint } from './last-used.ts'
import { addEndpoint, PERMISSIONS, ROLES, removeEndpoint, setEndpoint } from './links.ts'
import { listKeysOfAllApis } from './list-keys.ts'
import { rerollKeyEndpoint } from './reroll-key.ts'
import { authenticateOnKey } from './right-on-key.ts'
import {
  AskServersBody,
  AttachPermissionsBody,
  AttachRolesBody,
  CreateKeyBody,
  CreateKeyReply,
  DeleteKeyBody,
  EraseKeyBody,
  ExplainKeyBody,
  ExplainKeyReply,
  GetKeyQuery,
  GetLastUsedQuery,
  GetLastUsedReply,
  KeyObject,
  KeyVerificationsQuery,
  KeyVerificationsReply,
  LinkedReply,
  ListKeysOfAllApisQuery,
  ListKeysOfAllApisReply,
  RemovePermissionsBody,
  RemoveRolesBody,
  RerollKeyBody,
  RerollKeyReply,
  SearchKeysQuery,
  SearchKeysReply,
  UpdateKeyBody,
  UpdateRemainingBody,
  UpdateRemainingReply,
  VerifyKeyBody,
  VerifyKeyReply,
  WhoamiBody,
  WhoamiReply,
} from './schema.ts'
import { searchKeysEndpoint } from './search-keys.ts'
import { updateKeyEndpoint } from './update-key.ts'
import { updateRemainingEndpoint } from './update-remaining.ts'
import { verifyKey } from './verify-key.ts'

const READ_KEY: Right = { resource: 'api', action: 'read_key' }

/** Schemas and rights of the key endpoints. `api/keys/` does the work. */
export const keyRoutes: Endpoint[] = [
  post(
    '/v1/keys.createKey',
    {
      input: CreateKeyBody,
      reply: CreateKeyReply,
      summary: 'Create a key',
      introduced: '2023-12-06',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    createKeyEndpoint,
  ),
  get(
    '/v1/keys.getKey',
    {
      input: GetKeyQuery,
      reply: KeyObject,
      summary: 'Get a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { keyId, decrypt = false }) => {
      const { actor, key } = await authenticateOnKey(services, call, 'read_key', keyId)
      if (!decrypt) return keyObject(key)
      const { id, apiId } = key
      requireRight(actor, anyOf('*', 'api.*.decrypt_key', `api.${apiId}.decrypt_key`), 'decrypt keys')
      const plaintexts = await decryptKeys(services, actor, apiId, [key])
      return keyObject(key, plaintexts.get(id))
    },
  ),
  post(
    '/v1/keys.updateKey',
    {
      input: UpdateKeyBody,
      reply: EmptyReply,
      summary: 'Update a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateKeyEndpoint,
  ),
  post(
    '/v1/keys.deleteKey',
    { input: DeleteKeyBody, reply: EmptyReply, summary: 'Delete a key', errors: ['NOT_FOUND'] },
    async (services, call, { keyId, permanent: isPermanent = false }) => {
      const { actor, key } = await authenticateOnKey(services, call, 'delete_key', keyId)
      await deleteKey(services, actor, key, { isPermanent })
      return {}
    },
  ),
  post(
    '/v1/keys.rerollKey',
    {
      input: RerollKeyBody,
      reply: RerollKeyReply,
      summary: 'Replace a key with a new one that is equal to it',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    rerollKeyEndpoint,
  ),
  post(
    '/v1/keys.eraseKey',
    {
      input: EraseKeyBody,
      reply: EraseReply,
      summary: 'Erase a key and every trace of its id, also after it was deleted',
      errors: ['NOT_FOUND'],
    },
    eraseKeyEndpoint,
  ),
  post(
    '/v1/keys.updateRemaining',
    {
      input: UpdateRemainingBody,
      reply: UpdateRemainingReply,
      summary: 'Change the credits of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateRemainingEndpoint,
  ),
  post(
    '/v1/keys.verifyKey',
    {
      input: VerifyKeyBody,
      reply: VerifyKeyReply,
      summary: 'Verify a key',
      access: 'public',
      isFastPath: true,
      errors: ['FORBIDDEN'],
    },
    verifyKey,
  ),
  post(
    '/v1/keys.whoami',
    {
      input: WhoamiBody,
      reply: WhoamiReply,
      summary: 'Get the record of a key by the key itself',
      errors: ['NOT_FOUND'],
    },
    async (services, call, body) => {
      const actor = await authenticate(services, call)
      requireOnAny(actor, READ_KEY)
      const key = await whoami(services, actor, body.key)
      requireOn(actor, READ_KEY, key.apiId)
      return whoamiObject(key)
    },
  ),
  get(
    '/v1/keys.listKeys',
    {
      input: ListKeysOfAllApisQuery,
      reply: ListKeysOfAllApisReply,
      summary: 'List the keys of an identity, a role or a permission in all APIs',
      errors: ['NOT_FOUND'],
    },
    listKeysOfAllApis,
  ),
  get(
    '/v1/keys.searchKeys',
    {
      input: SearchKeysQuery,
      reply: SearchKeysReply,
      summary: 'Search keys of one API or of all',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    searchKeysEndpoint,
  ),
  get(
    '/v1/keys.getLastUsed',
    {
      input: GetLastUsedQuery,
      reply: GetLastUsedReply,
      summary: 'Get the hours in which keys were last used',
    },
    lastUsedEndpoint,
  ),
  post(
    '/v1/keys.explainKey',
    {
      input: ExplainKeyBody,
      reply: ExplainKeyReply,
      summary: 'Explain whether a key would pass now, check by check',
      errors: ['NOT_FOUND'],
    },
    explainKeyEndpoint,
  ),
  post(
    '/v1/keys.askServers',
    {
      input: AskServersBody,
      reply: AskServersReply,
      summary: 'Ask every server on the database what it answers about a key, also after it was deleted',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    askServersEndpoint,
  ),
  get(
    '/v1/keys.getVerifications',
    {
      input: KeyVerificationsQuery,
      reply: KeyVerificationsReply,
      summary: 'Count verifications of keys by day',
      errors: ['NOT_FOUND'],
    },
    keyVerifications,
  ),
  post(
    '/v1/keys.addPermissions',
    {
      input: AttachPermissionsBody,
      reply: LinkedReply,
      summary: 'Attach permissions to a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    (services, call, { keyId, permissions }) =>
      addEndpoint(services, call, PERMISSIONS, { keyId, elements: permissions }),
  ),
  post(
    '/v1/keys.setPermissions',
    {
      input: AttachPermissionsBody,
      reply: LinkedReply,
      summary: 'Replace the permissions of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    (services, call, { keyId, permissions }) =>
      setEndpoint(services, call, PERMISSIONS, { keyId, elements: permissions }),
  ),
  post(
    '/v1/keys.removePermissions',
    {
      input: RemovePermissionsBody,
      reply: EmptyReply,
      summary: 'Detach permissions from a key',
      errors: ['NOT_FOUND'],
    },
    (services, call, { keyId, permissions }) =>
      removeEndpoint(services, call, PERMISSIONS, { keyId, elements: permissions }),
  ),
  post(
    '/v1/keys.addRoles',
    {
      input: AttachRolesBody,
      reply: LinkedReply,
      summary: 'Attach roles to a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    (services, call, { keyId, roles }) => addEndpoint(services, call, ROLES, { keyId, elements: roles }),
  ),
  post(
    '/v1/keys.setRoles',
    {
      input: AttachRolesBody,
      reply: LinkedReply,
      summary: 'Replace the roles of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    (services, call, { keyId, roles }) => setEndpoint(services, call, ROLES, { keyId, elements: roles }),
  ),
  post(
    '/v1/keys.removeRoles',
    { input: RemoveRolesBody, reply: EmptyReply, summary: 'Detach roles from a key', errors: ['NOT_FOUND'] },
    (services, call, { keyId, roles }) => removeEndpoint(services, call, ROLES, { keyId, elements: roles }),
  ),
]
