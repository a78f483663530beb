import { Type } from '@sinclair/typebox'
import { authenticateOperator } from '../../../api/root-keys/authorize.ts'
import { getStatus } from '../../../api/server/get-status.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get } from '../endpoint.ts'
import { GetStatusReply } from './schema.ts'

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
]
