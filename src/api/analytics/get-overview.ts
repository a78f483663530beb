import { readMade } from '../../usage/sums.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { countsOf, NO_COUNTS } from './get-verifications.ts'
import { completeSeries, type Range, ROWS_MAX } from './series.ts'
import {
  countVerifications,
  listAllKeyspaceIds,
  nameKeys,
  type RefusedFirst,
  type VerificationCount,
  type VerificationGroups,
  type VerificationOrder,
  type VerificationRow,
} from './store.ts'

type Counts = Record<VerificationCount, number>

export type Overview = {
  /** A datapoint for each hour, in order. */
  hours: (Counts & { time: number })[]
  /** The keys with the most verifications, and those with the most refused ones. Empty unless asked for. */
  mostUsed: UsedKey[]
  mostRefused: UsedKey[]
  /** `externalId` is absent once the identity is deleted. */
  identities: (Counts & { identity: { id: string; externalId?: string } })[]
}

/** `name` and `start` are absent once the key is deleted. */
export type UsedKey = Counts & { keyId: string; name?: string; start?: string }

/**
 * Verifications of all APIs of the workspace, by hour and outcome. The hours read one stored row each for an API; `top` reads
 * one for each key that was used.
 * @param options.top How many keys and identities to name; 0 = none.
 */
export async function getOverview(
  { sql, history }: Pick<Services, 'sql' | 'history'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  { range, top }: { range: Range; top: number },
): Promise<Overview> {
  const span = { from: range.from, to: range.to }
  const keyspaceIds = await listAllKeyspaceIds(sql, workspaceId)
  const read = async (
    groups: VerificationGroups,
    order: VerificationOrder | RefusedFirst,
    limit: number,
  ): Promise<VerificationRow[]> => {
    if (keyspaceIds.length === 0 || limit === 0) return []
    return await readMade(
      history,
      (made) =>
        countVerifications(
          history,
          { ...ALL, workspaceId, keyspaceIds, ...span, made },
          groups,
          order,
          limit,
        ),
      { isEmpty: (rows) => rows.every(({ total }) => total === 0) },
    )
  }
  const [hours, used, refused, identities] = await Promise.all([
    read(BY_HOUR, null, ROWS_MAX + 1),
    read(BY_KEY, { by: 'total', descending: true }, top),
    read(BY_KEY, { by: 'refused', descending: true }, top),
    read(BY_IDENTITY, { by: 'total', descending: true }, top),
  ])
  const refusedMost = refused.filter(({ total, valid }) => total > valid)
  const names = await nameKeys(
    sql,
    workspaceId,
    [...used, ...refusedMost].map(({ keyId }) => keyId),
  )
  const named = (row: VerificationRow): UsedKey => {
    const { name = null, start } = names.get(row.keyId) ?? {}
    return {
      keyId: row.keyId,
      ...(name !== null && { name }),
      ...(start !== undefined && { start }),
      ...countsOf(row),
    }
  }
  return {
    hours: completeSeries(
      hours.map((row) => ({ time: row.time, ...countsOf(row) })),
      {
        range,
        time: 'hour',
        bucketsWithData: new Set(),
        emptyRow: (time) => ({ time, ...NO_COUNTS }),
        order: null,
        limit: undefined,
      },
    ),
    mostUsed: used.map(named),
    mostRefused: refusedMost.map(named),
    identities: identities.map((row) => ({
      identity: { id: row.identityId, ...(row.externalId !== null && { externalId: row.externalId }) },
      ...countsOf(row),
    })),
  }
}

const ALL = { identityId: null, keyIds: [], tags: [] }
const NONE: VerificationGroups = { time: null, key: false, identity: false, tags: null }
const BY_HOUR: VerificationGroups = { ...NONE, time: 'hour' }
const BY_KEY: VerificationGroups = { ...NONE, key: true }
const BY_IDENTITY: VerificationGroups = { ...NONE, identity: true }
