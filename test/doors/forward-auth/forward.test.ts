import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { HOUR_MS } from '../../../src/lib/clock.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const NOW = Date.UTC(2030, 0, 1, 12, 0, 15)
let server: TestServer
let workspace: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' }, clock: () => NOW })
  workspace = await server.workspace()
  apiId = await makeApi(workspace)
})
afterAll(() => server[Symbol.asyncDispose]())

const ask = (key: string | null, query: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
  server.get('auth.forward', { apiId, ...query }, key, headers)
const keyWith = (fields: Record<string, unknown> = {}, api = apiId) => makeKey(workspace, api, fields)

test('a key may come as a bearer token or as X-API-Key, by GET or POST, with any body', async () => {
  const { keyId, key } = await keyWith()
  const url = `${server.url}/v1/auth.forward?apiId=${apiId}`
  const attempts: [string, Record<string, string>][] = [
    ['GET', { authorization: `Bearer ${key}` }],
    ['GET', { authorization: `bearer ${key}` }],
    ['GET', { 'x-api-key': key }],
    ['POST', { 'x-api-key': key }],
    // `Authorization` may be meant for the service behind the proxy.
    ['GET', { 'x-api-key': key, authorization: 'Bearer a.token.of-the-application' }],
    ['GET', { 'x-api-key': key, authorization: 'Basic dXNlcjpwYXNz' }],
  ]
  for (const [method, headers] of attempts) {
    const body = method === 'POST' ? { body: 'not { json' } : {}
    const response = await fetch(url, { method, headers, ...body })
    expect([method, headers, response.status]).toEqual([method, headers, 200])
    expect(response.headers.get('x-tollgate-key-id')).toBe(keyId)
    expect(response.headers.has('x-tollgate-external-id')).toBe(false)
  }
})

test('a missing key and an unknown key are 401, with how to send one', async () => {
  const attempts = [await ask(null), await ask(null, {}, { authorization: 'Basic dXNlcjpwYXNz' })]
  for (const { status, body, headers } of attempts) {
    expect([status, body.error.code]).toEqual([401, 'UNAUTHENTICATED'])
    expect(headers.get('www-authenticate')).toBe('Bearer')
  }
  const unknown = await ask('unknown')
  expect([unknown.status, unknown.headers.get('www-authenticate')]).toEqual([
    401,
    'Bearer error="invalid_token"',
  ])
  expect(unknown.headers.has('x-tollgate-key-id')).toBe(false)
})

/** A root key would open every product behind the proxy. */
test('a root key is refused like an unknown key', async () => {
  for (const rootKey of [OPERATOR_KEY, workspace.rootKey])
    expect((await server.get('auth.forward', {}, rootKey)).status).toBe(401)
  expect((await server.get('auth.forward', {}, (await keyWith()).key)).status).toBe(200)
})

test('existing keys that may not pass are 403, each with its reason', async () => {
  const refusalOf = async (key: string, query = {}) => {
    const { status, body, headers } = await ask(key, query)
    return [status, body.error.code, headers.get('x-tollgate-key-id')]
  }
  const disabled = await keyWith({ enabled: false })
  expect(await refusalOf(disabled.key)).toEqual([403, 'DISABLED', disabled.keyId])
  const expired = await keyWith({ expires: NOW - 1 })
  expect(await refusalOf(expired.key)).toEqual([403, 'EXPIRED', expired.keyId])
  const once = await keyWith({ remaining: 1 })
  expect((await ask(once.key)).status).toBe(200)
  expect(await refusalOf(once.key)).toEqual([403, 'USAGE_EXCEEDED', once.keyId])
  const foreign = await keyWith({}, await makeApi(workspace))
  expect(await refusalOf(foreign.key)).toEqual([403, 'FORBIDDEN', foreign.keyId])
  const poor = await keyWith()
  expect(await refusalOf(poor.key, { permissions: 'admin' })).toEqual([
    403,
    'INSUFFICIENT_PERMISSIONS',
    poor.keyId,
  ])
})

test('permissions are given in words or as JSON', async () => {
  for (const name of ['documents.read', 'documents.list'])
    await workspace.post('permissions.createPermission', { name })
  const { key } = await keyWith({ permissions: ['documents.read', 'documents.list'] })
  const statusOf = async (permissions: string) => (await ask(key, { permissions })).status
  expect(await statusOf('documents.read')).toBe(200)
  expect(await statusOf('admin or (documents.read and documents.list)')).toBe(200)
  expect(await statusOf('{"and":["documents.read","documents.list"]}')).toBe(200)
  expect(await statusOf('admin and documents.read')).toBe(403)
})

describe('limits', () => {
  test('that are used up are a 429 with the seconds to wait, and headers say what is left', async () => {
    const { key } = await keyWith({ ratelimit: { limit: 2, duration: 60_000 } })
    const answers = [await ask(key), await ask(key), await ask(key)]
    expect(
      answers.map(({ status, headers }) => [
        status,
        headers.get('ratelimit-policy'),
        headers.get('ratelimit'),
        headers.get('retry-after'),
      ]),
    ).toEqual([
      [200, '"default";q=2;w=60', '"default";r=1;t=45', null],
      [200, '"default";q=2;w=60', '"default";r=0;t=45', null],
      [429, '"default";q=2;w=60', '"default";r=0;t=45', '45'],
    ])
    expect(answers[2]?.body.error.code).toBe('RATE_LIMITED')
  })

  test('are named in the query, optionally with a cost, or defined there completely', async () => {
    const { identityId } = await workspace.post('identities.createIdentity', {
      externalId: 'somebody with a limit',
      ratelimits: [{ name: 'tokens, of all', limit: 10, duration: HOUR_MS }],
    })
    expect(identityId).toBeString()
    const { key } = await keyWith({ externalId: 'somebody with a limit' })
    const leftOf = async (...ratelimit: string[]) => {
      const { status, headers } = await ask(key, { ratelimit })
      return [status, headers.get('ratelimit-policy'), /r=\d+/.exec(headers.get('ratelimit') ?? '')?.[0]]
    }
    expect(await leftOf('tokens, of all')).toEqual([200, '"tokens, of all";q=10;w=3600', 'r=9'])
    expect(await leftOf('tokens, of all,cost=6')).toEqual([200, '"tokens, of all";q=10;w=3600', 'r=3'])
    expect(await leftOf('tokens, of all,cost=6')).toEqual([429, '"tokens, of all";q=10;w=3600', 'r=3'])
    expect(await leftOf('burst,limit=1,duration=1000')).toEqual([200, '"burst";q=1;w=1', 'r=0'])
    expect(await leftOf('tokens, of all', 'burst,limit=1,duration=1000')).toEqual([
      429,
      '"burst";q=1;w=1',
      'r=0',
    ])
    expect((await ask(key, { ratelimit: 'of no such name' })).status).toBe(400)
  })
})

/** A misspelt parameter that leaves a path open is worse than a path that does not work. */
test('a mistake in the query is refused for every key', async () => {
  const { key } = await keyWith()
  const messageOf = async (query: Record<string, unknown>) => {
    const { status, body } = await ask(key, query)
    return [status, body.error?.message]
  }
  expect(await messageOf({ permission: 'admin' })).toEqual([400, 'permission: Unrecognized parameter'])
  expect(await messageOf({ permissions: '' })).toEqual([
    400,
    'permissions: String must contain at least 1 character(s)',
  ])
  expect(await messageOf({ permissions: 'a b' })).toEqual([400, 'permissions: Invalid permission query'])
  expect((await messageOf({ apiId: '' }))[0]).toBe(400)
  expect(await messageOf({ apiId: [apiId, 'api_other'] })).toEqual([
    400,
    'apiId: Expected string, received array',
  ])
  const whole = (field: string, from: number, to: number) =>
    `ratelimit.0: ${field} must be a whole number from ${from} to ${to}`
  const limits: [string, string][] = [
    ['a,cost=-1', whole('cost', 0, Number.MAX_SAFE_INTEGER)],
    ['a,limit=x,duration=1', whole('limit', 0, Number.MAX_SAFE_INTEGER)],
    ['a,cost=9007199254740993', whole('cost', 0, Number.MAX_SAFE_INTEGER)],
    ['a,limit=1,duration=0', whole('duration', 1, 3_155_760_000_000)],
    ['a,limit=1', 'ratelimit.0: limit and duration must be given together'],
    ['a,cost=1,cost=2', 'ratelimit.0: cost is given twice'],
    [',cost=1', 'ratelimit.0: the name must have 1 to 256 characters'],
    ['a'.repeat(257), 'ratelimit.0: the name must have 1 to 256 characters'],
  ]
  for (const [ratelimit, message] of limits) expect(await messageOf({ ratelimit })).toEqual([400, message])
})

/** The service behind the proxy trusts the header: nobody may change it or add a line. */
test('an external id with any characters arrives unchanged', async () => {
  for (const externalId of [
    'user_123',
    'org:1/a@b.c',
    'größe 100%',
    'a\nX-Admin: yes\r\n',
    '日本',
    '😀,"x"',
  ]) {
    const { key } = await keyWith({ externalId })
    const { headers } = await ask(key)
    const sent = headers.get('x-tollgate-external-id') ?? ''
    expect(sent).toMatch(/^[\x21-\x7e]+$/)
    expect(decodeURIComponent(sent)).toBe(externalId)
    if (/^[\w:/@.]+$/.test(externalId)) expect(sent).toBe(externalId)
  }
})

test('the allow list is checked against the client’s address as the proxy reports it', async () => {
  const listed = await makeApi(workspace, { ipWhitelist: ['203.0.113.0/24'] })
  const { key } = await keyWith({}, listed)
  const from = (address: string) => ask(key, { apiId: listed }, { 'x-forwarded-for': address })
  expect((await from('203.0.113.7')).status).toBe(200)
  expect((await from('198.51.100.7')).status).toBe(403)
  expect((await from('203.0.113.7, 198.51.100.7')).status).toBe(403)
  expect((await ask(key, { apiId: listed })).status).toBe(403)
})

test('each answer about a key counts as a verification', async () => {
  const { keyId, key } = await keyWith({ ratelimit: { limit: 1, duration: 60_000 } })
  for (let call = 0; call < 3; call++) await ask(key)
  await server.server.deps.usage.flush()
  const { verifications } = await workspace.get('keys.getVerifications', { keyId })
  expect(verifications).toHaveLength(1)
  expect(verifications[0]).toMatchObject({ success: 1, rateLimited: 2 })
})
