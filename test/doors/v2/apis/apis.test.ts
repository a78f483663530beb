import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
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

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, name, body, rootKey)
const newApi = async (name = 'my-api'): Promise<string> =>
  (await dataOf(call('apis.createApi', { name }))).apiId

describe('apis.createApi', () => {
  commonCases(() => ({
    server,
    name: 'apis.createApi',
    rootKey: mine.rootKey,
    permissions: ['api.*.create_api'],
    body: () => ({ name: 'my-api' }),
  }))

  test('names are 3 to 256 characters, and need not be unique', async () => {
    const ids = [await newApi('twice'), await newApi('twice'), await newApi('x'.repeat(256))]
    expect(new Set(ids).size).toBe(3)
    for (const name of ['', 'ab', 'x'.repeat(257)])
      expect(await refusalOf(call('apis.createApi', { name }))).toEqual([
        400,
        'unkey/application/invalid_input',
      ])
  })

  test('characters are counted as code points', async () => {
    const name = '🔑'.repeat(256)
    const apiId = await newApi(name)
    expect((await dataOf(call('apis.getApi', { apiId }))).name).toBe(name)
    const { body } = await call('apis.createApi', { name: '🔑'.repeat(257) })
    expect(body.error.errors[0].message).toBe('maxLength: got 257, want 256')
  })

  test('a refusal says what is wrong and where in the schema', async () => {
    const { body } = await call('apis.createApi', { name: 'ab' })
    expect(body.error).toEqual({
      title: 'Bad Request',
      detail: "POST request body for '/v2/apis.createApi' failed to validate schema",
      status: 400,
      type: 'https://unkey.com/docs/errors/unkey/application/invalid_input',
      errors: [{ message: 'minLength: got 2, want 3', location: '/properties/name/minLength' }],
    })
  })

  test('an unknown field is refused by name, a missing and a wrong one too', async () => {
    const errorsOf = async (sent: unknown) => (await call('apis.createApi', sent)).body.error.errors
    expect(await errorsOf({ name: 'my-api', foo: 1 })).toEqual([
      { message: "additional properties 'foo' not allowed", location: '/additionalProperties' },
    ])
    expect(await errorsOf({})).toEqual([{ message: "missing property 'name'", location: '/required' }])
    expect(await errorsOf({ name: null })).toEqual([
      { message: 'got null, want string', location: '/properties/name/type' },
    ])
    expect(await errorsOf([])).toEqual([{ message: 'got array, want object', location: '/type' }])
  })

  test('a permission on one API does not allow to create others', async () => {
    const rootKey = await mine.rootKeyWith(`api.${await newApi()}.create_api`)
    expect((await call('apis.createApi', { name: 'my-api' }, rootKey)).status).toBe(403)
  })

  test('the header is checked before the body, and the body before the root key', async () => {
    const missing = await call('apis.createApi', { name: 'ab' }, null)
    expect(missing.body.error.errors[0].location).toBe('security')
    expect((await call('apis.createApi', { name: 'ab' }, 'unknown')).status).toBe(400)
  })
})

describe('apis.getApi', () => {
  commonCases(async () => {
    const apiId = await newApi()
    return {
      server,
      name: 'apis.getApi',
      rootKey: mine.rootKey,
      permissions: [`api.${apiId}.read_api`],
      body: () => ({ apiId }),
    }
  })

  test('a name of any characters comes back as given', async () => {
    const name = 'Zahlungen 💳 <b>&"\'\\ مرحبا'
    expect(await dataOf(call('apis.getApi', { apiId: await newApi(name) }))).toMatchObject({ name })
  })

  test('deleted, foreign and unknown APIs are not found; an id that cannot be one is a 400', async () => {
    const apiId = await newApi()
    await call('apis.deleteApi', { apiId })
    const other = await server.workspace()
    const foreign = await dataOf(call('apis.createApi', { name: 'foreign' }, other.rootKey))
    for (const id of [apiId, foreign.apiId, 'api_doesnotexist'])
      expect(await refusalOf(call('apis.getApi', { apiId: id }))).toEqual([404, 'unkey/data/api_not_found'])
    for (const id of ['', 'api_1', 'api-12345678'])
      expect((await call('apis.getApi', { apiId: id })).status).toBe(400)
  })
})

describe('apis.deleteApi', () => {
  commonCases(async () => {
    const apiIds: string[] = []
    return {
      server,
      name: 'apis.deleteApi',
      rootKey: mine.rootKey,
      permissions: ['api.*.delete_api'],
      body: async () => {
        apiIds.push(await newApi())
        return { apiId: apiIds.at(-1) }
      },
    }
  })

  test('its keys are refused at once, and deleting again is a 404', async () => {
    const apiId = await newApi()
    const { key } = await mine.post('keys.createKey', { apiId })
    expect((await mine.post('keys.verifyKey', { key })).code).toBe('VALID')
    expect(await dataOf(call('apis.deleteApi', { apiId }))).toEqual({})
    expect((await mine.post('keys.verifyKey', { key })).code).toBe('NOT_FOUND')
    expect(await refusalOf(call('apis.deleteApi', { apiId }))).toEqual([404, 'unkey/data/api_not_found'])
  })

  test('a protected API stays', async () => {
    const apiId = await newApi()
    await mine.post('apis.updateApi', { apiId, deleteProtection: true })
    const answer = await call('apis.deleteApi', { apiId })
    expect(await refusalOf(answer)).toEqual([412, 'unkey/application/protected_resource'])
    expect(answer.body.error.title).toBe('Resource is protected')
    expect((await dataOf(call('apis.getApi', { apiId }))).id).toBe(apiId)
  })
})
