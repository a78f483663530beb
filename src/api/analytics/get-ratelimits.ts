import { notFound } from '../../errors.ts'
import type { TimeGroup } from '../../lib/buckets.ts'
import type { Services } from '../parts.ts'
import { type Actor, requireOn } from '../root-keys/authorize.ts'
import { completeSeries, type Range, rowsToRead } from './series.ts'
import {
  bucketsByNamespace,
  bucketsWithRatelimits,
  countByNamespace,
  countRatelimits,
  findNamespace,
  type RatelimitOrder,
} from './store.ts'

/** Which decisions to count, and how to group them. */
export type RatelimitQuestion = {
  by: { namespaceId: string } | { namespaceName: string }
  range: Range
  /** Count only these identifiers, added up unless grouped by identifier. Empty = all. */
  identifiers: readonly string[]
  /** Null = one datapoint for the whole range. */
  time: TimeGroup | null
  byIdentifier: boolean
  order: RatelimitOrder
  /** Largest number of datapoints, cut after sorting. Undefined = no cut. */
  limit: number | undefined
}

export type RatelimitDatapoint = {
  /** Start of the time slice, Unix ms. Present when grouped by time. */
  time?: number
  /** Present when grouped by identifier. Absent on the datapoint that adds up the identifiers not stored by name. */
  identifier?: string
  /** Present when grouped by namespace. Absent where there is no data. */
  namespace?: { id: string; name?: string }
  passed: number
  denied: number
  total: number
}

/**
 * Rate limit decisions of one namespace. Usage stores a bounded number of identifiers by name in each hour (usage/rollup.ts
 * has the number); the others are one datapoint without `identifier`.
 * @throws ApiError INSUFFICIENT_PERMISSIONS, NOT_FOUND; BAD_REQUEST for too many datapoints.
 */
export async function getRatelimits(
  services: Pick<Services, 'sql' | 'history'>,
  actor: Actor,
  { by, range, identifiers, time, byIdentifier, order, limit }: RatelimitQuestion,
): Promise<RatelimitDatapoint[]> {
  const { workspaceId } = actor
  const namespace = await findNamespace(services.sql, workspaceId, by)
  const [id, name] = 'namespaceId' in by ? [by.namespaceId, by.namespaceId] : [null, by.namespaceName]
  // The right is checked before NOT_FOUND is thrown: a caller without the right must not learn whether the namespace
  // exists.
  requireOn(actor, { resource: 'ratelimit', action: 'read_namespace' }, namespace?.id ?? id)
  if (namespace === null) throw notFound('namespace', name)

  const { from, to } = range
  const groups = { time, identifier: byIdentifier }
  const filter = { workspaceId, namespaceId: namespace.id, identifiers, from, to }
  // Read before the rows: a bucket that gets its first row between the two reads must not count as an empty one.
  const bucketsWithData =
    time !== null && limit !== undefined
      ? await bucketsWithRatelimits(services.history, filter, time)
      : new Set<number>()
  const rows = await countRatelimits(services.history, filter, groups, order, rowsToRead(limit))
  const datapoints = rows.map(
    (row): RatelimitDatapoint => ({
      ...(time !== null && { time: row.time }),
      ...(byIdentifier && row.identifier !== null && { identifier: row.identifier }),
      passed: row.passed,
      denied: row.denied,
      total: row.total,
    }),
  )
  if (time === null && !byIdentifier && datapoints.length === 0) return [NOTHING]
  return completeSeries(datapoints, {
    range,
    time,
    bucketsWithData,
    emptyRow: (at) => ({ time: at, ...NOTHING }),
    order,
    limit,
  })
}

/**
 * Rate limit decisions of all namespaces, one datapoint for each namespace, and time slice.
 * @throws ApiError INSUFFICIENT_PERMISSIONS; BAD_REQUEST for too many datapoints.
 */
export async function getRatelimitsByNamespace(
  { history }: Pick<Services, 'history'>,
  actor: Actor,
  { range, time, order, limit }: Pick<RatelimitQuestion, 'range' | 'time' | 'order' | 'limit'>,
): Promise<RatelimitDatapoint[]> {
  requireOn(actor, { resource: 'ratelimit', action: 'read_namespace' }, null)
  const { from, to } = range
  const filter = { workspaceId: actor.workspaceId, from, to }
  const bucketsWithData =
    time !== null && limit !== undefined ? await bucketsByNamespace(history, filter, time) : new Set<number>()
  const rows = await countByNamespace(history, filter, time, order, rowsToRead(limit))
  const datapoints = rows.map(
    ({ time: at, namespaceId: id, namespaceName: name, passed, denied, total }): RatelimitDatapoint => ({
      ...(time !== null && { time: at }),
      namespace: { id, ...(name !== null && { name }) },
      passed,
      denied,
      total,
    }),
  )
  const emptyRow = (at: number) => ({ time: at, ...NOTHING })
  return completeSeries(datapoints, { range, time, bucketsWithData, emptyRow, order, limit })
}

const NOTHING: RatelimitDatapoint = { passed: 0, denied: 0, total: 0 }
