import { expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { startFleetServer } from '../support/fleet-servers.ts'
import { type Json, OPERATOR_KEY, startTestServer, VAULT_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/** The one server that may still accept a revoked key must not be hidden behind those that refuse it. */
test.skipIf(TEST_DATABASE_URL === null)(
  'of a frozen server it is said that it has not answered, and once it runs again it refuses the key',
  async () => {
    await using database = await openTestDatabase()
    const dataDir = `${database.dataDir}-2`
    using _ = { [Symbol.dispose]: () => rmSync(dataDir, { recursive: true, force: true }) }
    await using first = await startTestServer({ database })
    await using second = await startTestServer({ database: { ...database, dataDir } })
    await using third = await startFleetServer(database, { TOLLGATE_VAULT_KEY: VAULT_KEY })
    const post = async (method: string, body: object): Promise<Json> =>
      (await first.post(method, body, OPERATOR_KEY)).body
    const { apiId } = await post('apis.createApi', { name: 'servers' })
    const { key, keyId } = await post('keys.createKey', { apiId })
    for (const each of [second, third])
      expect((await each.post('keys.verifyKey', { key })).body.valid).toBe(true)
    const codes = async () => {
      const { servers } = await post('keys.askServers', { keyId })
      return servers
        .map(({ isThis, code = 'no answer' }: Json) => `${isThis ? 'this' : 'other'} ${code}`)
        .sort()
    }
    /** A busy machine lets servers be late, which is said of them too. */
    const until = async (expected: readonly string[]) => {
      for (let seen = await codes(); seen.join() !== expected.join(); seen = await codes()) {
        for (const each of seen) expect(['other no answer', ...expected]).toContain(each)
        await Bun.sleep(500) // a workspace may ask twice a second
      }
    }
    await until(['other VALID', 'other VALID', 'this VALID'])
    third.process.kill('SIGSTOP')
    await post('keys.deleteKey', { keyId })
    await until(['other NOT_FOUND', 'other no answer', 'this NOT_FOUND'])
    third.process.kill('SIGCONT')
    await until(['other NOT_FOUND', 'other NOT_FOUND', 'this NOT_FOUND'])
    expect((await third.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
  },
)
