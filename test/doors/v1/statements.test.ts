import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { hashKey } from '../../../src/verify/secret.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { listStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
  // It removes rows of large deletions in slices, in the background of other calls too (test/sweep).
  await server.server.deps.sweeper.stop()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index)

type Rights = { roles: string[]; permissions: string[] }
const madeRights = new WeakMap<TestWorkspace, Promise<Rights>>()
/** Roles with a permission each, and as many other permissions: names and slugs. A workspace has them once. */
function makeRights(workspace: TestWorkspace, count: number): Promise<Rights> {
  const made = madeRights.get(workspace) ?? createRights(workspace, count)
  madeRights.set(workspace, made)
  return made
}

async function createRights(workspace: TestWorkspace, count: number): Promise<Rights> {
  const roles = numbers(count).map((index) => `role ${index}`)
  const permissions = numbers(count).map((index) => `permission.${index}`)
  await Promise.all(permissions.map((name) => workspace.post('permissions.createPermission', { name })))
  await Promise.all(
    roles.map(async (name, index) => {
      const { roleId } = await workspace.post('permissions.createRole', { name })
      await workspace.post('permissions.setRolePermissions', {
        roleId,
        permissions: [{ slug: permissions[index] }],
      })
    }),
  )
  return { roles, permissions }
}

/** Creates keys by import, which is fast and sets an owner. @returns their texts. */
async function importKeys(workspace: TestWorkspace, apiId: string, count: number, fields = {}) {
  const texts = numbers(count).map(() => crypto.randomUUID())
  for (let from = 0; from < count; from += 100)
    await workspace.post(
      'migrations.createKeys',
      texts.slice(from, from + 100).map((text) => ({
        apiId,
        hash: { value: hashKey(text), variant: 'sha256_base64' },
        ownerId: 'owner',
        externalId: 'user_1',
        ...fields,
      })),
    )
  return texts
}

