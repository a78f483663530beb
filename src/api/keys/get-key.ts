import type { Call } from '../../doors/http/endpoint.ts'
import { notFound } from '../../errors.ts'
import type { Deps } from '../../server/deps.ts'
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
import type { GetKeyQuery, KeyObject } from './schema.ts'
import { findKey } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** One key. `plaintext` only when asked for, allowed, and kept: a key that is not recoverable simply has none. */
export async function getKey(deps: Deps, call: Call, query: GetKeyQuery): Promise<KeyObject> {
  const actor = await authenticate(deps, call)
  requireOnAny(actor, RIGHT)
  const row = await findKey(deps.sql, actor.workspaceId, query.keyId)
  if (row === null) throw notFound(`key ${query.keyId}`)
  requireOn(actor, RIGHT, row.apiId)
  if (!query.decrypt) return keyObject(row)
  requireRight(actor, anyOf('*', 'api.*.decrypt_key', `api.${row.apiId}.decrypt_key`), 'decrypt keys')
  const plaintexts = await deps.vault.open(actor.workspaceId, [row])
  await auditDecryption(deps, actor, row.apiId, plaintexts)
  return keyObject(row, plaintexts.get(row.id))
}
