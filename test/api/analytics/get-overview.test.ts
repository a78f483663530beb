import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { HOUR_MS } from '../../../src/lib/clock.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time, set by the tests. */
let now = Date.UTC(2026, 5, 10, 12, 30)
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** Verifies a key some times, now. */
async function verify(key: string, times: number): Promise<void> {
  for (let i = 0; i < times; i++) await server.post('keys.verifyKey', { key })
}

/** The overview once it has counted so many verifications. */
async function overviewOf(workspace: TestWorkspace, total: number, query = {}): Promise<Json> {
  for (;;) {
    const overview = await workspace.get('analytics.getOverview', query)
    const counted = overview.hours.reduce((sum: number, hour: Json) => sum + hour.total, 0)
    if (counted === total) return overview
    expect(counted).toBeLessThan(total)
    await Bun.sleep(20)
  }
}

test('counts the verifications of all APIs by hour and outcome, with a datapoint for each hour', async () => {
  const workspace = await server.workspace()
  const [one, two] = [await makeApi(workspace), await makeApi(workspace)]
  const used = await makeKey(workspace, one)
  const disabled = await makeKey(workspace, two, { enabled: false })
  await verify(used.key, 3)
  now += HOUR_MS
  await verify(used.key, 1)
  await verify(disabled.key, 2)
  const { hours, ...lists } = await overviewOf(workspace, 6)
  expect(hours).toHaveLength(25)
  const current = now - (now % HOUR_MS)
  expect(hours.map(({ time }: Json) => time)).toEqual(
    Array.from({ length: 25 }, (_, index) => current - (24 - index) * HOUR_MS),
  )
  expect(hours.at(-2)).toMatchObject({ valid: 3, disabled: 0, total: 3 })
  expect(hours.at(-1)).toMatchObject({ valid: 1, disabled: 2, total: 3 })
  expect(hours[0]).toMatchObject({ valid: 0, total: 0 })
  expect(lists).toEqual({ mostUsed: [], mostRefused: [], identities: [] })
  const last = await workspace
    .get('analytics.getOverview', { start: now })
    .catch((cause: Error) => cause.message)
  expect(last).toMatch(/start: Must be before end/)
})

test('names the keys and identities that are used most and refused most, as many as asked for', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const often = await makeKey(workspace, apiId, { name: 'often', externalId: 'user_1' })
  const seldom = await makeKey(workspace, apiId, { name: 'seldom', externalId: 'user_2' })
  const refused = await makeKey(workspace, apiId, { enabled: false })
  await verify(often.key, 4)
  await verify(seldom.key, 1)
  await verify(refused.key, 2)
  const overview = await overviewOf(workspace, 7, { top: 10 })
  expect(overview.mostUsed).toMatchObject([
    { keyId: often.keyId, name: 'often', total: 4, start: expect.any(String) },
    { keyId: refused.keyId, total: 2, disabled: 2 },
    { keyId: seldom.keyId, name: 'seldom', total: 1 },
  ])
  expect(overview.mostRefused).toMatchObject([{ keyId: refused.keyId, disabled: 2, valid: 0 }])
  expect(overview.mostRefused).toHaveLength(1)
  expect(overview.identities).toMatchObject([
    { identity: { externalId: 'user_1' }, total: 4 },
    { identity: { externalId: 'user_2' }, total: 1 },
  ])
  const cut = await workspace.get('analytics.getOverview', { top: 1 })
  expect([cut.mostUsed.length, cut.mostRefused.length, cut.identities.length]).toEqual([1, 1, 1])
  // A deleted key keeps its counts and loses its name.
  await workspace.post('keys.deleteKey', { keyId: often.keyId })
  const after = await workspace.get('analytics.getOverview', { top: 1 })
  expect(after.mostUsed).toMatchObject([{ keyId: often.keyId, total: 4 }])
  expect(after.mostUsed[0]).not.toHaveProperty('name')
})

test('counts nothing of another workspace, and refuses what is out of bounds', async () => {
  const [mine, other] = [await server.workspace(), await server.workspace()]
  const { key } = await makeKey(other, await makeApi(other))
  await verify(key, 2)
  await overviewOf(other, 2)
  const { hours, mostUsed } = await mine.get('analytics.getOverview', { top: 5 })
  expect(hours.every(({ total }: Json) => total === 0)).toBe(true)
  expect(mostUsed).toEqual([])
  for (const query of [{ top: 101 }, { top: -1 }, { top: 1.5 }, { start: 'yesterday' }])
    expect((await server.get('analytics.getOverview', query, mine.rootKey)).status).toBe(400)
  const long = await server.get('analytics.getOverview', { start: 0 }, mine.rootKey)
  expect(long).toMatchObject({ status: 400, body: { error: { code: 'BAD_REQUEST' } } })
  expect(long.body.error.message).toMatch(/20000 datapoints/)
  const limited = await mine.rootKeyWith('api.*.read_key')
  expect((await server.get('analytics.getOverview', {}, limited)).status).toBe(403)
})
