import type { Command } from './arguments.ts'
import { UsageError } from './arguments.ts'
import { Client } from './client.ts'
import { chartText, tableText, timeText } from './text.ts'

type Verifications = { time: number; total: number; valid: number }
type Decisions = { time: number; passed: number; denied: number; total: number }

export const usageCommand: Command = {
  name: 'usage',
  about: 'counts by hour or day, of an API’s keys or of a namespace',
  options: {
    api: { value: '<id>', about: 'verifications of its keys (needs a root key with api.*.read_api)' },
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
      const rows = points.map(({ time, valid, total }) => [timeText(time), valid, total - valid, total])
      given.print(show(['time (UTC)', 'valid', 'refused', 'total'], rows, points), points)
    } else {
      const points = await client.get<Decisions[]>('analytics.getRatelimits', { namespaceName, ...query })
      const rows = points.map(({ time, passed, denied, total }) => [timeText(time), passed, denied, total])
      given.print(show(['time (UTC)', 'passed', 'denied', 'total'], rows, points), points)
    }
  },
}

const show = (head: string[], rows: (string | number)[][], points: { total: number }[]) =>
  `${tableText(head, rows)}\n\n${chartText(points.map(({ total }) => total))}`

const HOUR_MS = 3_600_000
