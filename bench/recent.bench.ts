import { edenGC } from 'bun:jsc'
import { Recent } from '../src/recent/recent.ts'
import { sendLoad } from './support/load.ts'
import { machine, median, printTable } from './support/table.ts'
import { call, countedByLimits, HEADERS, LIMIT_PATH, limitsOf, startTollgate } from './support/tollgate.ts'

/**
 * What it costs to remember an event, next to the CPU of a whole `ratelimits.limit` behind its socket: the budget is 1 %.
 * The ways of noting run in turn within a round, each with the young collections that a busy thread makes; a loop that
 * makes the same texts and notes nothing is taken off. Checked: all that was noted is counted, and the newest is there; every
 * answered call was counted by its window. Then a server under load, with an open page of the dashboard and without. Read the
 * ratios. Figures: docs/decisions/0033.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const rounds = options.tiny ? 1 : 9
  const notes = options.tiny ? 20_000 : 300_000
  console.log(`recent: ${machine()}, ${rounds} rounds of ${notes} notes, medians`)
  const cpu = await cpuOfCall(options.tiny ? 1 : 5)
  const results = new Map<Way, number[]>(WAYS.map((way) => [way, []]))
  for (let round = 0; round <= rounds; round++)
    for (let i = 0; i < WAYS.length; i++) {
      const way = WAYS[(i + round) % WAYS.length] as Way // in range
      const cost = measure(way, notes)
      if (round > 0) results.get(way)?.push(cost) // the first warms up
    }
  const base = median(results.get(NOTHING) ?? [])
  const rows = WAYS.filter((way) => way !== NOTHING).map((way) => {
    const ns = median(results.get(way) ?? []) - base
    return [way.name, ns, (100 * ns) / 1000 / cpu]
  })
  console.log(`  ratelimits.limit behind its socket: ${cpu.toFixed(1)} µs of CPU`)
  printTable(['an event that', 'ns', '% of a call'], rows)
  await withPage(options.tiny ? { rounds: 1, seconds: 1, warmSeconds: 1 } : PAGE_ROUNDS)
}

type Way = {
  name: string
  kind: 'nothing' | 'limit' | 'key'
  used: number
  passed: boolean
  isWatched?: boolean
}

const NOTHING: Way = { name: 'nothing', kind: 'nothing', used: 0, passed: true }
const WAYS: readonly Way[] = [
  NOTHING,
  { name: 'passed', kind: 'limit', used: 1, passed: true },
  { name: 'passed, another is watched', kind: 'limit', used: 1, passed: true, isWatched: true },
  { name: 'passed near its limit', kind: 'limit', used: 99, passed: true },
  { name: 'was refused', kind: 'limit', used: 100, passed: false },
  { name: 'is a valid key', kind: 'key', used: 0, passed: true },
]

/** Bodies, as far as they matter here. */
const TEXTS = Array.from({ length: 5_000 }, (_, i) => JSON.stringify(`user_${i}`))
/** As a busy thread collects: docs/decisions/0004. */
const NOTES_PER_COLLECTION = 1_700

/** @returns wall time of one note on this thread, ns. */
function measure(way: Way, notes: number): number {
  const recent = new Recent({ thread: '0', clock: () => 1, timers: { after: () => () => {} } })
  if (way.isWatched === true)
    recent.answer('watch', {
      id: 'watch_1',
      workspaceId: 'ws_1',
      watched: { kind: 'identifier', namespaceId: 'rlns_1', identifier: 'another' },
      namespaceName: 'email',
      startedAt: 0,
      endsAt: Number.MAX_SAFE_INTEGER,
    })
  const namespace = { id: 'rlns_1', name: 'email', seen: null }
  const charge = { limit: 100, durationMs: 60_000 }
  const key = { workspaceId: 'ws_1', id: 'key_1', name: 'web', apiId: 'api_1', identity: null }
  const result = { outcome: 'VALID', limit: null, remaining: null } as const
  let last = ''
  const beganAt = performance.now()
  for (let i = 0; i < notes; i++) {
    const requestId = `req_${i}`
    // Each request brings its own copy of the identifier.
    const identifier = JSON.parse(TEXTS[i % TEXTS.length] as string) as string // in range, and a text
    last = requestId + identifier
    if (way.kind === 'limit')
      recent.decided(
        { workspaceId: 'ws_1', requestId, location: null },
        namespace,
        { identifier, limit: 100, duration: 60_000 },
        charge,
        { passed: way.passed, used: way.used, resetAtMs: 60_000, atMs: i },
        false,
      )
    else if (way.kind === 'key')
      recent.verified(
        key,
        { cost: 1, tags: null, caller: { requestId, clientAddress: () => null } },
        result,
        i,
      )
    if (i % NOTES_PER_COLLECTION === 0) edenGC()
  }
  const ns = (1e6 * (performance.now() - beganAt)) / notes
  check(recent, way, { notes, last })
  return ns
}

