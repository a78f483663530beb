import { Type } from '@sinclair/typebox'
import { authenticateOperator } from '../../../api/root-keys/authorize.ts'
import { getHistory } from '../../../api/server/get-history.ts'
import { getStatus } from '../../../api/server/get-status.ts'
import { listServers } from '../../../api/server/list-servers.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import {
  GetHistoryQuery,
  GetHistoryReply,
  GetSettingsReply,
  GetStatusReply,
  ListServersReply,
} from './schema.ts'

/** Schemas and rights of what operators ask about the server. `api/server/` does the work. */
export const serverRoutes: Endpoint[] = [
  get(
    '/v1/server.getStatus',
    { input: Type.Object({}), reply: GetStatusReply, summary: 'Get figures of the server that answers' },
    async (services, call) => {
      await authenticateOperator(services, call)
      return { ...(await getStatus(services)), state: services.life.state }
    },
  ),
  get(
    '/v1/server.getHistory',
    {
      input: GetHistoryQuery,
      reply: GetHistoryReply,
      summary: 'Get figures of the last three hours of the server that answers, by minute',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { path = null }) => {
      await authenticateOperator(services, call)
      return await getHistory(services, path)
    },
  ),
  get(
    '/v1/server.getSettings',
    {
      input: Type.Object({}),
      reply: GetSettingsReply,
      summary: 'Get the settings of the server that answers, without secrets',
    },
    async (services, call) => {
      await authenticateOperator(services, call)
      return { settings: [...services.config.settings] }
    },
  ),
  get(
    '/v1/server.listServers',
    { input: Type.Object({}), reply: ListServersReply, summary: 'List the servers on this database' },
    async (services, call) => {
      await authenticateOperator(services, call)
      const { servers, fleet } = await listServers(services)
      return {
        servers: servers.map(({ nodeId: id, ...each }) => ({ id, ...each })),
        fleet: fleet && {
          ...fleet,
          members: fleet.members.map(({ processId: id, ...each }) => ({ id, ...each })),
        },
      }
    },
  ),
]
