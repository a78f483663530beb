import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../../support/fixtures.ts'
import { createLinger, LESS_THAN_LINGERING_MS } from '../../support/linger.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: LESS_THAN_LINGERING_MS } })
  const { sql } = server.server.deps
  // Stands for the hundred thousands of keys that Postgres frees of what is deleted.
  await createLinger(sql)
  for (const table of ['identities', 'roles', 'permissions'])
    await sql`create trigger linger before delete on ${sql(table)} for each row execute function linger()`
  await sql`create trigger linger before update on apis for each row execute function linger()`
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** Each attempt would fail the same way, and what very many keys have could never be deleted. */
test.each([
  ['identities.deleteIdentity', 'identityId', 'identities.createIdentity', { externalId: 'user_1' }],
  ['permissions.deleteRole', 'roleId', 'permissions.createRole', { name: 'admin' }],
  ['permissions.deletePermission', 'permissionId', 'permissions.createPermission', { name: 'read' }],
])('%s may take longer than other requests', async (method, idName, make, fields) => {
  const workspace = await server.workspace()
  const { [idName]: id } = await workspace.post(make, fields)
  expect(await workspace.post(method, { [idName]: id })).toEqual({})
  expect((await server.post(method, { [idName]: id }, workspace.rootKey)).status).toBe(404)
})

test('another write that takes as long fails, and nothing is written', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  expect((await server.post('apis.updateApi', { apiId, name: 'late' }, workspace.rootKey)).status).toBe(500)
  expect((await workspace.get('apis.getApi', { apiId })).name).toBe('test api')
})
