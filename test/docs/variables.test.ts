import { expect, test } from 'bun:test'
import { readConfig, unknownVariables, VARIABLES } from '../../src/config.ts'
import { outcomeOf } from '../support/outcome.ts'
import { DOCS, ROOT } from './blocks.ts'

type Row = { name: string; otherwise: string }

/** The page's tables. A row may have several variables, with as many defaults or one for all. */
const rows: Row[] = [
  ...(DOCS.configuration ?? '').matchAll(/^\| (`[A-Z].*?`) \| (.*?) \| \S.* \|$/gm),
].flatMap(([, names = '', otherwise = '']) => {
  const defaults = otherwise.replaceAll('`', '').split(', ')
  return names
    .replaceAll('`', '')
    .split(', ')
    .map((name, index) => ({ name, otherwise: defaults[index] ?? defaults[0] ?? '' }))
})

test('the page of configuration has every variable with its default, and no other', () => {
  const read = Object.entries(VARIABLES).map(([name, { otherwise }]) => ({ name, otherwise }))
  const byName = (a: Row, b: Row) => a.name.localeCompare(b.name)
  expect(rows.sort(byName)).toEqual(read.sort(byName))
})

test('a default value on that page is the value that an empty environment gives', () => {
  for (const [name, { read, otherwise }] of Object.entries(VARIABLES))
    if (/^[\d.]+$/.test(otherwise))
      expect([name, read(otherwise, name)]).toEqual([name, read(undefined, name)])
})

test('serve --help lists every variable with its default', async () => {
  const { out } = await outcomeOf(
    Bun.spawn([process.execPath, `${ROOT}/src/main.ts`, 'serve', '--help'], {
      stdout: 'pipe',
      stderr: 'pipe',
    }),
  )
  for (const [name, { about, otherwise }] of Object.entries(VARIABLES))
    expect(out).toMatch(new RegExp(`^  ${name} +${RegExp.escape(`${about} (default: ${otherwise})`)}$`, 'm'))
})

/** Variables that Kubernetes sets in every pod for a Service of that name. */
const serviceLinks = (service: string) => {
  const name = service.toUpperCase().replaceAll('-', '_')
  return {
    [`${name}_SERVICE_HOST`]: '10.0.0.1',
    [`${name}_SERVICE_PORT`]: '9464',
    [`${name}_SERVICE_PORT_HTTP_METRICS`]: '9464',
    [`${name}_PORT`]: 'tcp://10.0.0.1:9464',
    [`${name}_PORT_9464_TCP`]: 'tcp://10.0.0.1:9464',
    [`${name}_PORT_9464_TCP_PROTO`]: 'tcp',
    [`${name}_PORT_9464_TCP_PORT`]: '9464',
    [`${name}_PORT_9464_TCP_ADDR`]: '10.0.0.1',
    [`${name}_PORT_53_UDP`]: 'udp://[fd00::1]:53',
  }
}

test('variables that Kubernetes sets for a Service are neither settings nor reported as misspelt', () => {
  const services = ['tollgate', 'tollgate-metrics', 'tollgate-http', 'tollgate-headless']
  const environment = Object.assign({}, ...services.map(serviceLinks))
  expect(readConfig(environment)).toEqual(readConfig({}))
  expect(unknownVariables(environment)).toEqual([])
  // Beside them settings still apply, and misspelt variables are still found.
  expect(readConfig({ ...environment, TOLLGATE_METRICS_PORT: '9464' }).metricsPort).toBe(9464)
  expect(unknownVariables({ ...environment, TOLLGATE_PORTS: '1' })).toHaveLength(1)
  expect(() => readConfig({ TOLLGATE_METRICS_PORT: 'http://10.0.0.1:9464' })).toThrow('TOLLGATE_METRICS_PORT')
  expect(() => readConfig({ PORT: 'tcp://10.0.0.1:80' })).toThrow('PORT is "tcp://10.0.0.1:80"')
})

test('an unknown variable is reported with the nearest known one', () => {
  const nearest = (variable: string) => unknownVariables({ [variable]: 'x' })
  for (const [slip, meant] of [
    ['TOLLGATE_SOKET', 'TOLLGATE_SOCKET'],
    ['TOLLGATE_DATADIR', 'TOLLGATE_DATA_DIR'],
    ['TOLLGATE_SLOW_MILLIS', 'TOLLGATE_SLOW_MS'],
    ['TOLLGATE_HTTP_THREAD', 'TOLLGATE_HTTP_THREADS'],
    ['tollgate_flush_ms', 'TOLLGATE_FLUSH_MS'],
    // Three names that other programs use lack the prefix.
    ['TOLLGATE_PORT', 'PORT'],
    ['TOLLGATE_HOST', 'HOST'],
    ['TOLLGATE_DATABASE_URL', 'DATABASE_URL'],
  ] as const)
    expect(nearest(slip)).toEqual([{ variable: slip, nearest: meant }])
  expect(
    unknownVariables({
      ...process.env,
      ...Object.fromEntries(Object.keys(VARIABLES).map((name) => [name, '1'])),
    }),
  ).toEqual([])
  expect(unknownVariables({ MY_TOLLGATE_URL: 'x', TOLLGATEWAY: 'x' })).toEqual([])
})
