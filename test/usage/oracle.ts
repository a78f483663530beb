import { bucketOf, type TimeGroup } from '../../src/lib/buckets.ts'
import type { Outcome } from '../../src/usage/recorder.ts'
import type { Json } from '../support/server.ts'

/** Counts verifications in the plainest way, for comparison with what a server answers. */

const HOUR = 3_600_000

export type Event = {
  keyId: string
  identityId: string | null
  outcome: Outcome
  tags: string[]
  atMs: number
}

/** The field of a datapoint that each outcome counts in. */
export const OUTCOMES = {
  VALID: 'valid',
  RATE_LIMITED: 'rateLimited',
  EXPIRED: 'expired',
  DISABLED: 'disabled',
  FORBIDDEN: 'forbidden',
  USAGE_EXCEEDED: 'usageExceeded',
  INSUFFICIENT_PERMISSIONS: 'insufficientPermissions',
} as const satisfies Record<Outcome, string>
export const COUNTS = [
  'valid',
  'notFound',
  'forbidden',
  'usageExceeded',
  'rateLimited',
  'unauthorized',
  'disabled',
  'insufficientPermissions',
  'expired',
  'total',
]

export type Question = {
  filter: { tag?: string | string[]; keyId?: string | string[]; externalId?: string }
  groupBy: string[]
  range: { start: number; end: number }
  /** External ids of the identities there are, by id; an id that is missing here was deleted. */
  externalIds: ReadonlyMap<string, string>
}

/** What the answer must be, from the events themselves. */
export function expectedRows(
  events: readonly Event[],
  { filter, groupBy, range, externalIds }: Question,
): Json[] {
  const list = (value: string | string[] | undefined) => (value === undefined ? [] : [value].flat())
  const keyIds = list(filter.keyId).flatMap((text) => text.split(','))
  const from = range.start - (range.start % HOUR)
  const lastHour = range.end - (range.end % HOUR)
  const time: TimeGroup | undefined = (['month', 'day', 'hour'] as const).find((name) =>
    groupBy.includes(name),
  )
  const rows = new Map<string, Json>()
  const rowOf = (names: Json) => {
    const name = JSON.stringify(names)
    const row = rows.get(name) ?? { ...names, ...Object.fromEntries(COUNTS.map((count) => [count, 0])) }
    rows.set(name, row)
    return row
  }
  if (groupBy.length === 0) rowOf({})
  const filled = new Set<number>()
  for (const { atMs, keyId, identityId, outcome, tags } of events) {
    if (atMs < from || atMs >= lastHour + HOUR) continue
    if (keyIds.length > 0 && !keyIds.includes(keyId)) continue
    const externalId = identityId === null ? undefined : externalIds.get(identityId)
    if (filter.externalId !== undefined && externalId !== filter.externalId) continue
    if (!list(filter.tag).every((tag) => tags.includes(tag))) continue
    if (groupBy.includes('identity') && identityId === null) continue
    const set = [...new Set(tags)].sort()
    for (const tag of groupBy.includes('tag') ? set : [undefined]) {
      const row = rowOf({
        ...(time && { time: bucketOf(atMs, time) }),
        ...(groupBy.includes('key') && { keyId }),
        ...(groupBy.includes('identity') && {
          identity: externalId === undefined ? { id: identityId } : { id: identityId, externalId },
        }),
        ...(groupBy.includes('tags') && { tags: set }),
        ...(tag !== undefined && { tag }),
      })
      row[OUTCOMES[outcome]]++
      row.total++
      if (time) filled.add(bucketOf(atMs, time))
    }
  }
  if (time) {
    for (let hour = from; bucketOf(hour, time) < bucketOf(lastHour, time); hour += HOUR) {
      const bucket = bucketOf(hour, time)
      if (filled.has(bucket)) continue
      filled.add(bucket)
      rowOf({
        time: bucket,
        ...(groupBy.includes('key') && { keyId: '' }),
        ...(groupBy.includes('tags') && { tags: [] }),
        ...(groupBy.includes('tag') && { tag: '' }),
      })
    }
  }
  return [...rows.values()]
}

/** Of a row, whatever the order of its fields. */
export const asText = (row: Json): string =>
  JSON.stringify(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)))
