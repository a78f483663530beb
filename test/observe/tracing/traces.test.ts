import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readConfig } from '../../../src/config.ts'
import { openTestDatabase } from '../../support/database.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { spawnServer } from '../../support/process.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { type Collector, startCollector } from './support.ts'

setDefaultTimeout(SLOW_MS)

const traceId = '0af7651916cd43dd8448eb211c80319c'
const parentId = 'b7ad6b7169203331'
const sampled = { traceparent: `00-${traceId}-${parentId}-01`, tracestate: 'rojo=00f067aa0ba902b7' }

describe('with a collector', () => {
  let collector: Collector
  let server: TestServer
  let workspace: TestWorkspace
  beforeAll(async () => {
    collector = startCollector()
    server = await startTestServer({
      env: {
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_EXPORTER_OTLP_HEADERS: 'x-team=keys,authorization=Bearer%20secret',
        OTEL_SERVICE_NAME: 'gate',
        OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test,service.name=overridden',
      },
    })
    workspace = await server.workspace()
  })
  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    await collector[Symbol.asyncDispose]()
  })

  /** The exported spans of the calls in `work`. */
  async function spansOf(work: () => Promise<unknown>) {
    await server.server.deps.tracer?.flush()
    collector.spans.length = 0
    await work()
    await server.server.deps.tracer?.flush()
    return [...collector.spans]
  }

  test('a request is a span in the caller’s trace with its waits below it, and the answer has the trace', async () => {
    const limit = { namespace: 'n', identifier: 'x', limit: 10, duration: 60_000 }
    await workspace.post('ratelimits.limit', limit)
    let answer = new Headers()
    const before = Date.now()
    const spans = await spansOf(async () => {
      answer = (await server.post('ratelimits.limit', limit, workspace.rootKey, sampled)).headers
    })
    const request = spans.find(({ kind }) => kind === 2)
    expect(request).toMatchObject({
      traceId,
      parentSpanId: parentId,
      traceState: sampled.tracestate,
      name: 'POST /v1/ratelimits.limit',
      status: {},
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/v1/ratelimits.limit',
        'http.response.status_code': '200',
        'url.path': '/v1/ratelimits.limit',
        'client.address': '127.0.0.1',
        'tollgate.request_id': answer.get('unkey-request-id'),
      },
    })
    expect(answer.get('traceparent')).toBe(`00-${traceId}-${request?.spanId}-01`)
    expect(answer.get('tracestate')).toBe(sampled.tracestate)
    const waits = spans.filter((span) => span !== request)
    expect(waits.map(({ name, parentSpanId, traceId }) => [name, parentSpanId, traceId])).toEqual([
      ['limiter.take', request?.spanId, traceId],
    ])
    for (const { startTimeUnixNano, endTimeUnixNano } of spans) {
      expect(Number(startTimeUnixNano) / 1e6).toBeWithin(before - 50, Date.now() + 50)
      expect(BigInt(endTimeUnixNano) >= BigInt(startTimeUnixNano)).toBe(true)
    }
    const { path, headers, resource } = collector.requests.at(-1) ?? {}
    expect(path).toBe('/v1/traces')
    expect([headers?.get('x-team'), headers?.get('authorization')]).toEqual(['keys', 'Bearer secret'])
    expect(resource).toMatchObject({
      'service.name': 'gate',
      'deployment.environment.name': 'test',
      'service.version': expect.any(String),
      'service.instance.id': expect.any(String),
      'process.runtime.name': 'bun',
    })
  })

  /** More people can read spans than can read the database. */
  test('a write’s span has its statements, and no span contains a key, an id or a name', async () => {
    const apiId = await makeApi(workspace)
    let key = ''
    const spans = await spansOf(async () => {
      key = (await makeKey(workspace, apiId, { name: 'a private name' })).key
      await server.post('keys.verifyKey', { key })
      await server.get('auth.forward', { apiId, permissions: 'a.private.permission' }, key)
    })
    const write = spans.find(({ name }) => name === 'database.write')
    const statements = spans.filter(({ parentSpanId }) => parentSpanId === write?.spanId)
    expect(statements.map(({ kind, attributes }) => [kind, attributes['db.system.name']])).toContainEqual([
      3,
      'postgresql',
    ])
    expect(
      statements.some(({ attributes }) => attributes['db.query.text']?.startsWith('insert into keys')),
    ).toBe(true)
    expect(spans.map(({ name }) => name)).toContain('keys.find')
    const text = JSON.stringify(spans)
    for (const secret of [key, workspace.rootKey, apiId, 'a private name', 'a.private.permission'])
      expect(text).not.toContain(secret)
  })

  test('a request without a context starts a trace, and one that its caller does not record is only passed on', async () => {
    const traceOf = (headers: Headers) =>
      /^00-([0-9a-f]{32})-([0-9a-f]{16})-(0[01])$/.exec(headers.get('traceparent') ?? '')
    const told: (RegExpExecArray | null)[] = []
    const spans = await spansOf(async () => {
      told.push(traceOf((await server.get('liveness')).headers))
      const header = { traceparent: `00-${traceId}-${parentId}-00` }
      told.push(traceOf((await server.get('liveness', {}, null, header)).headers))
    })
    const [own, unrecorded] = told
    expect(own?.[3]).toBe('01')
    expect([unrecorded?.[1], unrecorded?.[3]]).toEqual([traceId, '00'])
    const requests = spans.filter(({ kind }) => kind === 2)
    expect(requests.map(({ name, traceId, parentSpanId }) => [name, traceId, parentSpanId])).toEqual([
      ['GET /v1/liveness', own?.[1] ?? '', undefined],
    ])
  })

  test('a refusal is not an error of the server, and a failure is', async () => {
    const { sql } = server.server.deps
    const spans = await spansOf(async () => {
      await server.post('keys.verifyKey', {})
      await sql`alter table keys rename to keys_away`
      try {
        expect((await server.post('keys.verifyKey', { key: 'never seen' })).status).toBe(500)
      } finally {
        await sql`alter table keys_away rename to keys`
      }
    })
    const told = spans
      .filter(({ kind }) => kind === 2)
      .map(({ attributes, status }) => [
        attributes['http.response.status_code'],
        attributes['error.type'],
        status.code,
      ])
    expect(told).toEqual([
      ['400', undefined, undefined],
      ['500', '500', 2],
    ])
    expect(spans.find(({ name }) => name === 'keys.find')?.status).toEqual({ code: 2 })
  })

  test('a path without an endpoint is a span too, without a route and without its query', async () => {
    const spans = await spansOf(() => fetch(`${server.url}/v1/no.such?secret=1`, { headers: sampled }))
    expect(spans).toHaveLength(1)
    expect(spans[0]).toMatchObject({ name: 'GET', kind: 2, traceId, parentSpanId: parentId, status: {} })
    expect(spans[0]?.attributes).toMatchObject({
      'http.response.status_code': '404',
      'url.path': '/v1/no.such',
    })
    expect(JSON.stringify(spans)).not.toContain('secret')
    expect(spans[0]?.attributes).not.toHaveProperty('http.route')
  })

  test('the metrics count exported spans', async () => {
    await spansOf(() => server.get('liveness'))
    const text = await (await fetch(server.server.metricsUrl)).text()
    expect(text).toMatch(/^tollgate_spans_exported_total\{thread="http-0"\} [1-9]/m)
    expect(text).toContain('tollgate_spans_dropped_total{thread="http-0"} 0\n')
  })

  /** A mistake of a proxy or browser must not become an error here. */
  test('an invalid context changes nothing', async () => {
    const header = { traceparent: 'no context', tracestate: 'a=1' }
    const { status, headers } = await server.get('liveness', {}, null, header)
    expect(status).toBe(200)
    expect(headers.get('traceparent')).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
    expect(headers.has('tracestate')).toBe(false)
  })
})

