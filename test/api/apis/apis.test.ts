import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeApiWithoutKeyspace, makeKey } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const isValid = async (key: string) => (await server.post('keys.verifyKey', { key })).body.valid
const auditOf = async (workspace: TestWorkspace, event: string) =>
  await server.server.deps.sql<{ id: string; resources: { id: string }[] }[]>`
    select id, resources from audit_events where workspace_id = ${workspace.workspaceId} and event = ${event} order by id`

describe('apis.createApi', () => {
  /** The texts are contract: clients compare them. */
  test.each(['', 'ab'])('the name %p is too short', async (name) => {
    const { rootKey } = await server.workspace()
    const { status, body } = await server.post('apis.createApi', { name }, rootKey)
    expect(status).toBe(400)
    expect(body.error.message).toBe('name: String must contain at least 3 character(s)')
  })

  test('a name has 3 to 256 characters, of any script', async () => {
    const { rootKey } = await server.workspace()
    const make = async (name: string) => (await server.post('apis.createApi', { name }, rootKey)).status
    expect(await make('abc')).toBe(200)
    expect(await make('é'.repeat(256))).toBe(200)
    expect(await make('a'.repeat(257))).toBe(400)
  })

  test('a new API is not delete-protected and is audited', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const [row] = await server.server.deps.sql`select delete_protection from apis where id = ${apiId}`
    expect(row).toEqual({ delete_protection: false })
    expect(await auditOf(workspace, 'api.create')).toMatchObject([{ resources: [{ id: apiId }] }])
  })

  test('api.*.create_api suffices', async () => {
    const workspace = await server.workspace()
    const rootKey = await workspace.rootKeyWith('api.*.create_api', 'another')
    expect((await server.post('apis.createApi', { name: 'abc' }, rootKey)).status).toBe(200)
  })
})

describe('apis.getApi', () => {
  test('returns every setting that updateApi takes, under the same name, and the number of live keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { createdAt, ...fresh } = await workspace.get('apis.getApi', { apiId })
    expect(Math.abs(createdAt - Date.now())).toBeLessThan(60_000)
    expect(fresh).toEqual({
      id: apiId,
      name: 'test api',
      workspaceId: workspace.workspaceId,
      keys: 0,
      ...DEFAULTS,
    })
    const settings = {
      name: 'another name',
      deleteProtection: true,
      ipWhitelist: ['100.100.100.100', '2001:db8::/32'],
      storeEncryptedKeys: false,
      defaultPrefix: 'demo',
      defaultBytes: 24,
    }
    await workspace.post('apis.updateApi', { apiId, ...settings })
    const { keyId } = await makeKey(workspace, apiId)
    await makeKey(workspace, apiId)
    await workspace.post('keys.deleteKey', { keyId })
    const shown = await workspace.get('apis.getApi', { apiId })
    expect(shown).toEqual({ id: apiId, workspaceId: workspace.workspaceId, createdAt, keys: 1, ...settings })
    const { workspaceId: _, ...listed } = shown
    expect((await workspace.get('apis.listApis')).apis).toEqual([listed])
  })

  test('an unknown API and an API of another workspace are not found', async () => {
    const [mine, theirs] = [await server.workspace(), await server.workspace()]
    for (const apiId of ['api_unknown', await makeApi(theirs)]) {
      const { status, body } = await server.get('apis.getApi', { apiId }, mine.rootKey)
      expect(status).toBe(404)
      expect(body.error).toMatchObject({ code: 'NOT_FOUND', message: `api ${apiId} not found` })
    }
  })

  test('accepts the wildcard and the specific permission', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    for (const permission of ['api.*.read_api', `api.${apiId}.read_api`]) {
      const rootKey = await workspace.rootKeyWith(permission, 'another')
      expect((await server.get('apis.getApi', { apiId }, rootKey)).status).toBe(200)
    }
  })

  test('the id is required and not empty', async () => {
    const { rootKey } = await server.workspace()
    const missing = await server.get('apis.getApi', {}, rootKey)
    expect([missing.status, missing.body.error.message]).toEqual([400, 'apiId: Required'])
    const empty = await server.get('apis.getApi', { apiId: '' }, rootKey)
    expect(empty.body.error.message).toBe('apiId: String must contain at least 1 character(s)')
  })
})

