import { expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { startTestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { DOCS, ROOT } from './blocks.ts'
import { MADE, METRIC_FAMILIES, pageWithMadePart } from './made.ts'

setDefaultTimeout(SLOW_MS)

/** `bun run docs` repairs what this finds. */
test.each(Object.keys(MADE))('%s matches the tables in the code', (path) => {
  expect(readFileSync(join(ROOT, path), 'utf8')).toBe(pageWithMadePart(path))
})

test('the page of metrics has a row for every metric with its type, and no other row', () => {
  const exist = [...METRIC_FAMILIES].map(({ name, type }) => `${name} ${type}`)
  expect(rowsOfMetrics().sort()).toEqual(exist.sort())
})

test('what a running server exposes is on that page', async () => {
  await using server = await startTestServer({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' } })
  const workspace = await server.workspace()
  await workspace.post('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 1, duration: 60_000 })
  const exposed = await (await fetch(`${server.url}/metrics`)).text()
  const exist = [...exposed.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name, type]) => `${name} ${type}`)
  expect(exist.length).toBeGreaterThan(30)
  expect(exist.filter((each) => !rowsOfMetrics().includes(each))).toEqual([])
})

const rowsOfMetrics = () =>
  [...(DOCS.metrics ?? '').matchAll(/^\| `(\w+)` \| (\w+) \| \S.* \|$/gm)].map(
    ([, name, type]) => `${name} ${type}`,
  )
