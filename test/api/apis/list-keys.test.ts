import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeApiWithoutKeyspace, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** An API with ten keys. Every second one is enabled and belongs to `user_1`. */
async function prepare() {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const fieldsOf = (index: number) =>
    index % 2 === 0 ? { externalId: 'user_1' } : { enabled: false, name: `key ${index}` }
  const keyIds = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => (await makeKey(workspace, apiId, fieldsOf(index))).keyId),
  )
  const list = (query: Record<string, unknown> = {}) => workspace.get('apis.listKeys', { apiId, ...query })
  return { workspace, apiId, keyIds: keyIds.sort(), list }
}
const idsOf = (keys: Json[]) => keys.map(({ id }) => id)

test('an unknown API and an API of another workspace are not found, and an API without keyspace is a 412', async () => {
  const { workspace } = await prepare()
  for (const apiId of ['api_unknown', await makeApi(await server.workspace())]) {
    const rootKey = await workspace.rootKeyWith(`api.${apiId}.read_api`, `api.${apiId}.read_key`)
    expect(refusalOf(await server.get('apis.listKeys', { apiId }, rootKey))).toEqual({
      status: 404,
      code: 'NOT_FOUND',
      message: `api ${apiId} not found`,
    })
  }
  const apiId = await makeApiWithoutKeyspace(server, workspace)
  const bare = refusalOf(await server.get('apis.listKeys', { apiId }, workspace.rootKey))
  expect([bare.status, bare.code]).toEqual([412, 'PRECONDITION_FAILED'])
  expect(bare.message).toContain(apiId)
})

test('lists keys by id in the form of getKey, without deleted ones', async () => {
  const { workspace, keyIds, list } = await prepare()
  await workspace.post('keys.deleteKey', { keyId: keyIds[0] })
  const { keys, total, ...rest } = await list()
  expect(idsOf(keys)).toEqual(keyIds.slice(1))
  expect(total).toBe(9)
  expect(rest).toEqual({})
  for (const key of keys) expect(await workspace.get('keys.getKey', { keyId: key.id })).toEqual(key)
  expect(keys.filter(({ enabled }: Json) => enabled).length).toBeWithin(4, 6)
})

test('pages follow each other, with a cursor only while more follow', async () => {
  const { keyIds, list } = await prepare()
  const first = await list({ limit: 2 })
  expect([idsOf(first.keys), first.total, first.cursor]).toEqual([keyIds.slice(0, 2), 10, keyIds[1]])
  const second = await list({ limit: 3, cursor: first.cursor })
  expect([idsOf(second.keys), second.total]).toEqual([keyIds.slice(2, 5), 10])
  const last = await list({ limit: 5, cursor: second.cursor })
  expect(idsOf(last.keys)).toEqual(keyIds.slice(5))
  expect(last).not.toHaveProperty('cursor')
})

test('externalId and ownerId filter the list but not the total', async () => {
  const { workspace, apiId, list } = await prepare()
  await makeKey(workspace, await makeApi(workspace), { externalId: 'user_1' }) // of another API
  for (const query of [{ externalId: 'user_1' }, { ownerId: 'user_1' }]) {
    const { keys, total } = await list(query)
    expect([keys.length, total]).toEqual([5, 10])
    for (const key of keys)
      expect(key).toMatchObject({ apiId, identity: { externalId: 'user_1' }, ownerId: 'user_1' })
  }
  expect((await list({ externalId: 'user_1', ownerId: 'ignored' })).keys).toHaveLength(5)
  expect((await list({ ownerId: 'unknown' })).keys).toEqual([])
  expect(await list({ externalId: 'unknown' })).toEqual({ keys: [], total: 0 })
})

test.each([
  ['limit', '0', 'limit: Number must be greater than or equal to 1'],
  ['limit', '101', 'limit: Number must be less than or equal to 100'],
  ['limit', 'x', 'limit: Expected number, received nan'],
  ['limit', '1.5', 'limit: Expected integer, received float'],
  ['externalId', '', 'externalId: String must contain at least 1 character(s)'],
  ['revalidateKeysCache', 'maybe', 'revalidateKeysCache: Expected boolean, received string'],
])('%s=%s is a 400', async (name, value, message) => {
  const answer = await server.get('apis.listKeys', { apiId: 'api_any', [name]: value })
  expect(refusalOf(answer)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
})

test('a list includes a key created a moment ago, and accepts any limit up to 100', async () => {
  const { workspace, apiId, list } = await prepare()
  const { keyId } = await makeKey(workspace, apiId)
  for (const revalidateKeysCache of ['true', 'false', '1', '0'])
    expect(idsOf((await list({ limit: 100, revalidateKeysCache })).keys)).toContain(keyId)
})

test('accepts both rights in every form', async () => {
  const { workspace, apiId } = await prepare()
  for (const read of ['api.*.read_key', `api.${apiId}.read_key`]) {
    expect((await server.get('apis.listKeys', { apiId }, await workspace.rootKeyWith(read))).status).toBe(403)
    for (const api of ['api.*.read_api', `api.${apiId}.read_api`]) {
      const rootKey = await workspace.rootKeyWith(read, api, 'another')
      expect((await server.get('apis.listKeys', { apiId }, rootKey)).status).toBe(200)
    }
  }
})
