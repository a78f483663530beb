import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { RefillSchedule } from '../../src/verify/refill-schedule.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { makeApi } from '../support/fixtures.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const at = (text: string) => Date.parse(`${text}Z`)
let now = at('2026-01-30T12:00:00')
let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** The schedule of one of several servers, with its own connections. */
const schedule = () => new RefillSchedule(server.server.deps.sql, () => now)

/** Creates keys by name. `remaining` returns the credits of each. */
async function prepare(keys: Record<string, Record<string, unknown>>) {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const made: Record<string, string> = {}
  for (const [name, fields] of Object.entries(keys))
    made[name] = (await workspace.post('keys.createKey', { apiId, ...fields })).keyId
  const remaining = async () => {
    const left: Record<string, number> = {}
    for (const [name, keyId] of Object.entries(made))
      left[name] = (await workspace.get('keys.getKey', { keyId })).remaining
    return left
  }
  return { workspace, made, remaining }
}

/** OP59, OP60: added at UTC midnight, once per due day, also late; in a shorter month on its last day. */
test('keys without verifications are refilled on their days, once', async () => {
  const { remaining } = await prepare({
    daily: { remaining: 5, refill: { interval: 'daily', amount: 10 } },
    monthly: { remaining: 5, refill: { interval: 'monthly', amount: 100 } },
    last: { remaining: 5, refill: { interval: 'monthly', amount: 1000, refillDay: 31 } },
    never: { remaining: 5 },
  })
  const round = () => schedule().runRound()
  await round()
  expect(await remaining()).toEqual({ daily: 5, monthly: 5, last: 5, never: 5 })
  now = at('2026-01-30T23:59:59.999')
  await round()
  expect((await remaining()).daily).toBe(5)
  now = at('2026-01-31T00:00:00')
  await round()
  await round()
  expect(await remaining()).toEqual({ daily: 15, monthly: 5, last: 1005, never: 5 })
  now = at('2026-02-03T04:00:00') // three midnights late: one refill
  await round()
  expect(await remaining()).toEqual({ daily: 25, monthly: 105, last: 1005, never: 5 })
  now = at('2026-02-28T00:00:01')
  await round()
  await round()
  expect(await remaining()).toEqual({ daily: 35, monthly: 105, last: 2005, never: 5 })
})

test('several servers at once refill each key once, also beside verifications', async () => {
  const names = Array.from({ length: 30 }, (_, index) => `key ${index}`)
  const { workspace, made, remaining } = await prepare(
    Object.fromEntries(
      names.map((name) => [name, { remaining: 1, refill: { interval: 'daily', amount: 10 } }]),
    ),
  )
  now += 24 * 3_600_000
  await Promise.all([1, 2, 3, 4].map(() => schedule().runRound()))
  await schedule().runRound() // includes keys skipped while another was changing them
  expect(new Set(Object.values(await remaining()))).toEqual(new Set([11]))
  const { lastRefillAt } = (await workspace.get('keys.getKey', { keyId: made['key 0'] })).refill
  expect(lastRefillAt).toBe(now)
})

/** The cached record still says that the refill is due. */
test('a verification after a scheduled refill does not add it again', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const refill = { interval: 'daily', amount: 10 }
  const { key } = await workspace.post('keys.createKey', { apiId, remaining: 3, refill })
  const verify = async () => (await server.post('keys.verifyKey', { key })).body.remaining
  expect(await verify()).toBe(2)
  now += 24 * 3_600_000
  await schedule().runRound()
  expect(await verify()).toBe(11)
  expect(await verify()).toBe(10)
})

test('a refill never exceeds 2^53 - 1, and deleted keys and keys without credits are left alone', async () => {
  const refill = { interval: 'daily', amount: Number.MAX_SAFE_INTEGER }
  const { workspace, made, remaining } = await prepare({
    full: { remaining: 5, refill },
    unlimited: { remaining: 5, refill },
    deleted: { remaining: 5, refill },
  })
  await workspace.post('keys.updateRemaining', { keyId: made.unlimited, op: 'set', value: null })
  await workspace.post('keys.deleteKey', { keyId: made.deleted })
  now += 24 * 3_600_000
  await schedule().runRound()
  const { deleted } = made
  delete made.deleted
  expect(await remaining()).toMatchObject({ full: Number.MAX_SAFE_INTEGER })
  expect((await remaining()).unlimited).toBeUndefined()
  const [row] = await server.server.deps.sql`select remaining from keys where id = ${deleted ?? ''}`
  expect(row).toEqual({ remaining: 5 })
})

