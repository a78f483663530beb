import { findAnyKeyHash } from '../../../api/keys/store.ts'
import { authenticate, type Right, requireOn, requireOnAny } from '../../../api/root-keys/authorize.ts'
import { askServers } from '../../../api/server/ask-servers.ts'
import { notFound } from '../../../errors.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import { type AskServersReply, askServersReply } from '../server-answers.ts'
import type { AskServersBody } from './schema.ts'

/** As `authenticateOnKey`, of a deleted key too: whether all servers refuse it is asked after its deletion. */
export async function askServersEndpoint(
  services: DoorServices,
  call: HttpCall,
  { keyId }: AskServersBody,
): Promise<AskServersReply> {
  const actor = await authenticate(services, call)
  requireOnAny(actor, READ_KEY)
  const key = await findAnyKeyHash(services.sql, actor.workspaceId, keyId)
  if (key === null) throw notFound('key', keyId)
  requireOn(actor, READ_KEY, key.apiId)
  return askServersReply(actor, await askServers(services, actor, key.hash))
}

const READ_KEY: Right = { resource: 'api', action: 'read_key' }
