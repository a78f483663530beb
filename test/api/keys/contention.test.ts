import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { randomNumbers } from '../../support/random.ts'
import { type Json, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/**
 * Roles, permissions and identities are created and deleted while keys with them are created, changed and verified. One
 * call may delete what another has found but not linked yet: that must end as if one came after the other, not with an
 * error. Deadlocks must not happen either: Postgres breaks one only after a second, so even retried ones stall the server.
 */
test('concurrent linking and deleting of the same things never fails and never deadlocks', async () => {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'kept' })
  const makeKey = () =>
    workspace.post('keys.createKey', { apiId, externalId: 'user_1', remaining: 1_000_000 })
  const keys: { keyId: string; key: string }[] = await Promise.all(Array.from({ length: 6 }, makeKey))

  const failures: Json[] = []
  const checked = async (answer: Promise<{ status: number; body: Json }>) => {
    const { status, body } = await answer
    if (status >= 500) failures.push(body)
    return body
  }
  const post = (method: string, body: object) => checked(server.post(method, body, workspace.rootKey))
  const get = (method: string) => checked(server.get(method, {}, workspace.rootKey))
  const random = randomNumbers(1)
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)]
  const some = () => [1, 2, 3].map(() => ({ name: `n.${Math.floor(random() * 5)}`, create: true }))

  const operations: ((key: { keyId: string; key: string }) => Promise<unknown>)[] = [
    ({ keyId }) => post('keys.addPermissions', { keyId, permissions: some() }),
    ({ keyId }) => post('keys.setPermissions', { keyId, permissions: some() }),
    ({ keyId }) => post('keys.removePermissions', { keyId, permissions: some() }),
    ({ keyId }) => post('keys.setRoles', { keyId, roles: some() }),
    ({ keyId }) =>
      post('keys.updateKey', { keyId, externalId: 'user_1', roles: some(), permissions: some() }),
    ({ key }) => post('keys.verifyKey', { key }),
    () => post('permissions.setRolePermissions', { roleId, permissions: some().map(slugged) }),
    () => post('identities.updateIdentity', { externalId: 'user_1', ratelimits: [limit] }),
    async () => {
      const identity = pick<Json>((await get('identities.listIdentities')).identities)
      if (identity !== undefined) await post('identities.deleteIdentity', { identityId: identity.id })
    },
    async () => {
      const permission = pick<Json>(await get('permissions.listPermissions'))
      if (permission !== undefined)
        await post('permissions.deletePermission', { permissionId: permission.id })
    },
    async () => {
      const role = pick<Json>(await get('permissions.listRoles'))
      if (role !== undefined && role.id !== roleId) await post('permissions.deleteRole', { roleId: role.id })
    },
    async () => {
      const permissions = (await get('permissions.listPermissions')).map(({ slug }: { slug: string }) => slug)
      await post('keys.createKey', { apiId, externalId: 'user_1', permissions })
    },
  ]
  const worker = async () => {
    for (let i = 0; i < 40; i++) await pick(operations)?.(pick(keys) ?? { keyId: '', key: '' })
  }
  await Promise.all(Array.from({ length: 12 }, worker))

  expect(failures).toEqual([])
  const { sql } = server.server.deps
  await sql`select pg_stat_clear_snapshot()`
  const [row] = await sql`select deadlocks from pg_stat_database where datname = current_database()`
  expect(row).toEqual({ deadlocks: 0 })
  for (const { key } of keys)
    expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true })
})

const limit = { name: 'requests', limit: 5, duration: 1000 }
const slugged = ({ name, create }: { name: string; create: boolean }) => ({ slug: name, create })
