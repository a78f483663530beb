import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { listStatements } from '../support/statements.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  // For slow machines: only the number of statements matters here.
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: '60000' } })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const junk = (count: number) => Array.from({ length: count }, () => `junk_${crypto.randomUUID()}`)

test('a key that does not exist is looked up in the database once, however it is presented again', async () => {
  const keys = junk(50)
  const presentAll = () =>
    Promise.all(
      keys.flatMap((key) => [
        server.post('keys.verifyKey', { key }),
        server.get('auth.forward', {}, null, { 'x-api-key': key }),
        server.get('apis.listApis', {}, key),
        server.post('ratelimits.limit', { identifier: 'x', limit: 1, duration: 1000 }, key),
      ]),
    )
  expect((await listStatements(server, presentAll)).length).toBeGreaterThan(0)
  const again = await listStatements(server, async () => {
    for (let round = 0; round < 3; round++)
      for (const { status, body } of await presentAll())
        expect(body.valid ?? status).toBeOneOf([false, 401, 403])
  })
  expect(again).toEqual([])
})

test('a flood of unknown keys takes a bounded number of statements, and a real key among them is found', async () => {
  const workspace = await server.workspace()
  const { key, keyId } = await makeKey(workspace, await makeApi(workspace))
  const { keys } = server.server.deps
  const PER_TURN = 100
  let foundAfterMs = 0
  const beganAt = performance.now()
  const statements = await listStatements(server, async () => {
    const flood: unknown[] = []
    for (let turn = 0; turn < 200; turn++) {
      for (const text of junk(PER_TURN)) flood.push(keys.find(text))
      if (turn === 100) {
        const askedAt = performance.now()
        const real = Promise.resolve(keys.find(key))
        flood.push(
          real.then((record) => {
            foundAfterMs = performance.now() - askedAt
            if (record?.id !== keyId) throw new Error('the real key was not found')
          }),
        )
      }
      await Bun.sleep(2)
    }
    const answers = await Promise.all(flood)
    expect(answers.filter((record) => record === null)).toHaveLength(200 * PER_TURN)
  })
  const tookMs = performance.now() - beganAt
  // At most 200 a second and one more in each period, and those of the current period.
  expect(statements.length).toBeLessThanOrEqual(tookMs / 4 + 10)
  expect(statements.length).toBeGreaterThanOrEqual((200 * PER_TURN) / 500)
  expect(foundAfterMs).toBeLessThan(tookMs)
  expect(foundAfterMs).toBeGreaterThan(0)
})

test('a single look-up is sent at once, many concurrent ones share statements', async () => {
  const { keys } = server.server.deps
  await Bun.sleep(30) // until the flood's last period is over
  const alone = await listStatements(server, async () => void (await keys.find(junk(1)[0] ?? '')))
  expect(alone).toHaveLength(1)
  const together = await listStatements(
    server,
    async () => void (await Promise.all(junk(5000).map((key) => keys.find(key)))),
  )
  expect(together.length).toBeLessThan(30)
})

/** Unknown keys are remembered up to a bound of their own, so they evict only each other. */
test('cached keys stay cached after more unknown keys than are remembered', async () => {
  const workspace = await server.workspace()
  const { key } = await makeKey(workspace, await makeApi(workspace))
  await server.post('keys.verifyKey', { key })
  const { keys } = server.server.deps
  const [first = '', ...others] = junk(110_000)
  await keys.find(first)
  for (let from = 0; from < others.length; from += 10_000)
    await Promise.all(others.slice(from, from + 10_000).map((each) => keys.find(each)))
  expect(
    await listStatements(server, async () => void (await server.post('keys.verifyKey', { key }))),
  ).toEqual([])
  expect(await listStatements(server, async () => void (await keys.find(first)))).toHaveLength(1)
})