describe('apis.deleteApi', () => {
  test('an unknown API is not found', async () => {
    const { rootKey } = await server.workspace()
    const { status, body } = await server.post('apis.deleteApi', { apiId: 'api_unknown' }, rootKey)
    expect([status, body.error.message]).toEqual([404, 'api api_unknown not found'])
  })

  /** Otherwise a deleted API would still let callers in from the cache. */
  test('keys of a deleted API are refused on the next verification, and the row stays', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { key } = await makeKey(workspace, apiId)
    expect(await isValid(key)).toBe(true)
    expect(await workspace.post('apis.deleteApi', { apiId })).toEqual({})
    expect((await server.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
    const [row] = await server.server.deps.sql`select deleted_at from apis where id = ${apiId}`
    expect(row?.deleted_at).toBeNumber()
    expect((await server.get('apis.getApi', { apiId }, workspace.rootKey)).status).toBe(404)
  })

  test('one audit event for the API, and one with an ordinary id for each live key with an owner', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await makeKey(workspace, apiId)
    const owned = await makeKey(workspace, apiId, { externalId: 'user_1' })
    const deleted = await makeKey(workspace, apiId, { externalId: 'user_1' })
    await workspace.post('keys.deleteKey', { keyId: deleted.keyId })
    await workspace.post('apis.deleteApi', { apiId })
    const entries = await auditOf(workspace, 'key.delete')
    const ids = entries.map(({ resources }) => resources[0]?.id).sort()
    expect(ids).toEqual([owned, deleted].map(({ keyId }) => keyId).sort())
    for (const { id } of entries) expect(id).toMatch(/^log_[1-9A-HJ-NP-Za-km-z]{16}$/)
    expect(await auditOf(workspace, 'api.delete')).toHaveLength(1)
  })

  test('a delete-protected API is refused and unchanged', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await workspace.post('apis.updateApi', { apiId, deleteProtection: true })
    const { status, body } = await server.post('apis.deleteApi', { apiId }, workspace.rootKey)
    expect([status, body.error.code]).toEqual([412, 'DELETE_PROTECTED'])
    expect(body.error.message).toContain(apiId)
    const [row] = await server.server.deps.sql`select deleted_at from apis where id = ${apiId}`
    expect(row?.deleted_at).toBeNull()
  })

  test('an API without keyspace can be deleted', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApiWithoutKeyspace(server, workspace)
    expect(await workspace.post('apis.deleteApi', { apiId })).toEqual({})
  })

  test('accepts the wildcard and the specific permission', async () => {
    const workspace = await server.workspace()
    for (const permission of ['api.*.delete_api', 'api.{A}.delete_api']) {
      const apiId = await makeApi(workspace)
      const rootKey = await workspace.rootKeyWith(permission.replace('{A}', apiId), 'another')
      expect((await server.post('apis.deleteApi', { apiId }, rootKey)).status).toBe(200)
    }
  })
})

describe('apis.deleteKeys', () => {
  test('an unknown API is not found, and an API without keyspace is a 412', async () => {
    const workspace = await server.workspace()
    const unknown = await server.post('apis.deleteKeys', { apiId: 'api_unknown' }, workspace.rootKey)
    expect([unknown.status, unknown.body.error.message]).toEqual([404, 'api api_unknown not found'])
    const apiId = await makeApiWithoutKeyspace(server, workspace)
    const bare = await server.post('apis.deleteKeys', { apiId }, workspace.rootKey)
    expect([bare.status, bare.body.error.code]).toEqual([412, 'PRECONDITION_FAILED'])
    expect(bare.body.error.message).toContain(apiId)
  })

  test('a soft delete keeps rows and refuses keys at once; a permanent one removes and counts all rows', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const keys = await Promise.all(Array.from({ length: 10 }, () => makeKey(workspace, apiId)))
    const [first] = keys
    expect(await isValid(first?.key ?? '')).toBe(true)
    expect(await workspace.post('apis.deleteKeys', { apiId })).toEqual({ deletedKeys: 10 })
    expect(await isValid(first?.key ?? '')).toBe(false)
    expect(await auditOf(workspace, 'key.delete')).toHaveLength(1)
    const rows = () => server.server.deps.sql`
      select k.deleted_at from keys k where api_of_keyspace(k.keyspace_id) = ${apiId}`
    expect((await rows()).filter(({ deleted_at }) => deleted_at !== null)).toHaveLength(10)

    await makeKey(workspace, apiId)
    expect(await workspace.post('apis.deleteKeys', { apiId, permanent: true })).toEqual({ deletedKeys: 11 })
    expect(await rows()).toHaveLength(0)
    expect(await isValid((await makeKey(workspace, apiId)).key)).toBe(true)
  })

  test('keys of other APIs are not affected', async () => {
    const workspace = await server.workspace()
    const [mine, other] = [await makeApi(workspace), await makeApi(workspace)]
    const { key } = await makeKey(workspace, other)
    await workspace.post('apis.deleteKeys', { apiId: mine, permanent: true })
    expect(await isValid(key)).toBe(true)
  })

  test('accepts the wildcard and the specific permission', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    for (const permission of ['api.*.delete_key', `api.${apiId}.delete_key`]) {
      const rootKey = await workspace.rootKeyWith(permission, 'another')
      expect((await server.post('apis.deleteKeys', { apiId }, rootKey)).status).toBe(200)
    }
  })
})

