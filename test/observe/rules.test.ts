import { describe, expect, test } from 'bun:test'
import { docPage } from '../../src/pages/docs.ts'
import { openApiDocument } from '../../src/pages/openapi.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { DOCS } from '../docs/blocks.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ALERTS, OF_SCRAPE, PROMETHEUS, PROMTOOL, RECORDED, RULE_TESTS, readBy, readYaml } from './rules.ts'

/** Labels of each metric, from the reference, which other tests hold to what a server exposes. */
const LABELS = new Map<string, string[]>(
  [...(DOCS.metrics ?? '').matchAll(/^\| `(\w+)` \| (\w+) \| (.*?) \|/gm)].flatMap(
    ([, name = '', type, those = '']): [string, string[]][] => {
      const labels = [...those.matchAll(/`(\w+)`/g)].map(([, label = '']) => label)
      if (type !== 'histogram') return [[name, labels]]
      return [
        [`${name}_bucket`, [...labels, 'le']],
        [`${name}_sum`, labels],
        [`${name}_count`, labels],
      ]
    },
  ),
)
for (const { record } of RECORDED) LABELS.set(record, [])
LABELS.set('up', [])

describe('each alert', () => {
  test.each(ALERTS)('$alert watches what exists, says what it costs, and links to the runbook', (alert) => {
    const { expr, labels, annotations } = alert
    const { series, groups } = readBy(expr)
    expect(series.length).toBeGreaterThan(0)
    const known = [...OF_SCRAPE, ...series.flatMap(({ name }) => LABELS.get(name) ?? [])]
    expect(series.filter(({ name }) => !LABELS.has(name))).toEqual([])
    for (const { name, labels } of series)
      expect([...OF_SCRAPE, ...(LABELS.get(name) ?? [])]).toEqual(expect.arrayContaining(labels))
    expect(known).toEqual(expect.arrayContaining(groups))
    const shown = [...annotations.summary.matchAll(/\$labels\.(\w+)/g)].map(([, label = '']) => label)
    expect(groups.length > 0 ? groups : known).toEqual(expect.arrayContaining(shown))
    expect(['page', 'ticket']).toContain(labels.severity)
    expect(annotations.summary.length).toBeGreaterThan(20)
    expect(RUNBOOK).toContain(`id="${anchorOf(annotations.runbook_url)}"`)
  })

  test('has a test in which it fires and one in which it does not', () => {
    type Tests = { tests: { alert_rule_test: { alertname: string; exp_alerts: unknown[] }[] }[] }
    const tests = RULE_TESTS.flatMap((name) => {
      const { tests } = readYaml(name) as Tests // promtool checks the form
      return tests.flatMap((each) => each.alert_rule_test)
    })
    const untested = ALERTS.flatMap(({ alert }) => {
      const counts = tests
        .filter(({ alertname }) => alertname === alert)
        .map((each) => each.exp_alerts.length)
      const missing = [
        counts.some((count) => count > 0) ? '' : 'firing',
        counts.includes(0) ? '' : 'not firing',
      ]
      return missing.filter((kind) => kind !== '').map((kind) => `${alert}: ${kind}`)
    })
    expect(untested).toEqual([])
  })
})

/** Every alert has a section, and no section is of an alert that is gone. */
test('the runbook has no section for an alert that does not exist', () => {
  const sections = [...(DOCS.runbook ?? '').matchAll(/^### (Tollgate\w+)$/gm)].map(([, name = '']) => name)
  const linked = new Set(ALERTS.map(({ annotations }) => anchorOf(annotations.runbook_url)))
  expect(sections.length).toBeGreaterThan(5)
  expect(sections.filter((name) => !linked.has(name.toLowerCase()))).toEqual([])
})

test('all links of the rules have the address that the guide replaces', () => {
  const [, address = ''] = /sed -i 's\|(https:\S+?)\|/.exec(DOCS.monitoring ?? '') ?? []
  for (const { annotations } of ALERTS)
    expect(annotations.runbook_url).toStartWith(`${address}/docs/runbook#`)
})

test('recorded series read what exists, and tell the window that they are named after', () => {
  for (const { record, expr } of RECORDED) {
    const { series, groups } = readBy(expr)
    for (const { name, labels } of series)
      expect([name, [...OF_SCRAPE, ...(LABELS.get(name) ?? [])]]).toEqual([
        name,
        expect.arrayContaining(labels),
      ])
    expect(groups.filter((label) => label !== 'job')).toEqual([])
    const window = record.split('rate').at(-1)
    for (const [, each] of expr.matchAll(/\[(\d+[mhd])\]/g)) expect([record, each]).toEqual([record, window])
  }
})

/** Their routes are a pattern. It must mean the four operations of each API, and nothing else. */
test('the objectives are of verifications and limits, in both APIs', () => {
  const [, pattern = ''] = /route=~"([^"]+)"/.exec(RECORDED[0]?.expr ?? '') ?? []
  const meant = allEndpoints
    .map(({ path }) => path)
    .filter((path) => new RegExp(`^(?:${pattern})$`).test(path))
  expect(meant.sort()).toEqual([
    '/v1/auth.forward',
    '/v1/keys.verifyKey',
    '/v1/ratelimits.limit',
    '/v1/ratelimits.multiLimit',
    '/v2/keys.verifyKey',
    '/v2/ratelimit.limit',
    '/v2/ratelimit.multiLimit',
  ])
  for (const { expr } of RECORDED)
    for (const [, each] of expr.matchAll(/route=~"([^"]+)"/g)) expect(each).toBe(pattern)
})

describe('according to promtool', () => {
  const run = (...words: string[]) => {
    const { exitCode, stdout, stderr } = Bun.spawnSync([PROMTOOL ?? '', ...words], { cwd: PROMETHEUS })
    return { exitCode, out: `${stdout}${stderr}` }
  }

  test.skipIf(PROMTOOL === null)('the rules have no errors', () => {
    expect(run('check', 'rules', 'rules.yml')).toEqual({
      exitCode: 0,
      out: expect.stringContaining(`SUCCESS: ${ALERTS.length + RECORDED.length} rules found`),
    })
  })

  test.skipIf(PROMTOOL === null)(
    'the alerts fire when they should, and only then',
    () => {
      const { exitCode, out } = run('test', 'rules', ...RULE_TESTS)
      expect([exitCode, out.match(/SUCCESS/g)?.length, out]).toEqual([0, RULE_TESTS.length, out])
    },
    SLOW_MS,
  )
})

const anchorOf = (url: string) => url.split('#')[1] ?? ''
const RUNBOOK = docPage('runbook', openApiDocument(allEndpoints, 'http://127.0.0.1:3000')) ?? ''
