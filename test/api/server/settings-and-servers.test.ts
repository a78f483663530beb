import { expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { openTestDatabase } from '../../support/database.ts'
import { type Json, OPERATOR_KEY, startTestServer, type TestServer, VAULT_KEY } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const read = async (server: TestServer, method: string): Promise<Json> =>
  (await server.get(`server.${method}`, {}, OPERATOR_KEY)).body

test('settings are shown as `tollgate config` shows them, and no secret is among them', async () => {
  await using server = await startTestServer({ env: { TOLLGATE_SLOW_MS: '4321' } })
  const { settings } = await read(server, 'getSettings')
  const of = (name: string) => settings.find((each: Json) => each.name === name)
  expect(of('TOLLGATE_SLOW_MS')).toMatchObject({ value: '4321', source: 'environment', path: null })
  expect(of('TOLLGATE_WINDOW_DAYS_MAX')).toMatchObject({ source: 'default' })
  expect(of('TOLLGATE_ROOT_KEY').value).toBe('***')
  const text = JSON.stringify(settings)
  expect(text).not.toContain(OPERATOR_KEY)
  expect(text).not.toContain(VAULT_KEY)
})

test('servers on one database are listed with the one that answers, those that share limits too, and one that stopped is not', async () => {
  await using database = await openTestDatabase()
  if (database.databaseUrl === null) return // the embedded database has one server
  const env = { TOLLGATE_FLEET: 'postgres' }
  const dataDir = `${database.dataDir}-2`
  using _ = { [Symbol.dispose]: () => rmSync(dataDir, { recursive: true, force: true }) }
  await using first = await startTestServer({ database, env })
  await using second = await startTestServer({
    database: { ...database, dataDir },
    env,
  })
  for (const [server, other] of [
    [first, second],
    [second, first],
  ] as const) {
    const { servers, fleet } = await read(server, 'listServers')
    expect(servers).toHaveLength(2)
    expect(servers.map(({ host }: Json) => host)).toEqual([hostname(), hostname()])
    const idOf = async (each: TestServer) => (await read(each, 'getStatus')).id
    const isThis = Object.fromEntries(servers.map((each: Json) => [each.id, each.isThis]))
    expect(isThis).toEqual({ [await idOf(server)]: true, [await idOf(other)]: false })
    expect(fleet).toMatchObject({
      condition: 'ok',
      members: [{ engine: 'postgres' }, { engine: 'postgres' }],
    })
    expect(fleet.members.filter((each: Json) => each.isThis)).toHaveLength(1)
    for (const { seenAt } of [...servers, ...fleet.members])
      expect(Math.abs(Date.now() - seenAt)).toBeLessThan(60_000)
  }
  await second.server.stop()
  const { servers, fleet } = await read(first, 'listServers')
  expect([servers.length, fleet.members.length]).toEqual([1, 1])
})

test('a server that is alone lists itself, and shares no limits', async () => {
  await using server = await startTestServer()
  const { id } = await read(server, 'getStatus')
  expect(await read(server, 'listServers')).toMatchObject({ servers: [{ id, isThis: true }], fleet: null })
})
