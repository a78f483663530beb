import { type Endpoint, post } from '../http/endpoint.ts'
import { createKey } from './create-key.ts'
import { CreateKeyBody, CreateKeyReply, VerifyKeyBody, VerifyKeyReply } from './schema.ts'
import { verifyKey } from './verify-key.ts'

export const keyRoutes: Endpoint[] = [
  post(
    '/v1/keys.createKey',
    { input: CreateKeyBody, reply: CreateKeyReply, summary: 'Create a key' },
    createKey,
  ),
  post(
    '/v1/keys.verifyKey',
    { input: VerifyKeyBody, reply: VerifyKeyReply, summary: 'Verify a key', access: 'public' },
    verifyKey,
  ),
]
