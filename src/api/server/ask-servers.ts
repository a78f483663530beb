import { knownServers } from '../../db/servers.ts'
import { ApiError } from '../../errors.ts'
import { countOtherProcesses } from '../../records/continuity.ts'
import { isStanding, type Standing, worstOf } from '../../verify/standing.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { SERVERS_LISTED_MAX } from './list-servers.ts'

/** What a server answers about a key. */
export type ServerAnswer = {
  nodeId: string
  host: string
  isThis: boolean
  /** Null = it did not answer in time: perhaps it has not heard of the last changes yet. */
  code: Standing | null
  /** From the question to its answer, ms; null = there was none, or it is this server. */
  afterMs: number | null
}

/**
 * What each server on the database answers now about a key, by the key's own state: from its caches, as a verification
 * does, in all of its HTTP threads. It takes and counts nothing. Whatever was changed before the call has reached each
 * server that answers.
 * @param hash Of the key or root key.
 * @returns this server first, then the others by host. Processes that share a data directory are one server.
 * @throws ApiError PRECONDITION_FAILED when too much is being asked, or this server cannot hear answers.
 */
export async function askServers(
  services: Pick<Services, 'sql' | 'self' | 'askServers'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  hash: string,
): Promise<ServerAnswer[]> {
  const { sql, self } = services
  const [servers, processes] = await Promise.all([
    knownServers(sql, SERVERS_LISTED_MAX),
    countOtherProcesses(sql, self.processId),
  ])
  const known = servers.filter(({ nodeId }) => nodeId !== self.nodeId)
  const nodeIds = known.map(({ nodeId }) => nodeId)
  const { own, others } = await services.askServers({
    subject: hash,
    owner: workspaceId,
    expected: { nodeIds, processes },
  })
  if (others === 'busy')
    throw new ApiError(
      'PRECONDITION_FAILED',
      'this server has asked the others about many keys in the last ten seconds; ask again later',
    )
  if (others === 'deaf')
    throw new ApiError(
      'PRECONDITION_FAILED',
      'this server cannot hear what other servers answer: its connections go through a pooler, on which nothing can be listened for',
    )
  const answered = new Map<string, ServerAnswer>()
  for (const { nodeId, host, answer, afterMs } of others) {
    const code = isStanding(answer) ? answer : null
    const before = answered.get(nodeId)
    answered.set(nodeId, {
      nodeId,
      host,
      isThis: false,
      code: before === undefined ? code : worstOf([before.code, code]),
      afterMs: Math.max(afterMs, before?.afterMs ?? 0),
    })
  }
  const silent = known
    .filter(({ nodeId }) => !answered.has(nodeId))
    .map(({ nodeId, host }) => ({ nodeId, host, isThis: false, code: null, afterMs: null }))
  return [
    { nodeId: self.nodeId, host: self.host, isThis: true, code: own, afterMs: null },
    ...[...answered.values(), ...silent].sort(
      (a, b) => compare(a.host, b.host) || compare(a.nodeId, b.nodeId),
    ),
  ]
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