type Work = () => Promise<unknown>
/** Calls with lists of some length. Everything they need is created before. */
const CASES: Record<string, (workspace: TestWorkspace, size: number) => Promise<Work>> = {
  'keys.getKey with that many roles and permissions': async (workspace, size) => {
    const { keyId } = await makeKey(workspace, await makeApi(workspace), await makeRights(workspace, size))
    return () => workspace.get('keys.getKey', { keyId })
  },
  'keys.verifyKey, not cached, with that many roles and permissions': async (workspace, size) => {
    const { key } = await makeKey(workspace, await makeApi(workspace), await makeRights(workspace, size))
    return () => server.post('keys.verifyKey', { key })
  },
  'keys.createKey with that many roles and permissions': async (workspace, size) => {
    const [apiId, rights] = [await makeApi(workspace), await makeRights(workspace, size)]
    return () => makeKey(workspace, apiId, { ...rights, externalId: 'user_1', recoverable: true })
  },
  'keys.updateKey to that many roles and permissions': async (workspace, size) => {
    const { roles, permissions } = await makeRights(workspace, size)
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    const named = (names: string[]) => names.map((name) => ({ name }))
    return () =>
      workspace.post('keys.updateKey', { keyId, roles: named(roles), permissions: named(permissions) })
  },
  'migrations.createKeys of that many keys': async (workspace, size) => {
    const apiId = await makeApi(workspace)
    const rights = await makeRights(workspace, 3)
    await makeKey(workspace, apiId, { recoverable: true }) // creates the workspace's data key
    const elements = numbers(size).map((index) => ({
      ...rights,
      apiId,
      plaintext: crypto.randomUUID(),
      externalId: `user_${index}`,
      ratelimit: { limit: 1, refillRate: 1, refillInterval: 1000 },
    }))
    return () => workspace.post('migrations.createKeys', elements)
  },
  'apis.listKeys of that many keys': async (workspace, size) => {
    const apiId = await makeApi(workspace)
    await importKeys(workspace, apiId, size, await makeRights(workspace, 3))
    return () => workspace.get('apis.listKeys', { apiId, externalId: 'user_1', decrypt: true })
  },
  'apis.deleteKeys of that many keys': async (workspace, size) => {
    const apiId = await makeApi(workspace)
    await importKeys(workspace, apiId, 10 * size)
    return () => workspace.post('apis.deleteKeys', { apiId })
  },
  'apis.deleteApi with that many keys': async (workspace, size) => {
    const apiId = await makeApi(workspace)
    await importKeys(workspace, apiId, 10 * size)
    return () => workspace.post('apis.deleteApi', { apiId })
  },
  'keys.getVerifications of an owner of that many keys': async (workspace, size) => {
    await importKeys(workspace, await makeApi(workspace), 10 * size)
    return () => workspace.get('keys.getVerifications', { ownerId: 'owner' })
  },
  'identities.updateIdentity with ten times that many keys': async (workspace, size) => {
    await importKeys(workspace, await makeApi(workspace), 10 * size)
    const ratelimits = numbers(20).map((index) => ({ name: `limit ${index}`, limit: 1, duration: 1000 }))
    return () => workspace.post('identities.updateIdentity', { externalId: 'user_1', ratelimits })
  },
  'identities.deleteIdentity with ten times that many keys': async (workspace, size) => {
    await importKeys(workspace, await makeApi(workspace), 10 * size)
    const { id } = await workspace.get('identities.getIdentity', { externalId: 'user_1' })
    return () => workspace.post('identities.deleteIdentity', { identityId: id })
  },
  'permissions.listRoles of that many roles': async (workspace, size) => {
    await makeRights(workspace, size)
    return () => workspace.get('permissions.listRoles')
  },
  'permissions.listPermissions of that many': async (workspace, size) => {
    await makeRights(workspace, size)
    return () => workspace.get('permissions.listPermissions')
  },
  'identities.listIdentities of that many': async (workspace, size) => {
    const ratelimits = [{ name: 'a limit', limit: 1, duration: 1000 }]
    await Promise.all(
      numbers(size).map((index) =>
        workspace.post('identities.createIdentity', { externalId: `user_${index}`, ratelimits }),
      ),
    )
    return () => workspace.get('identities.listIdentities')
  },
  'audit.listEvents of that many': async (workspace, size) => {
    await makeRights(workspace, size)
    return () => workspace.get('audit.listEvents')
  },
}

const worlds = new Map<number, Promise<TestWorkspace>>()
/** Cases with that many rights share them: making two hundred takes longer than all that is measured. */
function workspaceFor(name: string, size: number): Promise<TestWorkspace> {
  const needsRights = /that many roles|listPermissions|listEvents/.test(name)
  const workspace = (needsRights && worlds.get(size)) || server.workspace()
  if (needsRights) worlds.set(size, workspace)
  return workspace
}

/** A statement for each item turns a hundred keys into seconds. No other test would notice. */
test.each(Object.keys(CASES))('%s: a hundred elements take no more statements than one', async (name) => {
  const measure = async (size: number) => {
    const workspace = await workspaceFor(name, size)
    const work = await CASES[name]?.(workspace, size)
    if (work === undefined) throw new Error('no such case')
    await workspace.get('apis.listApis') // caches the root key
    return await listStatements(server, work)
  }
  const [one, hundred] = [await measure(1), await measure(100)]
  expect(one.length).toBeGreaterThan(0)
  expect(hundred.length, hundred.join('\n\n')).toBe(one.length)
})

/** The queue works in the background, so only the request's own statements count. */
test('migrations.enqueueKeys: a hundred keys are queued with one statement', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const keys = numbers(100).map(() => ({
    hash: { value: hashKey(crypto.randomUUID()), variant: 'sha256_base64' },
  }))
  const statements = await listStatements(server, () =>
    workspace.post('migrations.enqueueKeys', { migrationId: 'm_1', apiId, keys }),
  )
  expect(statements.filter((text) => text.includes('insert into key_imports'))).toHaveLength(1)
})
