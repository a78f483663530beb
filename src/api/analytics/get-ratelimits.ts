import type { GetRatelimitsQuery, RatelimitDatapoint } from '../../doors/v1/analytics/schema.ts'
import { badRequest, notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticate, requireOn } from '../root-keys/authorize.ts'
import { checkOrder, completeSeries, readRange, rowsToRead, splitAtCommas, timeGroupOf } from './series.ts'
import { bucketsWithRatelimits, countRatelimits, findNamespace } from './store.ts'

/**
 * How a namespace decided. Identifiers that an hour did not keep by name (see usage/rollup.ts for how many it keeps) are
 * one datapoint without `identifier`.
 */
export async function getRatelimits(
  services: Services,
  call: Call,
  query: GetRatelimitsQuery,
): Promise<RatelimitDatapoint[]> {
  const { namespaceId, namespaceName } = query
  const wanted =
    namespaceId !== undefined ? { namespaceId } : namespaceName !== undefined ? { namespaceName } : null
  if (wanted === null) throw badRequest('namespaceId: Either namespaceId or namespaceName is required')
  const range = readRange(query, services.clock())
  const names = splitAtCommas(query.groupBy)
  const time = timeGroupOf(names)
  checkOrder(query.orderBy, time)

  const actor = await authenticate(services, call)
  const namespace = await findNamespace(services.sql, actor.workspaceId, wanted)
  // Asked before it is said that there is none: who lacks the right does not learn that either.
  requireOn(actor, { resource: 'ratelimit', action: 'read_namespace' }, namespace?.id ?? namespaceId ?? null)
  if (namespace === null) throw notFound(`namespace ${namespaceId ?? namespaceName}`)

  const { workspaceId } = actor
  const { from, to } = range
  const groups = { time, identifier: names.includes('identifier') }
  const filter = { workspaceId, namespaceId: namespace.id, identifiers: query.identifier ?? [], from, to }
  const order = query.orderBy === undefined ? null : { by: query.orderBy, descending: query.order === 'desc' }
  // Asked before the rows: a bucket that gets its first row in between must not be taken for an empty one.
  const bucketsWithData =
    time !== null && query.limit !== undefined
      ? await bucketsWithRatelimits(services.history, filter, time)
      : new Set<number>()
  const rows = await countRatelimits(services.history, filter, groups, order, rowsToRead(query.limit))
  const datapoints = rows.map(
    (row): RatelimitDatapoint => ({
      ...(time !== null && { time: row.time }),
      ...(groups.identifier && row.identifier !== null && { identifier: row.identifier }),
      passed: row.passed,
      denied: row.denied,
      total: row.total,
    }),
  )
  if (names.length === 0 && datapoints.length === 0) return [NOTHING]
  return completeSeries(datapoints, {
    range,
    time,
    bucketsWithData,
    emptyRow: (at) => ({ time: at, ...NOTHING }),
    order,
    limit: query.limit,
  })
}

const NOTHING: RatelimitDatapoint = { passed: 0, denied: 0, total: 0 }