/** @throws Error when what was noted is not what is remembered. */
function check(recent: Recent, way: Way, { notes, last }: { notes: number; last: string }): void {
  const filter = { requestId: null, keyId: null, identity: null, namespaceId: null, identifier: null }
  const { events, counts } = recent.answer('list', {
    filter: { ...filter, workspaceId: 'ws_1', outcomes: 'all' },
    watchId: null,
    before: null,
    limit: 1,
    top: 0,
  })
  const expected = way.kind === 'nothing' ? 0 : notes
  const [event] = events
  if (counts.passed + counts.refused !== expected || events.length !== Math.min(1, expected))
    throw new Error(`${way.name}: ${expected} noted, ${counts.passed + counts.refused} counted`)
  if (event !== undefined && !last.startsWith(event.requestId))
    throw new Error(`${way.name}: the newest is ${event.requestId}, ${last} was noted last`)
}

const PAGE_ROUNDS = { rounds: 21, seconds: 3, warmSeconds: 10 }

/**
 * The CPU of a server under a full load of `ratelimits.limit`, with what the live page of the dashboard asks and two watches,
 * and without, in turn. How much the two rows without a page differ is the noise.
 */
async function withPage(size: typeof PAGE_ROUNDS): Promise<void> {
  const bodies = limitsOf(1_000).map((body) => JSON.stringify(body))
  await using tollgate = await startTollgate('Tollgate')
  const { url } = tollgate
  const load = { url, path: LIMIT_PATH, headers: HEADERS, bodies, connections: 64 }
  await sendLoad({ ...load, seconds: size.warmSeconds })
  const measure = async () => {
    const before = tollgate.cpuMicroseconds()
    const { answered, failed } = await sendLoad({ ...load, seconds: size.seconds })
    if (failed > 0) throw new Error(`${failed} calls failed`)
    return (tollgate.cpuMicroseconds() - before) / answered
  }
  const costs: { without: number[]; with: number[]; again: number[] } = { without: [], with: [], again: [] }
  for (let round = 0; round < size.rounds; round++) {
    const turns = {
      without: measure,
      with: async () => {
        const page = await openPage(url)
        const cost = await measure()
        await page.close()
        return cost
      },
      again: measure,
    }
    const names = ['without', 'with', 'again'] as const
    for (let i = 0; i < names.length; i++) {
      const name = names[(i + round) % names.length] ?? 'without'
      costs[name].push(await turns[name]())
    }
  }
  const base = median(costs.without)
  console.log(`  a server under load, ${size.rounds} rounds of ${size.seconds} s in turn`)
  printTable(
    ['', 'CPU µs/call', 'ratio', 'median of the rounds’ ratios'],
    [
      ['no page', base, 1, 1],
      ['the live page and two watches', median(costs.with), median(costs.with) / base, ratios(costs.with)],
      ['no page, again', median(costs.again), median(costs.again) / base, ratios(costs.again)],
    ],
  )
  function ratios(list: number[]): number {
    return median(list.map((cost, i) => cost / (costs.without[i] ?? Number.NaN)))
  }
}

/** What the live page asks every two seconds, without a browser. @throws Error at its end when it was shown nothing. */
async function openPage(url: string): Promise<{ close(): Promise<void> }> {
  const watchIds: string[] = []
  for (const identifier of ['user_3', 'user_7'])
    watchIds.push((await call(url, '/v1/events.watch', { namespaceName: 'bench', identifier })).id ?? '')
  let shown = 0
  const get = async (path: string) => {
    const response = await fetch(`${url}/v1/${path}`, { headers: HEADERS })
    if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
    return (await response.json()) as { events?: unknown[] } // of what is asked here
  }
  const poll = async () => {
    const [recent] = await Promise.all([
      get('events.listRecent?outcome=all&limit=100&top=8'),
      get('ratelimits.listNearLimit?limit=8'),
      get('events.listWatches'),
    ])
    shown += recent.events?.length ?? 0
  }
  let polling = poll()
  const timer = setInterval(() => {
    polling = Promise.all([polling, poll()]).then(() => {})
    polling.catch(() => {}) // said by `close`
  }, POLL_MS)
  return {
    async close() {
      clearInterval(timer)
      await polling
      for (const watchId of watchIds) await call(url, '/v1/events.unwatch', { watchId })
      if (shown === 0) throw new Error('the page was shown no event')
    },
  }
}

const POLL_MS = 2_000

/** @returns CPU of the server for a call of `ratelimits.limit`, µs. */
async function cpuOfCall(seconds: number): Promise<number> {
  const limits = limitsOf(1_000)
  const connections = 64
  await using tollgate = await startTollgate('Tollgate')
  const load = {
    url: tollgate.url,
    path: LIMIT_PATH,
    headers: HEADERS,
    bodies: limits.map((body) => JSON.stringify(body)),
    connections,
  }
  const warm = await sendLoad({ ...load, seconds: 1 })
  const before = tollgate.cpuMicroseconds()
  const { answered, failed } = await sendLoad({ ...load, seconds })
  const cpu = (tollgate.cpuMicroseconds() - before) / answered
  const surplus = (await countedByLimits(tollgate.url, limits)) - warm.answered - answered
  if (failed > 0 || surplus < 0 || surplus > 2 * connections)
    throw new Error(`${failed} of ${answered} calls failed; ${surplus} more tokens taken than calls answered`)
  return cpu
}
