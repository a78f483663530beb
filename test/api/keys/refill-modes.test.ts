import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { getKey } from '../../../src/api/keys/get-key.ts'
import { updateKey } from '../../../src/api/keys/update-key.ts'
import { RefillSchedule } from '../../../src/verify/refill-schedule.ts'
import { actorIn } from '../../support/actor.ts'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const DAY_MS = 24 * 3_600_000
let now = Date.parse('2026-01-30T12:00:00Z')
let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const runRound = () => new RefillSchedule(server.server.deps.sql, () => now).runRound()

/** A key with a refill of 10 a day, written through v1, so that it adds. */
async function makeKey(remaining: number, workspace?: TestWorkspace) {
  const own = workspace ?? (await server.workspace())
  const refill = { interval: 'daily', amount: 10 }
  const { keyId, key } = await own.post('keys.createKey', { apiId: await makeApi(own), remaining, refill })
  const { deps } = server.server
  const actor = actorIn(own)
  return {
    keyId,
    remaining: async () => (await own.get('keys.getKey', { keyId })).remaining,
    verify: async () => (await server.post('keys.verifyKey', { key })).body.remaining,
    writeByV1: () => own.post('keys.updateKey', { keyId, refill }),
    /** As v2 writes it. */
    writeAsSetting: async () => {
      const update = { refill: { amount: 10, day: null, mode: 'set' as const }, fieldNames: ['refill'] }
      const rules = {
        roles: { mayChange() {}, mayCreate() {} },
        permissions: { mayChange() {}, mayCreate() {} },
        refuseMissingDuration: () => expect.unreachable(),
        refuseUnknownLimit: () => expect.unreachable(),
        mayRefillUncounted() {},
      }
      await updateKey(deps, actor, await getKey(deps, actor, keyId), update, rules)
    },
  }
}

test('the schedule adds to keys whose refill adds, and sets those whose refill sets, where fewer are left', async () => {
  const [adding, few, many] = [await makeKey(3), await makeKey(3), await makeKey(30)]
  await few.writeAsSetting()
  await many.writeAsSetting()
  now += DAY_MS
  await runRound()
  expect([await adding.remaining(), await few.remaining(), await many.remaining()]).toEqual([13, 10, 30])
  await runRound()
  expect([await adding.remaining(), await few.remaining(), await many.remaining()]).toEqual([13, 10, 30])
  now += 3 * DAY_MS // several missed days are one refill
  await runRound()
  expect([await adding.remaining(), await few.remaining(), await many.remaining()]).toEqual([23, 10, 30])
})

test('a verification at the due instant refills in the mode of the key, once', async () => {
  const [adding, few, many] = [await makeKey(3), await makeKey(3), await makeKey(30)]
  await few.writeAsSetting()
  await many.writeAsSetting()
  const verifyAll = async () => [await adding.verify(), await few.verify(), await many.verify()]
  expect(await verifyAll()).toEqual([2, 2, 29])
  now += DAY_MS
  expect(await verifyAll()).toEqual([11, 9, 28])
  await runRound()
  expect(await verifyAll()).toEqual([10, 8, 27])
})

test('whoever writes the refill last decides, also for a key that is cached and due', async () => {
  const key = await makeKey(5)
  expect(await key.verify()).toBe(4)
  await key.writeAsSetting()
  now += DAY_MS
  expect(await key.verify()).toBe(9)
  await key.writeByV1()
  now += DAY_MS
  expect(await key.verify()).toBe(18)
  // Written while the cached record says that the refill of tonight is due: it is settled in the mode of the write.
  now += DAY_MS
  await server.server.deps.sql`update keys set refill_sets = true where id = ${key.keyId}`
  expect(await key.verify()).toBe(17)
})

test('changing the number of credits leaves the mode as it was', async () => {
  const workspace = await server.workspace()
  const key = await makeKey(5, workspace)
  await key.writeAsSetting()
  await workspace.post('keys.updateRemaining', { keyId: key.keyId, op: 'set', value: 2 })
  await workspace.post('keys.updateKey', { keyId: key.keyId, remaining: 3 })
  now += DAY_MS
  expect(await key.verify()).toBe(9)
})
