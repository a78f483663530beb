import { type KnownServer, knownServers } from '../../db/servers.ts'
import { type KnownMember, knownMembers } from '../../fleet/store.ts'
import { VERSION } from '../../lib/version.ts'
import type { Services } from '../parts.ts'

export type ServerList = {
  /** Servers that run on the database, by host. */
  servers: (KnownServer & { isThis: boolean })[]
  /** Those of them that share their limits; null = this server counts its own. */
  fleet: { condition: 'ok' | 'learning' | 'away'; members: (KnownMember & { isThis: boolean })[] } | null
}

/** Servers that were seen within the last minute, at most {@link SERVERS_LISTED_MAX}. For operators. */
export async function listServers({
  sql,
  self,
  clock,
  fleetCondition,
}: Pick<Services, 'sql' | 'self' | 'clock' | 'fleetCondition'>): Promise<ServerList> {
  const condition = fleetCondition()
  const [servers, members] = await Promise.all([
    knownServers(sql, SERVERS_LISTED_MAX),
    condition === null ? [] : knownMembers(sql, SERVERS_LISTED_MAX),
  ])
  const isThere = servers.some(({ nodeId }) => nodeId === self.nodeId)
  // An embedded database has one server, which writes no row.
  const own = { nodeId: self.nodeId, host: self.host, version: VERSION, seenAt: clock() }
  return {
    servers: [...(isThere ? [] : [own]), ...servers].map((each) => ({
      ...each,
      isThis: each.nodeId === self.nodeId,
    })),
    fleet: condition && {
      condition,
      members: members.map((each) => ({ ...each, isThis: each.processId === self.processId })),
    },
  }
}

export const SERVERS_LISTED_MAX = 100
