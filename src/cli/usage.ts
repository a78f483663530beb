import { bucketOf, type TimeGroup } from '../lib/buckets.ts'
import type { Arguments, Command } from './arguments.ts'
import type { GetOverviewReply } from './replies.ts'
import { barTexts, tableText, timeText } from './text.ts'
import { UsageError } from './usage-error.ts'

type Verifications = { time: number; total: number; valid: number }
type Decisions = { time: number; passed: number; denied: number; total: number }

export const usageCommand: Command = {
  name: 'usage',
  about: 'show usage by hour, day or month, of all keys, of the keys of an API or of a namespace',
  options: {
    all: { value: null, about: 'verifications of the keys of all APIs (needs * or api.*.read_api)' },
    api: { value: '<id>', about: 'id of an API: verifications of its keys (needs * or api.*.read_api)' },
    namespace: { value: '<name>', about: 'name of a namespace: its rate limit decisions' },
    since: { value: '<time>', about: 'start of the range; 7d = 7 days ago; default: 24h' },
    until: { value: '<time>', about: 'end of the range; default: now' },
    by: {
      value: 'hour|day|month',
      about: 'one row per hour, day or month; default: hour, or day for ranges of 3 days and more',
    },
    hours: { value: '<n>', about: 'the last <n> hours, by hour' },
    days: { value: '<n>', about: 'the last <n> days, by day' },
    key: { value: '<id>', about: 'with --api: only this key', isList: true },
    'external-id': { value: '<text>', about: 'with --api: only keys of this identity' },
    identifier: { value: '<text>', about: 'with --namespace: only this identifier', isList: true },
  },
  example: 'usage --api api_1234 --since 7d --by day',
  async run(given) {
    const [apiId, namespaceName] = [given.text('api'), given.text('namespace')]
    const isAll = given.flag('all')
    if ([isAll, apiId !== undefined, namespaceName !== undefined].filter(Boolean).length !== 1)
      throw new UsageError('give one of --all, --api and --namespace')
    if (apiId === undefined && (given.list('key').length > 0 || given.text('external-id') !== undefined))
      throw new UsageError('--key and --external-id need --api')
    if (namespaceName === undefined && given.list('identifier').length > 0)
      throw new UsageError('--identifier needs --namespace')
    const query = rangeOf(given)
    const client = await given.client()
    if (isAll) {
      const { start, end, groupBy } = query
      const { hours } = await client.get<GetOverviewReply>('analytics.getOverview', { start, end })
      const points = summed(hours, groupBy)
      given.print(
        show(['valid', 'refused'], points, ({ valid, total }) => [valid, total - valid]),
        points,
      )
    } else if (apiId !== undefined) {
      const points = await client.get<Verifications[]>('analytics.getVerifications', {
        apiId,
        keyId: given.list('key'),
        externalId: given.text('external-id'),
        ...query,
      })
      given.print(
        show(['valid', 'refused'], points, ({ valid, total }) => [valid, total - valid]),
        points,
      )
    } else {
      const points = await client.get<Decisions[]>('analytics.getRatelimits', {
        namespaceName,
        identifier: given.list('identifier'),
        ...query,
      })
      given.print(
        show(['passed', 'denied'], points, ({ passed, denied }) => [passed, denied]),
        points,
      )
    }
  },
}

/** Hours added up by UTC day or month. */
function summed(hours: GetOverviewReply['hours'], groupBy: TimeGroup): Verifications[] {
  const points = new Map<number, Verifications>()
  for (const { time, total, valid } of hours) {
    const start = bucketOf(time, groupBy)
    const point = points.get(start) ?? { time: start, total: 0, valid: 0 }
    points.set(start, { ...point, total: point.total + total, valid: point.valid + valid })
  }
  return [...points.values()]
}

/** @throws UsageError */
function rangeOf(given: Arguments): { start: number; end: number; groupBy: TimeGroup } {
  const [hours, days] = [given.whole('hours', 1), given.whole('days', 1)]
  const since = given.time('since', 'back')
  if ([hours, days, since].filter((each) => each !== undefined).length > 1)
    throw new UsageError('give only one of --since, --hours and --days')
  const end = given.time('until', 'back') ?? given.now
  const start = since ?? end - (days === undefined ? (hours ?? 24) * HOUR_MS : days * 24 * HOUR_MS)
  if (start >= end) throw new UsageError('--since must be before --until')
  const isLong = days !== undefined || (since !== undefined && end - start >= DAYS_FROM_MS)
  const asked = given.text('by') ?? (isLong ? 'day' : 'hour')
  const groupBy = (['hour', 'day', 'month'] as const).find((each) => each === asked)
  if (groupBy === undefined) throw new UsageError('--by must be hour, day or month')
  return { start, end, groupBy }
}

/** A row for each point in time, with a bar: full blocks for allowed calls, hollow ones for others. */
function show<P extends { time: number; total: number }>(
  names: readonly [string, string],
  points: readonly P[],
  pairOf: (point: P) => readonly [number, number],
): string {
  const bars = barTexts(points.map(pairOf))
  return tableText(
    ['time (UTC)', ...names, 'total', ''],
    points.map((point, index) => [timeText(point.time), ...pairOf(point), point.total, bars[index] ?? '']),
  )
}

const HOUR_MS = 3_600_000
/** From this range on, rows are days instead of hours. */
const DAYS_FROM_MS = 72 * HOUR_MS