test('without a collector the answer has the trace, and nothing is recorded', async () => {
  await using server = await startTestServer()
  expect(server.server.deps.tracer).toBeNull()
  const { headers } = await server.get('liveness', {}, null, sampled)
  expect(headers.get('traceparent')).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`))
  expect(headers.get('traceparent')).not.toContain(parentId)
  expect(headers.get('tracestate')).toBe(sampled.tracestate)
  expect((await server.get('liveness')).headers.has('traceparent')).toBe(false)
  const metrics = await (await fetch(server.server.metricsUrl)).text()
  expect(metrics).not.toContain('tollgate_spans')
})

test('log lines have the trace, and a stop exports waiting spans', async () => {
  await using collector = startCollector()
  await using database = await openTestDatabase()
  await using server = await spawnServer({
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ACCESS_LOG: '1',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces`,
  })
  await server.post('keys.verifyKey', { key: 'unknown' }, null, sampled)
  expect(await server.end('SIGTERM')).toBe(0)
  const line =
    server
      .output()
      .split('\n')
      .find((text) => text.includes('"route":"/v1/keys.verifyKey"')) ?? '{}'
  const span = collector.spans.find(({ kind }) => kind === 2)
  expect(JSON.parse(line)).toMatchObject({ event: 'request', traceId, spanId: span?.spanId ?? 'no span' })
})