describe('apis.updateApi', () => {
  test('absent fields stay, and defaults apply to new keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await workspace.post('apis.updateApi', { apiId, defaultPrefix: '_prefix', defaultBytes: 66 })
    await workspace.post('apis.updateApi', { apiId, name: 'renamed' })
    expect((await workspace.get('apis.getApi', { apiId })).name).toBe('renamed')
    const { keyId, key } = await makeKey(workspace, apiId)
    expect(key).toStartWith('_prefix_')
    expect((await workspace.get('keys.getKey', { keyId })).start).toBe(key.slice(0, 5))
    await workspace.post('apis.updateApi', { apiId, defaultPrefix: null, defaultBytes: 16 })
    expect((await makeKey(workspace, apiId)).key).toMatch(/^3Z[1-9A-HJ-NP-Za-km-z]{22}$/)
  })

  test.each([
    ['ipWhitelist', ['10.0.0.0/8', 'somewhere'], 'ipWhitelist.1: Expected an IP address or a CIDR range'],
    ['ipWhitelist', ['10.0.0.0/33'], 'ipWhitelist.0: Expected an IP address or a CIDR range'],
    ['ipWhitelist', [], 'ipWhitelist: Array must contain at least 1 element(s)'],
    ['defaultBytes', 15, 'defaultBytes: Number must be greater than or equal to 16'],
    ['defaultBytes', 256, 'defaultBytes: Number must be less than or equal to 255'],
    ['defaultPrefix', 'x'.repeat(17), 'defaultPrefix: String must contain at most 16 character(s)'],
    ['name', 'ab', 'name: String must contain at least 3 character(s)'],
  ])('%s %p is refused before any key is looked at', async (field, value, message) => {
    const { status, body } = await server.post('apis.updateApi', { apiId: 'api_any', [field]: value })
    expect([status, body.error.message]).toEqual([400, message])
  })

  test('an API of another workspace is not found', async () => {
    const [mine, theirs] = [await server.workspace(), await server.workspace()]
    const apiId = await makeApi(theirs)
    const { status } = await server.post('apis.updateApi', { apiId, name: 'mine now' }, mine.rootKey)
    expect(status).toBe(404)
    expect((await theirs.get('apis.getApi', { apiId })).name).toBe('test api')
  })

  test('an allow list applies to the next verification, and null removes it', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { key } = await makeKey(workspace, apiId)
    expect(await isValid(key)).toBe(true)
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['203.0.113.7'] })
    expect((await server.post('keys.verifyKey', { key })).body.code).toBe('FORBIDDEN')
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.0/8', '::1'] })
    expect(await isValid(key)).toBe(true)
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: null })
    expect(await isValid(key)).toBe(true)
    expect(await auditOf(workspace, 'api.update')).toHaveLength(3)
  })
})

/** Settings of an API that nobody changed. */
const DEFAULTS = {
  deleteProtection: false,
  ipWhitelist: null,
  storeEncryptedKeys: true,
  defaultPrefix: null,
  defaultBytes: 16,
}

describe('apis.listApis', () => {
  test('lists APIs of the workspace by id, in pages, with a cursor only while more follow', async () => {
    const workspace = await server.workspace()
    await makeApi(await server.workspace())
    const ids: string[] = []
    for (let index = 0; index < 5; index++) ids.push(await makeApi(workspace))
    await workspace.post('apis.deleteApi', { apiId: await makeApi(workspace) })
    ids.sort()
    const first = await workspace.get('apis.listApis', { limit: 3 })
    expect(first).toEqual({
      apis: ids
        .slice(0, 3)
        .map((id) => expect.objectContaining({ id, name: 'test api', keys: 0, ...DEFAULTS })),
      total: 5,
      cursor: ids[2],
    })
    const second = await workspace.get('apis.listApis', { limit: 3, cursor: first.cursor })
    expect(second).toEqual({
      apis: ids.slice(3).map((id) => expect.objectContaining({ id, name: 'test api' })),
      total: 5,
    })
  })
})
