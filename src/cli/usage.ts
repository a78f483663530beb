import type { Command } from './arguments.ts'
import { UsageError } from './arguments.ts'
import { Client } from './client.ts'
import { barTexts, tableText, timeText } from './text.ts'

type Verifications = { time: number; total: number; valid: number }
type Decisions = { time: number; passed: number; denied: number; total: number }

export const usageCommand: Command = {
  name: 'usage',
  about: 'counts by hour or day, of an API’s keys or of a namespace',
  options: {
    api: { value: '<id>', about: 'verifications of its keys (needs * or api.*.read_api)' },
    namespace: { value: '<name>', about: 'rate limit decisions in it' },
    hours: { value: '<n>', about: 'how far back, by hour; default 24' },
    days: { value: '<n>', about: 'how far back, by day instead' },
  },
  async run(given) {
    const [apiId, namespaceName] = [given.text('api'), given.text('namespace')]
    if ((apiId === undefined) === (namespaceName === undefined))
      throw new UsageError('one of --api and --namespace is required')
    const days = given.whole('days', 1)
    const spanMs = days === undefined ? (given.whole('hours', 1) ?? 24) * HOUR_MS : days * 24 * HOUR_MS
    const now = Date.now()
    const query = { start: now - spanMs, end: now, groupBy: days === undefined ? 'hour' : 'day' }
    const client = new Client()
    if (apiId !== undefined) {
      const points = await client.get<Verifications[]>('analytics.getVerifications', { apiId, ...query })
      given.print(
        show(['valid', 'refused'], points, ({ valid, total }) => [valid, total - valid]),
        points,
      )
    } else {
      const points = await client.get<Decisions[]>('analytics.getRatelimits', { namespaceName, ...query })
      given.print(
        show(['passed', 'denied'], points, ({ passed, denied }) => [passed, denied]),
        points,
      )
    }
  },
}

/** A row a point of time, and beside it a bar: full for what was allowed, hollow for the rest. */
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
