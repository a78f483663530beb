import { addPermissions } from '../../../api/keys/add-permissions.ts'
import { addRoles } from '../../../api/keys/add-roles.ts'
import { createKey } from '../../../api/keys/create-key.ts'
import { decryptKeys } from '../../../api/keys/decryption.ts'
import { deleteKey } from '../../../api/keys/delete-key.ts'
import { removePermissions } from '../../../api/keys/remove-permissions.ts'
import { removeRoles } from '../../../api/keys/remove-roles.ts'
import { setPermissions } from '../../../api/keys/set-permissions.ts'
import { setRoles } from '../../../api/keys/set-roles.ts'
import { updateKey } from '../../../api/keys/update-key.ts'
import { whoami } from '../../../api/keys/whoami.ts'
import { createKeys } from '../../../api/migrations/create-keys.ts'
import { enqueueKeys } from '../../../api/migrations/enqueue-keys.ts'
import {
  anyOf,
  authenticate,
  type Right,
  requireOn,
  requireOnAny,
  requireRight,
} from '../../../api/root-keys/authorize.ts'
import { resealVault } from '../../../api/vault/reseal-vault.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EraseReply } from '../erase-reply.ts'
import { EmptyReply } from '../page.ts'
import { eraseKeyEndpoint } from './erase-key.ts'
import { keyVerifications } from './get-verifications.ts'
import { keyObject, whoamiObject } from './key-object.ts'
import { authenticateOnKey } from './right-on-key.ts'
import {
  AttachPermissionsBody,
  AttachRolesBody,
  CreateKeyBody,
  CreateKeyReply,
  CreateKeysBody,
  CreateKeysReply,
  DeleteKeyBody,
  EnqueueKeysBody,
  EraseKeyBody,
  GetKeyQuery,
  KeyObject,
  KeyVerificationsQuery,
  KeyVerificationsReply,
  LinkedReply,
  RemovePermissionsBody,
  RemoveRolesBody,
  ResealVaultBody,
  ResealVaultReply,
  UpdateKeyBody,
  UpdateRemainingBody,
  UpdateRemainingReply,
  VerifyKeyBody,
  VerifyKeyReply,
  WhoamiBody,
  WhoamiReply,
} from './schema.ts'
import { updateRemainingEndpoint } from './update-remaining.ts'
import { verifyKey } from './verify-key.ts'

const READ_KEY: Right = { resource: 'api', action: 'read_key' }

/** What each call asks first, and who may. What it then does is in `api/keys/`. */
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
    createKey,
  ),
  get(
    '/v1/keys.getKey',
    { input: GetKeyQuery, reply: KeyObject, summary: 'Get a key', errors: ['NOT_FOUND'] },
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
    updateKey,
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
    '/v1/keys.eraseKey',
    {
      input: EraseKeyBody,
      reply: EraseReply,
      summary: 'Erase a key, also a deleted one, and its id in what is kept',
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
      errors: ['NOT_FOUND'],
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
      isHot: true,
      errors: ['FORBIDDEN'],
    },
    verifyKey,
  ),
  post(
    '/v1/keys.whoami',
    { input: WhoamiBody, reply: WhoamiReply, summary: 'Describe a key someone holds', errors: ['NOT_FOUND'] },
    async (services, call, body) => {
      const actor = await authenticate(services, call)
      requireOnAny(actor, READ_KEY)
      const key = await whoami(services, actor, body.key)
      requireOn(actor, READ_KEY, key.apiId)
      return whoamiObject(key)
    },
  ),
  get(
    '/v1/keys.getVerifications',
    {
      input: KeyVerificationsQuery,
      reply: KeyVerificationsReply,
      summary: 'Daily verifications of keys',
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
    addPermissions,
  ),
  post(
    '/v1/keys.setPermissions',
    {
      input: AttachPermissionsBody,
      reply: LinkedReply,
      summary: 'Replace the permissions of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    setPermissions,
  ),
  post(
    '/v1/keys.removePermissions',
    {
      input: RemovePermissionsBody,
      reply: EmptyReply,
      summary: 'Detach permissions from a key',
      errors: ['NOT_FOUND'],
    },
    removePermissions,
  ),
  post(
    '/v1/keys.addRoles',
    {
      input: AttachRolesBody,
      reply: LinkedReply,
      summary: 'Attach roles to a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    addRoles,
  ),
  post(
    '/v1/keys.setRoles',
    {
      input: AttachRolesBody,
      reply: LinkedReply,
      summary: 'Replace the roles of a key',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    setRoles,
  ),
  post(
    '/v1/keys.removeRoles',
    { input: RemoveRolesBody, reply: EmptyReply, summary: 'Detach roles from a key', errors: ['NOT_FOUND'] },
    removeRoles,
  ),
  post(
    '/v1/migrations.createKeys',
    {
      input: CreateKeysBody,
      reply: CreateKeysReply,
      summary: 'Import keys, all or none',
      introduced: '2024-05-08',
      errors: ['NOT_FOUND', 'CONFLICT', 'PRECONDITION_FAILED'],
    },
    createKeys,
  ),
  post(
    '/v1/migrations.enqueueKeys',
    {
      input: EnqueueKeysBody,
      reply: EmptyReply,
      summary: 'Import keys later',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
      status: 202,
    },
    enqueueKeys,
  ),
  post(
    '/v1/vault.reseal',
    {
      input: ResealVaultBody,
      reply: ResealVaultReply,
      summary: 'Seal recoverable keys with the first vault key',
      errors: ['PRECONDITION_FAILED'],
    },
    resealVault,
  ),
]
