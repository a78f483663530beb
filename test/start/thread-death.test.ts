import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type Column, Columns, expectHealthy } from '../support/columns.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

const FLUSH_MS = 200

/** A server in which SIGUSR2 kills one thread of that module. */
const spawnMortal = (thread: 'http.worker' | 'shard.worker', way: 'throw' | 'terminate') =>
  spawnServer(
    {
      TOLLGATE_DATA_DIR: database.dataDir,
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_HTTP_THREADS: '3',
      TOLLGATE_SHARDS: '2',
      TOLLGATE_FLUSH_MS: String(FLUSH_MS),
      MORTAL: thread,
      MORTAL_WAY: way,
    },
    { preload: `${import.meta.dir}/../support/mortal.child.ts` },
  )

/** Makes each call on a new connection: the kernel distributes these over the living threads. */
const onFreshConnections = (server: ServerProcess): Pick<ServerProcess, 'get' | 'post'> => ({
  get: (method, query, rootKey) => server.get(method, query, rootKey, { connection: 'close' }),
  post: (method, body, rootKey) => server.post(method, body, rootKey, { connection: 'close' }),
})

const threadsUp = async ({ url }: ServerProcess) => {
  const lines = (await (await fetch(`${url}/metrics`)).text()).split('\n')
  return lines.filter((line) => line.startsWith('tollgate_thread_up')).map((line) => line.endsWith(' 1'))
}

/** Number of requests that failed for that reason, according to the log. */
const failedFor = (server: ServerProcess, reason: string) =>
  server
    .output()
    .split('\n')
    .filter((line) => line.includes('"event":"request_failed"') && line.includes(reason)).length

const ALL_UP = Array(5).fill(true)

test('an HTTP thread that dies fails the calls it was answering, and another replaces it', async () => {
  await using server = await spawnMortal('http.worker', 'throw')
  const calls = onFreshConnections(server)
  const columns = await Columns.open(calls, { stock: 60 })
  const answeredAt: number[] = []
  const broken: string[] = []
  let isOver = false
  const work = async (column: Column) => {
    while (!isOver) {
      const { status, code } = await columns.ask(column)
      if (status === 200 && ['warm', 'credits'].includes(column)) answeredAt.push(performance.now())
      if (status !== 200) broken.push(`${column} ${status} ${code}`)
      await Bun.sleep(2)
    }
  }
  const working = (['limits', 'warm', 'credits', 'writes'] as const).map(work)
  await Bun.sleep(500)
  const killedAt = performance.now()
  server.process.kill('SIGUSR2')
  while (!server.output().includes('"event":"http_thread_restarted"')) await Bun.sleep(20)
  expect(await threadsUp(server)).toEqual(ALL_UP)
  isOver = true
  await Promise.all(working)
  // Each client had at most one call in flight, on a connection that broke: no answer rather than a wrong one. Where the
  // death is noticed late, a write that waited for that thread is a 500: the thread may still have had the old record.
  expect(broken.length).toBeLessThanOrEqual(working.length)
  const isLate = (each: string) => each === 'writes 500 INTERNAL_SERVER_ERROR'
  for (const each of broken) if (!isLate(each)) expect(each).toEndWith(' 0 ')
  expect(failedFor(server, 'another HTTP thread did not confirm a change in time')).toBe(
    broken.filter(isLate).length,
  )
  for (let i = 0; i < 10; i++) expectHealthy(await columns.askAll())

  // Windows and credits are not in the thread's memory, so none are lost. Unflushed usage is.
  const { limits, credits } = await columns.counted()
  expect(limits).toBeGreaterThanOrEqual(columns.answered.limits)
  expect(limits).toBeLessThanOrEqual(columns.answered.limits + columns.unclear.limits)
  expect(credits).toBeGreaterThanOrEqual(columns.spent)
  expect(credits).toBeLessThanOrEqual(columns.spent + columns.unclear.credits)
  const atRisk = answeredAt.filter((at) => at > killedAt - 2 * FLUSH_MS && at < killedAt + 100).length
  await Bun.sleep(3 * FLUSH_MS)
  const usage = await columns.usage()
  expect(usage).toBeGreaterThanOrEqual(columns.verified - atRisk)
  expect(usage).toBeLessThanOrEqual(columns.verified + columns.unclear.warm + columns.unclear.credits)

  // The new thread hears of changes like the others.
  for (let round = 0; round < 3; round++) {
    const { body } = await calls.post('rootKeys.createRootKey', { permissions: ['*'] }, OPERATOR_KEY)
    const use = () => calls.get('rootKeys.listRootKeys', {}, body.rootKey)
    const warm = await Promise.all(Array.from({ length: 30 }, use))
    expect(warm.every(({ status }) => status === 200)).toBe(true)
    await calls.post('rootKeys.deleteRootKey', { rootKeyId: body.rootKeyId }, OPERATOR_KEY)
    const after = await Promise.all(Array.from({ length: 30 }, use))
    expect(after.map(({ status }) => status)).toEqual(Array(30).fill(403))
  }
  expect(await server.end('SIGTERM')).toBe(0)
})

