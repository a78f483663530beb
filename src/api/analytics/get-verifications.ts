import type { AnySql } from '../../db/connect.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { findApi } from '../apis/store.ts'
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

/** Which verifications to count, and by what. */
export type VerificationQuestion = {
  apiId: string
  /** Only of keys that were connected to this identity at the time; null = all. */
  externalId: string | null
  /** Only these keys, added up unless grouped by key; empty = all. */
  keyIds: readonly string[]
  /** Only verifications that carried all of these; empty = all. */
  tags: readonly string[]
  range: Range
  groups: VerificationGroups
  order: VerificationOrder | null
  /** Datapoints at most, cut after sorting. */
  limit: number | undefined
}

export type VerificationDatapoint = Record<VerificationCount, number> & {
  /** Start of the time slice, Unix ms; when grouped by time. */
  time?: number
  /** When grouped by tag; empty in a slice without data. */
  tag?: string
  /** When grouped by tags: the whole set, sorted; empty = untagged. */
  tags?: string[]
  /** When grouped by key; empty in a slice without data. */
  keyId?: string
  /** When grouped by identity; absent in a slice without data. Its `externalId` is absent once it is deleted. */
  identity?: { id: string; externalId?: string }
}

/**
 * What happened to an API's keys. At most four statements of its own, whatever is asked.
 * @throws ApiError NOT_FOUND for the API or the identity, PRECONDITION_FAILED for an API without keys; BAD_REQUEST for
 *   too many datapoints.
 */
export async function getVerifications(
  services: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { apiId, externalId, keyIds, tags, range, groups, order, limit }: VerificationQuestion,
): Promise<VerificationDatapoint[]> {
  const api = await findApi(services.sql, workspaceId, apiId)
  if (api === null) throw notFound(`api ${apiId}`)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${api.id} has no keys`)
  const identityId = externalId === null ? null : await findIdentity(services.sql, workspaceId, externalId)

  const { time } = groups
  const { from, to } = range
  const filter = { workspaceId, keyspaceId, identityId, keyIds, tags, from, to }
  // Asked before the rows: a bucket that gets its first row in between must not be taken for an empty one.
  const bucketsWithData =
    time !== null && limit !== undefined
      ? await bucketsWithVerifications(services.history, filter, { ...groups, time })
      : new Set<number>()
  const rows = await countVerifications(services.history, filter, groups, order, rowsToRead(limit))
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
  if (id === undefined) throw notFound(`identity with externalId ${externalId}`)
  return id
}

function toDatapoint(row: VerificationRow, groups: VerificationGroups): VerificationDatapoint {
  const datapoint: VerificationDatapoint = {
    ...(groups.time !== null && { time: row.time }),
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

/** A slice in which nothing happened: zeros, and empty values for what else it is grouped by. */
const emptyDatapoint = (groups: VerificationGroups): VerificationDatapoint => ({
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
  ...(groups.tags === 'each' && { tag: '' }),
  ...(groups.tags === 'set' && { tags: [] }),
  ...(groups.key && { keyId: '' }),
})