test('the first round begins at start, and a stop ends it', async () => {
  const { remaining } = await prepare({ daily: { remaining: 5, refill: { interval: 'daily', amount: 10 } } })
  now += 24 * 3_600_000
  const started = schedule()
  started.start()
  for (let wait = 0; wait < 100 && (await remaining()).daily === 5; wait++) await Bun.sleep(20)
  expect((await remaining()).daily).toBe(15)
  await started.stop()
})

/** Refills missed while the key had no credits are not made up for: a key set to 10 would have 110 at once. */
test.each([
  ['keys.updateRemaining', { op: 'set', value: 10 }],
  ['keys.updateKey', { remaining: 10 }],
])('a key that gets credits again by %s is refilled from its next due day on', async (method, counted) => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const refill = { interval: 'daily', amount: 100 }
  const { key, keyId } = await workspace.post('keys.createKey', { apiId, remaining: 5, refill })
  const remaining = async () => (await server.post('keys.verifyKey', { key })).body.remaining
  await workspace.post('keys.updateRemaining', { keyId, op: 'set', value: null })
  now += 3 * 24 * 3_600_000
  await workspace.post(method, { keyId, ...counted })
  await schedule().runRound()
  expect(await remaining()).toBe(9)
  now += 24 * 3_600_000
  expect(await remaining()).toBe(108)
  // A key that already has credits keeps its due refill.
  now += 24 * 3_600_000
  await workspace.post(method, { keyId, ...counted })
  expect(await remaining()).toBe(109)
})

/** On the embedded database transactions take turns: none can hold a lock while another statement runs. */
describe.if(TEST_DATABASE_URL !== null)('a due key that another transaction holds', () => {
  /** Runs `work` while a transaction holds the key's row. */
  async function whileHeld(keyId: string, lock: 'update' | 'key share', work: () => Promise<void>) {
    const url = server.server.deps.config.databaseUrl ?? ''
    const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
    await sql.begin(async (tx) => {
      await tx.unsafe(`select from keys where id = $1 for ${lock}`, [keyId])
      await work()
    })
    await sql.end()
  }

  async function prepareDue() {
    const refill = { interval: 'daily', amount: 10 }
    const { made, remaining } = await prepare({
      held: { remaining: 5, refill },
      free: { remaining: 5, refill },
    })
    now += 24 * 3_600_000
    return { keyId: made.held ?? '', remaining }
  }

  /** Otherwise the refill of that day is lost: the round after the next midnight adds one for both. */
  test('is refilled after its release, by the next look on the same day', async () => {
    const { keyId, remaining } = await prepareDue()
    const refills = schedule()
    await whileHeld(keyId, 'update', async () => {
      await refills.look()
      expect(await remaining()).toEqual({ held: 5, free: 15 })
    })
    await refills.look()
    await refills.look()
    expect(await remaining()).toEqual({ held: 15, free: 15 })
  })

  test('is refilled at once when that transaction only writes rows that refer to the key', async () => {
    const { keyId, remaining } = await prepareDue()
    await whileHeld(keyId, 'key share', async () => {
      await schedule().look()
      expect(await remaining()).toEqual({ held: 15, free: 15 })
    })
  })
})

test('after a complete round the next look is at midnight', async () => {
  const { remaining } = await prepare({ daily: { remaining: 5, refill: { interval: 'daily', amount: 10 } } })
  const refills = schedule()
  now += 24 * 3_600_000
  await refills.look()
  expect(await remaining()).toEqual({ daily: 15 })
  const statements: string[] = []
  const stop = server.onStatement((text) => {
    if (text.includes('with page as')) statements.push(text)
  })
  await refills.look()
  expect(statements).toEqual([])
  now += 24 * 3_600_000
  await refills.look()
  stop()
  expect(statements.length).toBeGreaterThan(0)
  expect(await remaining()).toEqual({ daily: 25 })
})
