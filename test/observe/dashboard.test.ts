import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import dashboard from '../../deploy/grafana/tollgate.json' with { type: 'json' }
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { OF_SCRAPE, PROMTOOL, RECORDED, readBy } from './rules.ts'

setDefaultTimeout(SLOW_MS)

/** Grafana is not run here. Its queries are, as far as a server and promtool can tell. */
const PANELS = dashboard.panels.filter(({ type }) => type !== 'row')
const QUERIES = PANELS.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({ title, expr, legendFormat })),
)
const VARIABLES = dashboard.templating.list

/** Not exposed by a server under little load. */
const RARE: Record<string, string[]> = {
  // A workspace must be half full, or full.
  tollgate_workspace_bound_used_ratio: ['workspace', 'bound'],
  tollgate_workspace_bound_reached_total: ['workspace', 'bound'],
  // With a Postgres alone.
  tollgate_database_connections: ['state'],
  tollgate_clock_offset_seconds: [],
}

let server: TestServer
/** Labels of each series of `/metrics`. */
const exposed = new Map<string, Set<string>>()
beforeAll(async () => {
  server = await startTestServer({
    env: { TOLLGATE_HTTP_THREADS: '2', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
  })
  const workspace = await server.workspace()
  const limit = { namespace: 'n', identifier: 'i', limit: 1, duration: 60_000 }
  for (let call = 0; call < 3; call++) await workspace.post('ratelimits.limit', limit)
  await server.post('keys.verifyKey', { key: 'unknown' })
  await server.get('apis.getApi', { apiId: 'api_1' })
  await server.server.shards.stats(Date.now())
  const text = await (await fetch(server.server.metricsUrl)).text()
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const known = exposed.get(name) ?? new Set()
    for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label)
    exposed.set(name, known)
  }
})
afterAll(() => server[Symbol.asyncDispose]())

const labelsOf = (name: string): string[] | null => {
  const found = exposed.get(name) ?? RARE[name]
  if (found !== undefined) return [...OF_SCRAPE, ...found]
  return name === 'up' || RECORDED.some(({ record }) => record === name) ? OF_SCRAPE : null
}

describe('each panel of the dashboard', () => {
  test('asks for metrics and labels that a running server exposes', () => {
    expect(QUERIES.length).toBeGreaterThan(40)
    for (const { title, expr, legendFormat } of QUERIES) {
      const { series, groups } = readBy(expr)
      expect([title, series.length]).not.toEqual([title, 0])
      expect([title, series.filter(({ name }) => labelsOf(name) === null)]).toEqual([title, []])
      for (const { name, labels } of series)
        expect([title, labels.filter((label) => labelsOf(name)?.includes(label) !== true)]).toEqual([
          title,
          [],
        ])
      const all = series.flatMap(({ name }) => labelsOf(name) ?? [])
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label)
      const unknown = [
        ...groups.filter((label) => !all.includes(label)),
        ...shown.filter((label) => !(groups.length > 0 ? groups : all).includes(label)),
      ]
      expect([title, unknown]).toEqual([title, []])
    }
  })

  test.skipIf(PROMTOOL === null)('has queries without errors, according to promtool', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-panels-'))
    try {
      const rules = QUERIES.map(({ expr }, index) => ({ record: `panel:${index}`, expr: plain(expr) }))
      // JSON is YAML.
      writeFileSync(join(folder, 'panels.yml'), JSON.stringify({ groups: [{ name: 'panels', rules }] }))
      const { exitCode, stdout, stderr } = Bun.spawnSync([PROMTOOL ?? '', 'check', 'rules', 'panels.yml'], {
        cwd: folder,
      })
      expect([exitCode, `${stdout}${stderr}`]).toEqual([
        0,
        expect.stringContaining(`${QUERIES.length} rules found`),
      ])
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  test('has a title of its own, says what it shows, and overlaps no other', () => {
    const titles = PANELS.map(({ title }) => title)
    expect(titles.filter((title, index) => titles.indexOf(title) !== index)).toEqual([])
    for (const { title, description = '' } of PANELS)
      expect([title, description]).toEqual([title, expect.stringMatching(/^\S.*\.$/)])
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    const places = dashboard.panels.map(({ gridPos }) => gridPos)
    for (const [index, one] of places.entries()) {
      expect(one.x + one.w).toBeLessThanOrEqual(24)
      for (const other of places.slice(index + 1)) {
        const isBeside = one.x + one.w <= other.x || other.x + other.w <= one.x
        const isAbove = one.y + one.h <= other.y || other.y + other.h <= one.y
        expect([one, other, isBeside || isAbove]).toEqual([one, other, true])
      }
    }
  })
})

/** A variable that is not there would be sent to Prometheus as it stands. */
test('queries use the variables that the dashboard has, and each of them is used', () => {
  const names = VARIABLES.map(({ name }) => name)
  const used = new Set(
    [...JSON.stringify(dashboard).matchAll(/\$\{?([a-z_]\w*)/g)].map(([, name = '']) => name),
  )
  for (const builtIn of ['__rate_interval', '__range', '__all']) used.delete(builtIn)
  expect([...used].sort()).toEqual(names.sort())
  for (const { query } of VARIABLES) {
    if (typeof query === 'string') continue
    const [, series = '', label = ''] = /^label_values\((.+), (\w+)\)$/.exec(query.query) ?? []
    expect(readBy(series).series.every(({ name }) => exposed.has(name))).toBe(true)
    expect(OF_SCRAPE).toContain(label)
  }
})

/** Grafana fills in its variables. */
const plain = (expr: string) =>
  expr.replaceAll('$__rate_interval', '5m').replaceAll('$__range', '1d').replaceAll(/\$\w+/g, '.*')

test.skipIf(PROMTOOL === null)('promtool finds nothing to say about what a server exposes', async () => {
  const text = await (await fetch(server.server.metricsUrl)).blob()
  const checked = Bun.spawn([PROMTOOL ?? '', 'check', 'metrics'], {
    stdin: text,
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const said = (await new Response(checked.stdout).text()) + (await new Response(checked.stderr).text())
  expect([await checked.exited, said]).toEqual([0, ''])
})