test('a collector on this machine is not called through a proxy from the environment', async () => {
  await using collector = startCollector()
  await using database = await openTestDatabase()
  await using server = await spawnServer({
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${collector.url}/v1/traces`,
    HTTP_PROXY: 'http://127.0.0.1:9', // no server listens there
    ALL_PROXY: 'http://127.0.0.1:9',
  })
  await server.post('keys.verifyKey', { key: 'unknown' }, null, sampled)
  expect(await server.end('SIGTERM')).toBe(0)
  expect(collector.spans.length).toBeGreaterThan(0)
  expect(server.output()).not.toContain('span_export_failing')
})

describe('the variables', () => {
  const tracingOf = (env: Record<string, string>) => readConfig({ PORT: '0', ...env }).tracing
  const url = 'http://collector:4318'

  test('set the collector, the resource and the ratio, and those for traces come first', () => {
    expect(tracingOf({})).toBeNull()
    expect(tracingOf({ OTEL_SERVICE_NAME: 'x' })).toBeNull()
    expect(tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_SDK_DISABLED: 'TRUE' })).toBeNull()
    expect(tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_TRACES_EXPORTER: 'none' })).toBeNull()
    expect(tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: `${url}/` })).toEqual({
      url: `${url}/v1/traces`,
      headers: {},
      timeoutMs: 10_000,
      resource: { 'service.name': 'tollgate' },
      sampler: { heedsParent: true, ratio: 1 },
    })
    expect(
      tracingOf({
        OTEL_EXPORTER_OTLP_ENDPOINT: url,
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces/in/',
        OTEL_EXPORTER_OTLP_HEADERS: 'a=1',
        OTEL_EXPORTER_OTLP_TRACES_HEADERS: ' b = 2%2C3 ,c=d=e,',
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT: '500',
        OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf',
        OTEL_RESOURCE_ATTRIBUTES: 'service.name=x,k=v',
        OTEL_TRACES_SAMPLER: 'traceidratio',
        OTEL_TRACES_SAMPLER_ARG: '0.25',
      }),
    ).toEqual({
      url: 'https://traces/in/',
      headers: { b: '2,3', c: 'd=e' },
      timeoutMs: 500,
      resource: { 'service.name': 'x', k: 'v' },
      sampler: { heedsParent: false, ratio: 0.25 },
    })
  })

  test('with a wrong value end the start with the wanted form, and without a secret', () => {
    const messageOf = (env: Record<string, string>) => {
      try {
        tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: url, ...env })
        return 'no error'
      } catch (cause) {
        return cause instanceof Error ? cause.message : ''
      }
    }
    expect(messageOf({ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317' })).toContain(
      'OTEL_EXPORTER_OTLP_ENDPOINT is',
    )
    expect(messageOf({ OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' })).toBe(
      'OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"; it must be http/json',
    )
    expect(messageOf({ OTEL_TRACES_EXPORTER: 'jaeger' })).toContain('otlp or none')
    expect(messageOf({ OTEL_TRACES_SAMPLER: 'sometimes' })).toContain('OTEL_TRACES_SAMPLER is "sometimes"')
    const ratio = { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' }
    expect(messageOf(ratio)).toBe('OTEL_TRACES_SAMPLER_ARG is "2"; it must be a number from 0 to 1')
    expect(messageOf({ OTEL_EXPORTER_OTLP_HEADERS: 'a=1,secret' })).toBe(
      'OTEL_EXPORTER_OTLP_HEADERS has no key=value in entry 2; it must be key=value pairs, separated by commas',
    )
  })
})
