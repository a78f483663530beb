import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import { makeApi } from '../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const TIMEOUT_MS = 2000

let server: TestServer
beforeAll(async () => {
  // Only calls that wait for a lock meet the time limit, and those tests need a second connection.
  const env = TEST_DATABASE_URL === null ? {} : { TOLLGATE_DB_TIMEOUT_MS: String(TIMEOUT_MS) }
  server = await startTestServer({ env })
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Key = { key: string; keyId: string }

const verify = async ({ key }: Key) => {
  const { status, body } = await server.post('keys.verifyKey', { key })
  return { status, code: body.code, remaining: body.remaining }
}
const valid = (remaining: number) => ({ status: 200, code: 'VALID', remaining })
const failed = expect.objectContaining({ status: 500 })

/** Two keys of one API with ten credits each, cached, so that only their credits need statements. */
async function prepare() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const make = async () => {
    const key: Key = await workspace.post('keys.createKey', { apiId, remaining: 11 })
    await verify(key)
    return key
  }
  return { workspace, locked: await make(), free: await make() }
}

const remainingOf = async (workspace: TestWorkspace, { keyId }: Key) =>
  (await workspace.get('keys.getKey', { keyId })).remaining

/** On the embedded database transactions take turns: none can hold a lock while another statement runs. */
describe.if(TEST_DATABASE_URL !== null)('while another transaction holds a key', () => {
  const openOther = () =>
    connect({ kind: 'url', url: server.server.deps.config.databaseUrl ?? '' }, { connectionsMax: 1 })

  /** A transaction that holds the lock until it is told to end. */
  async function hold({ keyId }: Key): Promise<{ end(): Promise<void> }> {
    const sql = openOther()
    const held = Promise.withResolvers<void>()
    const ending = Promise.withResolvers<void>()
    const transaction = sql.begin(async (tx) => {
      await tx`update keys set name = 'held' where id = ${keyId}`
      held.resolve()
      await ending.promise
    })
    await Promise.race([held.promise, transaction])
    return {
      end: async () => {
        ending.resolve()
        await transaction
        await sql.end()
      },
    }
  }

  /** All calls of a thread share statements: waiting in one would delay every customer because of one lock. */
  test('calls for other keys are answered, and calls for it fail in time and take nothing', async () => {
    const { workspace, locked, free } = await prepare()
    const other = await hold(locked)
    const startedAt = performance.now()
    let isOver = false
    const own = Promise.all(Array.from({ length: 3 }, () => verify(locked))).finally(() => {
      isOver = true
    })
    for (let left = 9; left >= 0; left--) expect(await verify(free)).toEqual(valid(left))
    expect(isOver).toBe(false)
    expect(await own).toEqual([failed, failed, failed])
    expect(performance.now() - startedAt).toBeLessThan(TIMEOUT_MS)
    await other.end()
    expect(await verify(locked)).toEqual(valid(9)) // one for this call, none for those that got a 500
    expect(await remainingOf(workspace, locked)).toBe(9)
  })

  test('calls for it wait, and are answered in order when it is released in time', async () => {
    const { locked, free } = await prepare()
    const { credits } = server.server.deps
    const spend = () => credits.spend(locked.keyId, 1)
    const other = await hold(locked)
    const before = Array.from({ length: 6 }, spend)
    expect(await verify(free)).toEqual(valid(9)) // the calls before have found the lock
    const after = Array.from({ length: 6 }, spend)
    expect(await verify(free)).toEqual(valid(8))
    await other.end()
    expect(await Promise.all([...before, ...after])).toEqual([
      ...[9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((remaining) => ({ passed: true, remaining })),
      { passed: false, remaining: 0 },
      { passed: false, remaining: 0 },
    ])
    expect(await verify(free)).toEqual(valid(7))
  })

  /**
   * The refill comes before the credits: if it waited, a few calls for such a key would use all connections of the thread.
   */
  test('its due refill delays no other key, and is added before its calls are answered', async () => {
    const { locked, free } = await prepare()
    const { sql, credits, keys } = server.server.deps
    expect(await credits.spend(locked.keyId, 10)).toEqual({ passed: true, remaining: 0 })
    await sql`update keys set refill_amount = 100, last_refill_at = 0 where id = ${locked.keyId}`
    keys.forget(locked.keyId)
    const other = await hold(locked)
    const own = Promise.all(Array.from({ length: 12 }, () => verify(locked)))
    for (let left = 9; left >= 0; left--) expect(await verify(free)).toEqual(valid(left))
    await other.end()
    const answers = await own
    expect(new Set(answers.map(({ code }) => code))).toEqual(new Set(['VALID']))
    expect(Math.min(...answers.map(({ remaining }) => remaining))).toBe(88)
  })

  test('a call for it is NOT_FOUND when that transaction deletes it', async () => {
    const { locked, free } = await prepare()
    const sql = openOther()
    const answer = await sql.begin(async (tx) => {
      await tx`update keys set deleted_at = 1 where id = ${locked.keyId}`
      const own = verify(locked)
      expect(await verify(free)).toEqual(valid(9))
      return { own }
    })
    expect(await answer.own).toMatchObject({ status: 200, code: 'NOT_FOUND' })
    await sql.end()
  })
})

/**
 * Bug, found by test/upgrade: the statement gives up waiting after 50 ms, for the lock of the whole table too, so every
 * migration that changed `keys` made calls fail.
 */
test.skipIf(TEST_DATABASE_URL === null)(
  'calls wait while a migration holds the whole table, and none fails or spends twice',
  async () => {
    const { workspace, locked, free } = await prepare()
    const other = connect(
      { kind: 'url', url: server.server.deps.config.databaseUrl ?? '' },
      { connectionsMax: 1 },
    )
    let own: Promise<unknown[]> = Promise.resolve([])
    await other.begin(async (tx) => {
      await tx`lock table keys in access exclusive mode`
      own = Promise.all([locked, free].map(verify))
      await Bun.sleep(600)
    })
    expect(await own).toEqual([valid(9), valid(9)])
    expect([await remainingOf(workspace, locked), await remainingOf(workspace, free)]).toEqual([9, 9])
    await other.end()
  },
)

/** One lock, one write and one commit, however many calls: a second round trip would slow every verification. */
test('concurrent calls share one statement, and never get more credits than there are', async () => {
  const { locked: key, free: another } = await prepare()
  const statements: string[] = []
  const stop = server.onStatement((text) => {
    if (/\bkeys\b|spend_credits/.test(text)) statements.push(text)
  })
  const { credits } = server.server.deps
  const spent = await Promise.all([
    ...Array.from({ length: 12 }, () => credits.spend(key.keyId, 1)),
    credits.spend(another.keyId, 4),
    credits.spend('key_unknown', 1),
  ])
  stop()
  expect(spent.slice(0, 10)).toEqual(
    [9, 8, 7, 6, 5, 4, 3, 2, 1, 0].map((remaining) => ({ passed: true, remaining })),
  )
  expect(spent.slice(10)).toEqual([
    { passed: false, remaining: 0 },
    { passed: false, remaining: 0 },
    { passed: true, remaining: 6 },
    null,
  ])
  expect(statements).toHaveLength(1)
})
