import type { WhoamiBody, WhoamiReply } from '../../doors/v1/keys/schema.ts'
import { notFound } from '../../errors.ts'
import { hashKey } from '../../verify/secret.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../root-keys/authorize.ts'
import { parseMeta } from './key-object.ts'
import { findKeyByHash } from './store.ts'

const RIGHT: Right = { resource: 'api', action: 'read_key' }

/** What is known of a key that someone holds. Uses nothing up, counts nothing; disabled and expired keys answer too. */
export async function whoami(services: Services, call: Call, { key }: WhoamiBody): Promise<WhoamiReply> {
  const actor = await authenticate(services, call)
  requireOnAny(actor, RIGHT)
  const row = await findKeyByHash(services.sql, actor.workspaceId, hashKey(key))
  if (row === null) throw notFound('Key')
  requireOn(actor, RIGHT, row.apiId)

  const reply: WhoamiReply = { id: row.id, createdAt: row.createdAt, enabled: row.enabled }
  if (row.name !== null) reply.name = row.name
  if (row.remaining !== null) reply.remaining = row.remaining
  if (row.identityId !== null && row.externalId !== null)
    reply.identity = { id: row.identityId, externalId: row.externalId }
  const meta = parseMeta(row.meta)
  if (meta !== null && Object.keys(meta).length > 0) reply.meta = meta
  if (row.environment !== null) reply.environment = row.environment
  return reply
}
