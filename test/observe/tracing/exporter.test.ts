import { expect, setDefaultTimeout, test } from 'bun:test'
import { type Cancel, systemTimers, type Timers } from '../../../src/lib/timers.ts'
import { QUEUE_MAX } from '../../../src/observe/tracing/exporter.ts'
import { type Sampler, SPAN_KIND, Tracer } from '../../../src/observe/tracing/tracer.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { type Collector, startCollector } from './support.ts'

setDefaultTimeout(SLOW_MS)

/** Timers that run at once and record their delays. */
function impatient(): Timers & { delaysMs: number[] } {
  const delaysMs: number[] = []
  const after = (delayMs: number, run: () => void): Cancel => {
    delaysMs.push(delayMs)
    return systemTimers.after(delayMs === 5000 ? 60_000 : 0, run)
  }
  return { ...systemTimers, after, delaysMs }
}

const open = (
  url: string,
  options: { sampler?: Sampler; timers?: Timers; timeoutMs?: number } = {},
): Tracer & AsyncDisposable => {
  const tracer = new Tracer({
    url: `${url}/v1/traces`,
    headers: {},
    timeoutMs: 1000,
    resource: '{"attributes":[]}',
    scope: '{"name":"test","version":"1"}',
    sampler: { heedsParent: true, ratio: 1 },
    ...options,
  })
  return Object.assign(tracer, { [Symbol.asyncDispose]: () => tracer.stop() })
}

function span(tracer: Tracer, name = 'a span'): void {
  const trace = tracer.begin(null, null)
  const { spanId, parentId } = trace
  const startedAt = performance.now()
  tracer.end({
    trace,
    spanId,
    parentId,
    name,
    kind: SPAN_KIND.server,
    startedAt,
    attributes: {},
    isError: false,
  })
}

const told = ({ spans }: Collector) => spans.map(({ name }) => name)

test('a batch that the collector postpones is sent again with growing pauses, and arrives once', async () => {
  await using collector = startCollector()
  const timers = impatient()
  await using tracer = open(collector.url, { timers })
  const busy = () => new Response(null, { status: 503 })
  const told429 = () => new Response(null, { status: 429, headers: { 'retry-after': '3' } })
  collector.answers.push(busy, told429, busy)
  span(tracer, 'put off')
  await tracer.flush()
  expect(told(collector)).toEqual(['put off'])
  expect(tracer.stats()).toEqual({ exported: 1, dropped: 0, queued: 0 })
  const [first = 0, second = 0, third = 0] = timers.delaysMs.filter((delayMs) => delayMs !== 5000)
  expect(first).toBeWithin(500, 1501)
  expect(second).toBe(3000)
  expect(third).toBeWithin(2000, 6001)
})

test('spans that the collector refuses are dropped and counted, and do not delay others', async () => {
  await using collector = startCollector()
  await using tracer = open(collector.url, { timers: impatient() })
  collector.answers.push(() => new Response('no', { status: 400 }))
  span(tracer, 'refused')
  await tracer.flush()
  collector.answers.push(() =>
    Response.json({ partialSuccess: { rejectedSpans: '1', errorMessage: 'too old' } }),
  )
  span(tracer, 'one of two')
  span(tracer, 'two of two')
  await tracer.flush()
  expect(tracer.stats()).toEqual({ exported: 1, dropped: 2, queued: 0 })
})

/** An export must never take memory that requests need. */
test('without a collector spans wait up to a bound, the rest is dropped, and export resumes when it is back', async () => {
  const gone = Bun.serve({ port: 0, fetch: () => new Response() })
  const { port } = gone
  await gone.stop(true)
  await using tracer = open(`http://127.0.0.1:${port}`)
  for (let index = 0; index < QUEUE_MAX + 100; index++) span(tracer)
  expect(tracer.stats()).toEqual({ exported: 0, dropped: 100, queued: QUEUE_MAX })

  await using collector = startCollector()
  await using other = open(collector.url, { timers: impatient() })
  for (let index = 0; index < QUEUE_MAX; index++) span(other)
  await other.flush()
  expect(collector.requests.map(({ path }) => path)).toEqual(Array(4).fill('/v1/traces'))
  expect(other.stats()).toEqual({ exported: QUEUE_MAX, dropped: 0, queued: 0 })
})

test('a stop sends waiting spans, and does not wait for a collector that does not answer', async () => {
  await using collector = startCollector()
  const tracer = open(collector.url)
  span(tracer, 'the last')
  await tracer.stop()
  expect(told(collector)).toEqual(['the last'])

  const silent = Bun.serve({ port: 0, fetch: () => new Promise<Response>(() => {}) })
  const late = open(`http://127.0.0.1:${silent.port}`, { timeoutMs: 60_000, timers: impatient() })
  span(late)
  const began = performance.now()
  await late.stop()
  expect(performance.now() - began).toBeLessThan(5000)
  expect(late.stats().queued).toBe(1)
  await silent.stop(true)
})

test('the caller’s decision counts where it should, and a ratio decides by the trace id, the same in every service', async () => {
  await using collector = startCollector()
  const ids = Array.from({ length: 4000 }, () => crypto.randomUUID().replaceAll('-', ''))
  const picked = (sampler: Sampler, flags: string | null) => {
    const tracer = open(collector.url, { sampler })
    return ids.filter(
      (id) => tracer.begin(flags === null ? null : `00-${id}-${'b'.repeat(16)}-${flags}`, null).isSampled,
    )
  }
  expect(picked({ heedsParent: true, ratio: 0 }, '01')).toHaveLength(4000)
  expect(picked({ heedsParent: true, ratio: 1 }, '00')).toHaveLength(0)
  expect(picked({ heedsParent: false, ratio: 1 }, '00')).toHaveLength(4000)
  expect(picked({ heedsParent: false, ratio: 0 }, '01')).toHaveLength(0)
  const tenth = picked({ heedsParent: false, ratio: 0.1 }, '00')
  expect(tenth.length).toBeWithin(280, 520)
  expect(picked({ heedsParent: false, ratio: 0.1 }, '01')).toEqual(tenth)
  const fifth = new Set(picked({ heedsParent: false, ratio: 0.2 }, '00'))
  expect(tenth.filter((id) => !fifth.has(id))).toEqual([])
  expect(picked({ heedsParent: true, ratio: 0.5 }, null).length).toBeWithin(1700, 2300)
})
