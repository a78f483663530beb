import { type Endpoint, get, post } from '../http/endpoint.ts'
import { EmptyReply } from '../lib/page.ts'
import { createKey } from './create-key.ts'
import { deleteKey } from './delete-key.ts'
import { getKey } from './get-key.ts'
import { getKeyVerifications } from './get-verifications.ts'
import {
  CreateKeyBody,
  CreateKeyReply,
  DeleteKeyBody,
  GetKeyQuery,
  KeyObject,
  KeyVerificationsQuery,
  KeyVerificationsReply,
  UpdateKeyBody,
  UpdateRemainingBody,
  UpdateRemainingReply,
  VerifyKeyBody,
  VerifyKeyReply,
  WhoamiBody,
  WhoamiReply,
} from './schema.ts'
import { updateKey } from './update-key.ts'
import { updateRemaining } from './update-remaining.ts'
import { verifyKey } from './verify-key.ts'
import { whoami } from './whoami.ts'

export const keyRoutes: Endpoint[] = [
  post(
    '/v1/keys.createKey',
    { input: CreateKeyBody, reply: CreateKeyReply, summary: 'Create a key' },
    createKey,
  ),
  get('/v1/keys.getKey', { input: GetKeyQuery, reply: KeyObject, summary: 'Get a key' }, getKey),
  post('/v1/keys.updateKey', { input: UpdateKeyBody, reply: EmptyReply, summary: 'Update a key' }, updateKey),
  post('/v1/keys.deleteKey', { input: DeleteKeyBody, reply: EmptyReply, summary: 'Delete a key' }, deleteKey),
  post(
    '/v1/keys.updateRemaining',
    { input: UpdateRemainingBody, reply: UpdateRemainingReply, summary: 'Change the uses left of a key' },
    updateRemaining,
  ),
  post(
    '/v1/keys.verifyKey',
    { input: VerifyKeyBody, reply: VerifyKeyReply, summary: 'Verify a key', access: 'public' },
    verifyKey,
  ),
  post(
    '/v1/keys.whoami',
    { input: WhoamiBody, reply: WhoamiReply, summary: 'Describe a key someone holds' },
    whoami,
  ),
  get(
    '/v1/keys.getVerifications',
    { input: KeyVerificationsQuery, reply: KeyVerificationsReply, summary: 'Daily verifications of keys' },
    getKeyVerifications,
  ),
]
