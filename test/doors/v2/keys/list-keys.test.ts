import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApiWithoutKeyspace } from '../../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { countStatements } from '../../../support/statements.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const call = (name: string, body: Json, rootKey = mine.rootKey) => callV2(server, name, body, rootKey)
const list = (body: Json, rootKey?: string) => call('apis.listKeys', body, rootKey)
const newApi = async (): Promise<string> => (await mine.post('apis.createApi', { name: 'my api' })).apiId
const HIDDEN: [number, string] = [404, 'unkey/data/api_not_found']

/** An API with keys. @returns their ids, ascending. */
async function withKeys(count: number, fields: Json = {}) {
  const apiId = await newApi()
  const keys = await Promise.all(
    Array.from({ length: count }, () => dataOf(call('keys.createKey', { apiId, ...fields }))),
  )
  return { apiId, ids: keys.map(({ keyId }): string => keyId).sort() }
}

describe('apis.listKeys', () => {
  commonCases(async () => {
    const { apiId } = await withKeys(1)
    return {
      server,
      name: 'apis.listKeys',
      rootKey: mine.rootKey,
      permissions: [`api.${apiId}.read_key`, `api.${apiId}.read_api`],
      body: () => ({ apiId }),
      hiddenAs: { status: 404, type: 'unkey/data/api_not_found' },
    }
  })

  test('all keys by id; pages of two neither overlap nor skip, and the last has no cursor', async () => {
    const { apiId, ids } = await withKeys(5)
    const { body } = await list({ apiId })
    expect(body.data.map(({ keyId }: Json) => keyId)).toEqual(ids)
    expect(body.pagination).toEqual({ hasMore: false })
    const pages: string[][] = []
    for (let cursor: string | undefined, more = true; more; ) {
      const page: Json = (await list({ apiId, limit: 2, ...(cursor === undefined ? {} : { cursor }) })).body
      pages.push(page.data.map(({ keyId }: Json) => keyId))
      cursor = page.pagination.cursor
      more = page.pagination.hasMore
      expect(cursor === undefined).toBe(!more)
    }
    expect(pages).toEqual([ids.slice(0, 2), ids.slice(2, 4), ids.slice(4)])
  })

  test('a last page that is full has no cursor either, and an API without keys is an empty list', async () => {
    const { apiId } = await withKeys(2)
    expect((await list({ apiId, limit: 2 })).body.pagination).toEqual({ hasMore: false })
    const empty = (await list({ apiId: await newApi() })).body
    expect([empty.data, empty.pagination]).toEqual([[], { hasMore: false }])
  })

  test('a key is shown as by getKey, with meta, limits and identity, and without its hash', async () => {
    await mine.post('identities.createIdentity', {
      externalId: 'shown',
      ratelimits: [{ name: 'shared', limit: 1, duration: 1000 }],
    })
    const { apiId, ids } = await withKeys(1, {
      externalId: 'shown',
      meta: { plan: 'pro' },
      ratelimits: [
        { name: 'requests', limit: 10, duration: 1000, autoApply: true },
        { name: 'default', limit: 20, duration: 1000 },
      ],
      credits: { remaining: 4, refill: { interval: 'daily', amount: 1 } },
      permissions: ['listed.read'],
    })
    const { data } = (await list({ apiId })).body
    expect(data).toEqual([await dataOf(call('keys.getKey', { keyId: ids[0] }))])
    expect(Object.keys(data[0])).not.toContain('hash')
    expect(data[0].ratelimits).toHaveLength(2)
    expect(data[0].identity.ratelimits).toHaveLength(1)
  })

  test('deleted keys are not listed', async () => {
    const { apiId, ids } = await withKeys(2)
    await call('keys.deleteKey', { keyId: ids[0] })
    expect((await list({ apiId })).body.data.map(({ keyId }: Json) => keyId)).toEqual([ids[1]])
  })

  test('externalId filters; of an unknown one there are no keys, and an empty one is a 400', async () => {
    const { apiId } = await withKeys(2)
    const { keyId } = await dataOf(call('keys.createKey', { apiId, externalId: 'filter' }))
    expect((await list({ apiId, externalId: 'filter' })).body.data).toMatchObject([{ keyId }])
    const { data, pagination } = (await list({ apiId, externalId: 'nobody' })).body
    expect([data, pagination]).toEqual([[], { hasMore: false }])
    expect(await refusalOf(list({ apiId, externalId: '' }))).toEqual([400, 'unkey/application/invalid_input'])
  })

  test.each([0, -1, 101, 200, 1.5])('limit %p is a 400', async (limit) => {
    expect(await refusalOf(list({ apiId: await newApi(), limit }))).toEqual([
      400,
      'unkey/application/invalid_input',
    ])
  })

  test('without one of the rights the answer is exactly that of an API that does not exist', async () => {
    const { apiId } = await withKeys(1)
    const other = await newApi()
    const errorOf = async (id: string, ...permissions: string[]) =>
      (await list({ apiId: id }, await mine.rootKeyWith(...permissions))).body.error
    const unknown = await errorOf('api_unknown', 'api.*.read_key', 'api.*.read_api')
    const hidden = { ...unknown, detail: unknown.detail.replace('api_unknown', apiId) }
    for (const permissions of [
      ['api.*.read_key'],
      ['api.*.read_api'],
      [`api.${other}.read_key`, `api.${other}.read_api`],
      ['api.*.create_key'],
    ])
      expect(await errorOf(apiId, ...permissions)).toEqual(hidden)
    expect(await refusalOf(list({ apiId }, (await server.workspace()).rootKey))).toEqual(HIDDEN)
    const enough = await mine.rootKeyWith(`api.${apiId}.read_key`, 'api.*.read_api')
    expect((await list({ apiId }, enough)).status).toBe(200)
  })

  test('decrypt shows the keys that are recoverable, with the right and where recovery is on', async () => {
    const { apiId } = await withKeys(1)
    const { keyId, key } = await dataOf(call('keys.createKey', { apiId, recoverable: true }))
    const read = [`api.${apiId}.read_key`, `api.${apiId}.read_api`]
    const decrypt = { apiId, decrypt: true }
    expect(await refusalOf(list(decrypt, await mine.rootKeyWith(...read)))).toEqual([
      403,
      'unkey/authorization/insufficient_permissions',
    ])
    const rootKey = await mine.rootKeyWith(...read, 'api.*.decrypt_key')
    const shown: Json[] = (await list(decrypt, rootKey)).body.data
    expect(shown.map((each) => [each.keyId === keyId, each.plaintext]).sort()).toEqual([
      [false, undefined],
      [true, key],
    ])
    await mine.post('apis.updateApi', { apiId, storeEncryptedKeys: false })
    expect(await refusalOf(list(decrypt, rootKey))).toEqual([412, 'unkey/application/precondition_failed'])
    expect((await list({ apiId }, rootKey)).status).toBe(200)
  })

  test('an API without a keyspace is a 412', async () => {
    const apiId = await makeApiWithoutKeyspace(server, mine)
    expect(await refusalOf(list({ apiId }))).toEqual([412, 'unkey/application/precondition_failed'])
  })

  test('a hundred keys with limits take no more statements than one', async () => {
    const fields = { externalId: 'counted', ratelimits: [{ name: 'all', limit: 1, duration: 1000 }] }
    const [one, hundred] = [await withKeys(1, fields), await withKeys(100, fields)]
    const ofOne = await countStatements(server, () => list({ apiId: one.apiId, externalId: 'counted' }))
    const ofHundred = await countStatements(server, () =>
      list({ apiId: hundred.apiId, externalId: 'counted' }),
    )
    expect(ofHundred).toBe(ofOne)
  })
})