/** A decreasing counter is taken for one that restarted at 0: a rate over it jumps by everything counted before. */
test('counters continue when an HTTP thread dies, also before its replacement runs', async () => {
  await using server = await spawnMortal('http.worker', 'throw')
  const verify = async (times: number) => {
    for (let i = 0; i < times; i++)
      await server.post('keys.verifyKey', { key: `unknown ${i}` }, null, { connection: 'close' })
  }
  const counts = async () => {
    const text = await (await fetch(`${server.url}/metrics`)).text()
    const sumOf = (name: string) =>
      [...text.matchAll(new RegExp(`^${name} (\\d+)$`, 'gm'))].reduce(
        (sum, [, each]) => sum + Number(each),
        0,
      )
    return {
      requests: sumOf('tollgate_http_requests_total{route="/v1/keys.verifyKey",status="200"}'),
      timed: sumOf('tollgate_http_request_duration_seconds_count{route="/v1/keys.verifyKey"}'),
      outcomes: sumOf('tollgate_verifications_total{outcome="NOT_FOUND"}'),
      misses: sumOf('tollgate_cache_misses_total{cache="keys"}'),
    }
  }
  await verify(60)
  const before = await counts()
  expect(before).toMatchObject({ requests: 60, timed: 60, outcomes: 60 })
  server.process.kill('SIGUSR2')
  while (!server.output().includes('"event":"http_thread_died"')) await Bun.sleep(5)
  while (!server.output().includes('"event":"http_thread_restarted"')) {
    // A scrape that the kernel gave to the dead thread has no answer.
    const during = await counts().catch(() => null)
    if (during !== null) expect(during).toEqual(before)
  }
  expect(await counts()).toEqual(before)
  await verify(30)
  expect(await counts()).toMatchObject({ requests: 90, timed: 90, outcomes: 90 })
  expect((await counts()).misses).toBeGreaterThanOrEqual(before.misses)
  expect(await server.end('SIGTERM')).toBe(0)
})

test('a shard that dies is restarted with its windows, and admits at most one flush interval more', async () => {
  await using server = await spawnMortal('shard.worker', 'terminate')
  const columns = await Columns.open(server, { stock: 20 })
  const limit = 3000
  const identifiers = ['a', 'b', 'c', 'd'] // spread over both shards
  const admittedAt = new Map(identifiers.map((each): [string, number[]] => [each, []]))
  let refusedCost = 0
  const take = async (identifier: string, cost = 1) => {
    const body = { namespace: 'death', identifier, limit, duration: 365 * 86_400_000, cost }
    const answer = await server.post('ratelimits.limit', body, OPERATOR_KEY)
    if (answer.status !== 200) {
      expect(answer).toMatchObject({ status: 500, body: { error: { code: 'INTERNAL_SERVER_ERROR' } } })
      refusedCost += cost
    } else if (answer.body.success)
      for (let i = 0; i < cost; i++) admittedAt.get(identifier)?.push(performance.now())
    return answer
  }
  let isOver = false
  const work = async (identifier: string) => {
    while (!isOver) await take(identifier)
  }
  const working = identifiers.map(work)
  await Bun.sleep(700)
  const killedAt = performance.now()
  server.process.kill('SIGUSR2')
  // Calls that need no limit are not affected. Liveness stays 200, because half of the limits can be decided.
  while (server.output().split('a limiter shard started').length < 4) {
    for (const column of ['warm', 'cold', 'credits', 'writes'] as const)
      expect((await columns.ask(column)).status).toBe(200)
    expect((await server.get('liveness')).status).toBe(200)
  }
  isOver = true
  await Promise.all(working)
  while ((await columns.ask('limits')).status !== 200) await Bun.sleep(10)
  expect(await threadsUp(server)).toEqual(ALL_UP)
  for (const identifier of identifiers) {
    // To the last token: the limit's number of calls passes, plus those that the thread had not flushed.
    while ((await take(identifier, 50)).body.success);
    while ((await take(identifier)).body.success);
    const admitted = admittedAt.get(identifier) ?? []
    const atRisk = admitted.filter((at) => at > killedAt - 2 * FLUSH_MS && at < killedAt + 100).length
    expect(admitted.length).toBeGreaterThanOrEqual(limit - refusedCost)
    expect(admitted.length).toBeLessThanOrEqual(limit + atRisk)
  }
  expectHealthy(await columns.askAll())
  expect(await server.end('SIGTERM')).toBe(0)
})
