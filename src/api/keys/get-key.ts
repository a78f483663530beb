import type { GetKeyQuery, KeyObject } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import {
  anyOf,
  authenticate,
  type Right,
  requireOn,
  requireOnAny,
  requireRight,
} from '../root-keys/authorize.ts'
import { auditDecryption } from './decryption.ts'
import { keyObject } from './key-object.ts'
import { findKey } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** One key. `plaintext` only when asked for, allowed, and kept: a key that is not recoverable simply has none. */
export async function getKey(services: Services, call: Call, query: GetKeyQuery): Promise<KeyObject> {
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const row = await findKey(services.sql, actor.workspaceId, query.keyId)
  if (row === null) throw notFound(`key ${query.keyId}`)
  requireOn(actor, RIGHT, row.apiId)
  if (!query.decrypt) return keyObject(row)
  requireRight(actor, anyOf('*', 'api.*.decrypt_key', `api.${row.apiId}.decrypt_key`), 'decrypt keys')
  const plaintexts = await services.vault.open(actor.workspaceId, [row])
  await auditDecryption(services, actor, row.apiId, plaintexts)
  return keyObject(row, plaintexts.get(row.id))
}
