import type { AnySql } from '../../db/connect.ts'
import type { GetVerificationsQuery, VerificationDatapoint } from '../../doors/v1/analytics/schema.ts'
import { ApiError, badRequest, notFound } from '../../errors.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { findApi } from '../apis/store.ts'
import type { Call } from '../call.ts'
import { findIdentityIds } from '../identities/store.ts'
import type { Services } from '../parts.ts'
import { anyOf, authenticate } from '../root-keys/authorize.ts'
import { checkOrder, completeSeries, readRange, rowsToRead, splitAtCommas, timeGroupOf } from './series.ts'
import {
  bucketsWithVerifications,
  countVerifications,
  type VerificationGroups,
  type VerificationRow,
} from './store.ts'

/** What happened to an API's keys: the order of checks here is contract. At most four statements of its own, whatever is asked. */
export async function getVerifications(
  services: Services,
  call: Call,
  query: GetVerificationsQuery,
): Promise<VerificationDatapoint[]> {
  const range = readRange(query, services.clock())
  const names = splitAtCommas(query.groupBy)
  if (names.includes('tag') && names.includes('tags'))
    throw badRequest('groupBy: tag and tags exclude each other')
  const time = timeGroupOf(names)
  checkOrder(query.orderBy, time)
  const groups: VerificationGroups = {
    time,
    key: names.includes('key'),
    identity: names.includes('identity'),
    tags: names.includes('tags') ? 'set' : names.includes('tag') ? 'each' : null,
  }

  // As the specification says: not the permission of one API.
  const { workspaceId } = await authenticate(services, call, anyOf('*', 'api.*.read_api'))
  const api = await findApi(services.sql, workspaceId, query.apiId)
  if (api === null) throw notFound(`api ${query.apiId}`)
  const { keyspaceId } = api
  if (keyspaceId === null) throw new ApiError('PRECONDITION_FAILED', `api ${api.id} has no keys`)
  const identityId =
    query.externalId === undefined || query.externalId === ''
      ? null
      : await findIdentity(services.sql, workspaceId, query.externalId)

  const { from, to } = range
  const tags = query.tag ?? []
  const filter = { workspaceId, keyspaceId, identityId, keyIds: splitAtCommas(query.keyId), tags, from, to }
  const order = query.orderBy === undefined ? null : { by: query.orderBy, descending: query.order === 'desc' }
  // Asked before the rows: a bucket that gets its first row in between must not be taken for an empty one.
  const bucketsWithData =
    time !== null && query.limit !== undefined
      ? await bucketsWithVerifications(services.history, filter, { ...groups, time })
      : new Set<number>()
  const rows = await countVerifications(services.history, filter, groups, order, rowsToRead(query.limit))
  const datapoints = rows.map((row) => toDatapoint(row, groups))
  return completeSeries(datapoints, {
    range,
    time,
    bucketsWithData,
    emptyRow: (at) => ({ time: at, ...emptyDatapoint(groups) }),
    order,
    limit: query.limit,
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
