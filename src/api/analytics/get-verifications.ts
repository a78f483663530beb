import type { AnySql } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { readMade } from '../../usage/sums.ts'
import { findApi, listKeyspaceIds } from '../apis/store.ts'
import { findIdentityIds } from '../identities/store.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { completeSeries, type Range, rowsToRead } from './series.ts'
import {
  bucketsWithVerifications,
  countVerifications,
  type VerificationCount,
  type VerificationGroups,
  type VerificationOrder,
  type VerificationRow,
} from './store.ts'

/** Which verifications to count, and how to group them. */
export type VerificationQuestion = {
  apiId: string
  /** Count only keys that were connected to this identity when they were verified. Null = all. */
  externalId: string | null
  /** Count only these keys, added up unless grouped by key. Empty = all. */
  keyIds: readonly string[]
  /** Count only verifications that carried all of these tags. Empty = all. */
  tags: readonly string[]
  range: Range
  groups: VerificationGroups
  order: VerificationOrder | null
  /** Largest number of datapoints, cut after sorting. Undefined = no cut. */
  limit: number | undefined
}

export type VerificationDatapoint = Record<VerificationCount, number> & {
  /** Start of the time slice, Unix ms. Present when grouped by time. */
  time?: number
  /** Present when grouped by tag; empty in a slice without data. */
  tag?: string
  /** The whole set, sorted. Present when grouped by tags; empty = untagged. */
  tags?: string[]
  /** Present when grouped by key; empty in a slice without data. */
  keyId?: string
  /**
   * Present when grouped by identity, absent in a slice without data. `externalId` is absent once the identity is deleted.
   */
  identity?: { id: string; externalId?: string }
}

/**
 * Verifications of an API's keys, by outcome. Makes at most seven statements, and some more while usage is summed up.
 * @throws ApiError NOT_FOUND for the API or the identity, PRECONDITION_FAILED for an API without keys; BAD_REQUEST for too
 *   many datapoints.
 */
export async function getVerifications(
  services: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { apiId, externalId, keyIds, tags, range, groups, order, limit }: VerificationQuestion,
): Promise<VerificationDatapoint[]> {
  const api = await findApi(services.sql, workspaceId, apiId)
  if (api === null) throw notFound('api', apiId)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${api.id} has no keys`)
  const [keyspaceIds, identityId] = await Promise.all([
    listKeyspaceIds(services.sql, workspaceId, { apiId, keyspaceId }),
    externalId === null ? null : findIdentity(services.sql, workspaceId, externalId),
  ])

  const { time } = groups
  const { from, to } = range
  const { rows, bucketsWithData } = await readMade(
    services.history,
    async (made) => {
      const filter = { workspaceId, keyspaceIds, identityId, keyIds, tags, from, to, made }
      // Read before the rows: a bucket that gets its first row between the two reads must not count as an empty one.
      const bucketsWithData =
        time !== null && limit !== undefined
          ? await bucketsWithVerifications(services.history, filter, { ...groups, time })
          : new Set<number>()
      const rows = await countVerifications(services.history, filter, groups, order, rowsToRead(limit))
      return { rows, bucketsWithData }
    },
    { isEmpty: (found) => found.rows.every(({ total }) => total === 0) },
  )
  const datapoints = rows.map((row) => toDatapoint(row, groups))
  return completeSeries(datapoints, {
    range,
    time,
    bucketsWithData,
    emptyRow: (at) => ({ time: at, ...emptyDatapoint(groups) }),
    order,
    limit,
  })
}

async function findIdentity(sql: AnySql, workspaceId: WorkspaceId, externalId: string): Promise<string> {
  const id = (await findIdentityIds(sql, workspaceId, [externalId])).get(externalId)
  if (id === undefined) throw notFound('identity', `with externalId ${externalId}`)
  return id
}

function toDatapoint(row: VerificationRow, groups: VerificationGroups): VerificationDatapoint {
  const datapoint: VerificationDatapoint = {
    ...(groups.time !== null && { time: row.time }),
    ...countsOf(row),
  }
  if (groups.tags === 'each') datapoint.tag = row.tag
  if (groups.tags === 'set') datapoint.tags = row.tags
  if (groups.key) datapoint.keyId = row.keyId
  if (groups.identity)
    datapoint.identity = {
      id: row.identityId,
      ...(row.externalId !== null && { externalId: row.externalId }),
    }
  return datapoint
}

export const countsOf = (row: VerificationRow): Record<VerificationCount, number> => ({
  valid: row.valid,
  notFound: 0,
  forbidden: row.forbidden,
  usageExceeded: row.usageExceeded,
  rateLimited: row.rateLimited,
  unauthorized: 0,
  disabled: row.disabled,
  insufficientPermissions: row.insufficientPermissions,
  expired: row.expired,
  total: row.total,
})

export const NO_COUNTS: Record<VerificationCount, number> = {
  valid: 0,
  notFound: 0,
  forbidden: 0,
  usageExceeded: 0,
  rateLimited: 0,
  unauthorized: 0,
  disabled: 0,
  insufficientPermissions: 0,
  expired: 0,
  total: 0,
}

/** A slice without verifications: zeros, and an empty value for every other group. */
const emptyDatapoint = (groups: VerificationGroups): VerificationDatapoint => ({
  ...NO_COUNTS,
  ...(groups.tags === 'each' && { tag: '' }),
  ...(groups.tags === 'set' && { tags: [] }),
  ...(groups.key && { keyId: '' }),
})
