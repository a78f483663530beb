import { deleteOverride } from '../../../api/ratelimits/delete-override.ts'
import { listOverrides } from '../../../api/ratelimits/list-overrides.ts'
import { matchOverride } from '../../../api/ratelimits/match-override.ts'
import { setOverride } from '../../../api/ratelimits/set-override.ts'
import { authenticate } from '../../../api/root-keys/authorize.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { list, post } from '../endpoint.ts'
import { Listed, pageOf } from '../page.ts'
import { EmptyReply } from '../schema.ts'
import { limitEndpoint, multiLimitEndpoint } from './limit.ts'
import {
  DeleteOverrideBody,
  GetOverrideBody,
  LimitBody,
  LimitData,
  ListOverridesBody,
  MultiLimitBody,
  MultiLimitData,
  OVERRIDES_DEFAULT,
  OverrideData,
  SetOverrideBody,
  SetOverrideData,
} from './schema.ts'

export const ratelimitRoutes: Endpoint[] = [
  post(
    '/v2/ratelimit.limit',
    {
      input: LimitBody,
      reply: LimitData,
      summary: 'Check and consume a rate limit',
      errors: ['GONE', 'PRECONDITION_FAILED'],
      isFastPath: true,
    },
    limitEndpoint,
  ),
  post(
    '/v2/ratelimit.multiLimit',
    {
      input: MultiLimitBody,
      reply: MultiLimitData,
      summary: 'Check several rate limits, and consume all or none',
      errors: ['GONE', 'PRECONDITION_FAILED'],
      isFastPath: true,
    },
    multiLimitEndpoint,
  ),
  post(
    '/v2/ratelimit.setOverride',
    {
      input: SetOverrideBody,
      reply: SetOverrideData,
      summary: 'Set an override',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { namespace, identifier, limit, duration }) => {
      const actor = await authenticate(services, call)
      const override = { identifier, limit, durationMs: duration, async: false }
      return { overrideId: await setOverride(services, actor, { idOrName: namespace }, override) }
    },
  ),
  post(
    '/v2/ratelimit.getOverride',
    {
      input: GetOverrideBody,
      reply: OverrideData,
      summary: 'Get the override of an identifier',
      errors: ['NOT_FOUND'],
    },
    async (services, call, { namespace, identifier }) => {
      const actor = await authenticate(services, call)
      return dataOf(await matchOverride(services, actor, namespace, identifier))
    },
  ),
  list(
    '/v2/ratelimit.listOverrides',
    { input: ListOverridesBody, item: OverrideData, summary: 'List overrides', errors: ['NOT_FOUND'] },
    async (services, call, { namespace, limit = OVERRIDES_DEFAULT, ...page }) => {
      const actor = await authenticate(services, call)
      const by = { idOrName: namespace }
      const { items, ...rest } = await listOverrides(services, actor, by, pageOf({ ...page, limit }))
      return new Listed(items.map(dataOf), rest)
    },
  ),
  post(
    '/v2/ratelimit.deleteOverride',
    { input: DeleteOverrideBody, reply: EmptyReply, summary: 'Delete an override', errors: ['NOT_FOUND'] },
    async (services, call, { namespace, identifier }) => {
      const actor = await authenticate(services, call)
      await deleteOverride(services, actor, { idOrName: namespace }, identifier)
      return {}
    },
  ),
]

const dataOf = ({
  id,
  identifier,
  limit,
  durationMs,
}: {
  id: string
  identifier: string
  limit: number
  durationMs: number
}) => ({ overrideId: id, identifier, limit, duration: durationMs })
