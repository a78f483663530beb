import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { OPERATOR_KEY, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time; tests move it forward. */
let now = Date.parse('2026-06-01T12:00:00.000Z')
beforeAll(async () => {
  server = await startTestServer({ clock: () => now, env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.1' } })
})
afterAll(() => server[Symbol.asyncDispose]())

type Fixture = TestWorkspace & { apiId: string }

async function fixture(): Promise<Fixture> {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'fixture' })
  return { ...workspace, apiId }
}

const verify = async (key: string, body: object = {}) => {
  const { status, body: reply, headers } = await server.post('keys.verifyKey', { key, ...body })
  return { ...reply, status, triggered: headers.get('unkey-ratelimit-triggered') }
}

const makeKey = async (
  { post, apiId }: Fixture,
  fields: object = {},
): Promise<{ key: string; keyId: string }> => post('keys.createKey', { apiId, ...fields })

describe('the answer', () => {
  test('a key is valid with and without its API, and no root key is needed', async () => {
    const ws = await fixture()
    const { key, keyId } = await makeKey(ws)
    for (const body of [{}, { apiId: ws.apiId }, { apiId: '' }])
      expect(await verify(key, body)).toEqual({
        status: 200,
        triggered: null,
        valid: true,
        code: 'VALID',
        requestId: expect.stringMatching(/^req_/),
        keyId,
        enabled: true,
        permissions: [],
        roles: [],
      })
  })

  test('an unknown key gets exactly valid, code and requestId', async () => {
    const { body } = await server.post('keys.verifyKey', { key: 'nobody has this' })
    expect(body).toEqual({ valid: false, code: 'NOT_FOUND', requestId: expect.any(String) })
  })

  test('all fields of the key are returned for every outcome', async () => {
    const ws = await fixture()
    const set = {
      name: 'mine',
      meta: { plan: 'pro' },
      environment: 'test',
      expires: now - 1000,
      ownerId: 'user_1',
    }
    const { key } = await makeKey(ws, set)
    expect(await verify(key)).toMatchObject({
      ...set,
      valid: false,
      code: 'EXPIRED',
      identity: { id: expect.stringMatching(/^id_/), externalId: 'user_1', meta: {} },
    })
  })

  test('a body without a key is a 400', async () => {
    expect((await server.post('keys.verifyKey', {})).body.error.message).toBe('key: Required')
  })

  test('the Authorization header is neither needed nor read', async () => {
    const { key } = await makeKey(await fixture())
    expect((await server.post('keys.verifyKey', { key }, 'public')).body.valid).toBe(true)
  })
})

describe('the order of checks', () => {
  test('a disabled key is DISABLED even for another API', async () => {
    const ws = await fixture()
    const { key } = await makeKey(ws, { enabled: false, meta: { a: 1 } })
    expect(await verify(key)).toMatchObject({
      valid: false,
      code: 'DISABLED',
      enabled: false,
      meta: { a: 1 },
    })
    expect(await verify(key, { apiId: 'api_other' })).toMatchObject({ code: 'DISABLED' })
    expect(await verify(key, { authorization: { permissions: { and: [] } } })).toMatchObject({ status: 200 })
  })

  test('a key of another API is FORBIDDEN even when expired', async () => {
    const { key } = await makeKey(await fixture(), { expires: now - 1 })
    expect(await verify(key, { apiId: 'api_other' })).toMatchObject({ code: 'FORBIDDEN' })
  })

  test('a key is valid up to the millisecond of its expiry and refused afterwards', async () => {
    const { key } = await makeKey(await fixture(), { expires: now + 2000 })
    expect((await verify(key)).code).toBe('VALID')
    now += 2000
    expect((await verify(key)).code).toBe('VALID')
    now += 1
    expect((await verify(key)).code).toBe('EXPIRED')
  })

  test('a malformed permission query is a 400, an unmet one INSUFFICIENT_PERMISSIONS, an empty one is no check', async () => {
    const { key } = await makeKey(await fixture())
    const ask = (permissions: unknown) => verify(key, { authorization: { permissions } })
    for (const query of [{ and: ['p1', {}] }, 5, [], { or: [] }])
      expect(await ask(query)).toMatchObject({ status: 400, error: { code: 'BAD_REQUEST' } })
    expect(await ask('p1')).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' })
    for (const none of [null, '', 0, false, { and: [''] }]) expect((await ask(none)).valid).toBe(true)
    // An empty list counts as absent where there is another (finding 9.2).
    expect(await ask({ or: ['p1'], and: [] })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' })
  })

  test('a call refused by a limit spends no credits; a call refused for credits has charged the limit', async () => {
    const ws = await fixture()
    const { key } = await makeKey(ws, { remaining: 2, ratelimit: { limit: 3, duration: 60_000 } })
    expect(await verify(key)).toMatchObject({
      code: 'VALID',
      remaining: 1,
      ratelimit: { limit: 3, remaining: 2 },
    })
    expect(await verify(key)).toMatchObject({ code: 'VALID', remaining: 0, ratelimit: { remaining: 1 } })
    expect(await verify(key)).toMatchObject({
      code: 'USAGE_EXCEEDED',
      remaining: 0,
      ratelimit: { remaining: 0 },
    })
    const limited = await verify(key)
    expect(limited).toMatchObject({
      code: 'RATE_LIMITED',
      triggered: 'default',
      ratelimit: { limit: 3, remaining: 0 },
    })
    expect(limited).not.toHaveProperty('remaining')
  })
})

describe('credits', () => {
  test('a hundred credits count down to 0, and the next call is refused', async () => {
    const { key } = await makeKey(await fixture(), { remaining: 100 })
    for (let left = 99; left >= 0; left--)
      expect(await verify(key)).toMatchObject({ valid: true, remaining: left })
    expect(await verify(key)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', remaining: 0 })
  })

  /** Money, in many products: never one more than were bought, however many ask at once. */
  test('of two hundred concurrent calls with a hundred credits exactly a hundred are valid', async () => {
    const { key } = await makeKey(await fixture(), { remaining: 100 })
    const answers = await Promise.all(Array.from({ length: 200 }, () => verify(key)))
    expect(answers.filter(({ valid }) => valid)).toHaveLength(100)
    expect(new Set(answers.filter(({ valid }) => valid).map(({ remaining }) => remaining)).size).toBe(100)
  })

  test('a cost is taken as a whole or not at all, and cost 0 takes nothing', async () => {
    const { key } = await makeKey(await fixture(), { remaining: 10 })
    const spend = (cost: number) => verify(key, { remaining: { cost } })
    expect(await spend(2)).toMatchObject({ valid: true, remaining: 8 })
    expect(await spend(9)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', remaining: 8 })
    expect(await spend(8)).toMatchObject({ valid: true, remaining: 0 })
    expect(await spend(0)).toMatchObject({ valid: true, remaining: 0 })
    expect(await spend(1)).toMatchObject({ valid: false, remaining: 0 })
    expect((await spend(-1)).status).toBe(400)
  })

  test('a key without credits to count has no remaining, whatever the cost', async () => {
    const { key } = await makeKey(await fixture())
    expect(await verify(key, { remaining: { cost: 1000 } })).not.toHaveProperty('remaining')
  })

  test('a daily refill adds its amount at UTC midnight, once, however many days passed', async () => {
    const { key } = await makeKey(await fixture(), { remaining: 5, refill: { interval: 'daily', amount: 3 } })
    expect((await verify(key)).remaining).toBe(4)
    now = Date.parse('2026-06-04T00:00:00.000Z')
    const answers = await Promise.all(Array.from({ length: 3 }, () => verify(key)))
    expect(answers.map(({ remaining }) => remaining).toSorted()).toEqual([4, 5, 6])
    expect((await verify(key)).remaining).toBe(3)
    now += 86_400_000
    expect((await verify(key)).remaining).toBe(5)
  })

  test('a monthly refill comes on its day, in a shorter month on the last day', async () => {
    now = Date.parse('2026-06-05T00:00:00.000Z')
    const { key } = await makeKey(await fixture(), {
      remaining: 5,
      refill: { interval: 'monthly', amount: 10, refillDay: 31 },
    })
    now = Date.parse('2026-06-29T23:59:59.999Z')
    expect((await verify(key)).remaining).toBe(4)
    now = Date.parse('2026-06-30T00:00:00.000Z')
    expect((await verify(key)).remaining).toBe(13)
    expect((await verify(key)).remaining).toBe(12)
  })
})

/** Whoever verifies chooses the name, and it stands in a header: it must stay there, and must not end the answer. */
test('a response header names the limit that refused, whatever its name is', async () => {
  const { key } = await makeKey(await fixture())
  for (const [name, sent] of [
    ['requests a day, 100 %', 'requests a day, 100 %'],
    ['日本 100%', '%E6%97%A5%E6%9C%AC 100%25'],
    ['x\r\nX-Injected: 1', 'x%0D%0AX-Injected: 1'],
  ] as const) {
    const ratelimits = [{ name, limit: 0, duration: 1000 }]
    const answer = await server.post('keys.verifyKey', { key, ratelimits })
    expect(answer.body.code).toBe('RATE_LIMITED')
    expect(answer.headers.get('unkey-ratelimit-triggered')).toBe(sent)
    expect(answer.headers.has('x-injected')).toBe(false)
  }
})

describe('rate limits', () => {
  const adHoc = (name: string, limit: number, duration: number, cost = 1) => ({ name, limit, duration, cost })

  test('limits given with limit and duration need not be configured', async () => {
    const { key } = await makeKey(await fixture())
    const ratelimits = [adHoc('10/10s', 10, 10_000, 4), adHoc('1/1min', 1, 60_000)]
    expect(await verify(key, { ratelimits })).toMatchObject({
      code: 'VALID',
      ratelimit: { limit: 10, remaining: 6 },
    })
    ratelimits[1] = adHoc('1/1min', 1, 60_000, 2)
    expect(await verify(key, { ratelimits })).toMatchObject({ code: 'RATE_LIMITED', triggered: '1/1min' })
  })

  test('a requested limit that nobody configured is a 400 that names it, the key and the identity', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'user_1',
      ratelimits: [{ name: 'other', limit: 1, duration: 1000 }],
    })
    const { key, keyId } = await makeKey(ws, { externalId: 'user_1' })
    const asked = [adHoc('given', 10, 10_000), { name: 'missing' }]
    const { status, error } = await verify(key, { ratelimits: asked })
    expect([status, error.code]).toEqual([400, 'BAD_REQUEST'])
    for (const part of ['missing', keyId, 'user_1']) expect(error.message).toContain(part)
    const alone = await makeKey(ws, { ratelimit: { limit: 1, duration: 1000 } })
    expect((await verify(alone.key, { ratelimits: asked })).error.message).toContain('no identity')
    // Half given is not given.
    expect((await verify(alone.key, { ratelimits: [{ name: 'missing', limit: 5 }] })).status).toBe(400)
  })

  test('a limit created with a key counts once on every verification, requested or not', async () => {
    const { key } = await makeKey(await fixture(), { ratelimit: { limit: 10, duration: 60_000 } })
    expect(await verify(key)).toMatchObject({ ratelimit: { limit: 10, remaining: 9 } })
    expect(await verify(key, { ratelimits: [{ name: 'default' }] })).toMatchObject({
      ratelimit: { remaining: 8 },
    })
    expect(await verify(key, { ratelimits: [{ name: 'default', cost: 3 }] })).toMatchObject({
      ratelimit: { limit: 10, remaining: 5 },
    })
    expect(await verify(key, { ratelimit: { cost: 4 } })).toMatchObject({ ratelimit: { remaining: 1 } })
    expect(await verify(key, { ratelimit: { cost: 4 } })).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimit: { remaining: 1 },
    })
  })

  test('the old field for a cost is ignored on a key without the limit `default`', async () => {
    const { key } = await makeKey(await fixture())
    expect(await verify(key, { ratelimit: { cost: 4 } })).toMatchObject({ code: 'VALID' })
  })

  test('limits of an identity count when requested, and for all its keys together', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'team',
      ratelimits: [{ name: 'tokens', limit: 10, duration: 600_000 }],
    })
    const [one, two] = [await makeKey(ws, { externalId: 'team' }), await makeKey(ws, { externalId: 'team' })]
    expect(await verify(one.key)).not.toHaveProperty('ratelimit')
    const spend = (key: string, cost: number) => verify(key, { ratelimits: [{ name: 'tokens', cost }] })
    expect(await spend(one.key, 4)).toMatchObject({ code: 'VALID', ratelimit: { limit: 10, remaining: 6 } })
    expect(await spend(two.key, 6)).toMatchObject({ code: 'VALID', ratelimit: { remaining: 0 } })
    expect(await spend(one.key, 1)).toMatchObject({ code: 'RATE_LIMITED', triggered: 'tokens' })
  })

  test('limits of a key count for that key alone, and beat the identity’s limit of the same name', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'team',
      ratelimits: [{ name: 'default', limit: 100, duration: 600_000 }],
    })
    const limited = { externalId: 'team', ratelimit: { limit: 1, duration: 20_000 } }
    const [one, two] = [await makeKey(ws, limited), await makeKey(ws, limited)]
    expect(await verify(one.key)).toMatchObject({ code: 'VALID', ratelimit: { limit: 1 } })
    expect(await verify(one.key)).toMatchObject({ code: 'RATE_LIMITED', triggered: 'default' })
    expect(await verify(two.key)).toMatchObject({ code: 'VALID' })
  })

  /** Documented: a denial by one limit does not undo what the others of the call took. */
  test('of several limits the first that refuses is reported, and the others are charged', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'team',
      ratelimits: [
        { name: 'limit1', limit: 10, duration: 600_000 },
        { name: 'limit2', limit: 2, duration: 600_000 },
      ],
    })
    const { key } = await makeKey(ws, { externalId: 'team' })
    const both = () => verify(key, { ratelimits: [{ name: 'limit1' }, { name: 'limit2' }] })
    expect([(await both()).code, (await both()).code]).toEqual(['VALID', 'VALID'])
    expect(await both()).toMatchObject({
      code: 'RATE_LIMITED',
      triggered: 'limit2',
      ratelimit: { limit: 2, remaining: 0 },
    })
    const looked = await verify(key, { ratelimits: [{ name: 'limit1', cost: 0 }] })
    expect(looked).toMatchObject({ triggered: null, ratelimit: { remaining: 7 } })
  })

  /** v1 has no call for limits of a key beside `default`; such keys were made in its dashboard. */
  const limitOfKey = (keyId: string, name: string, limit: number, durationMs: number) =>
    server.server.deps.sql`
      insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, created_at)
      select ${`rl_${keyId}_${name}`}, workspace_id, ${name}, id, ${limit}, ${durationMs}, 0 from keys where id = ${keyId}`

  describe('of a key and its identity requested together', () => {
    const cases: [string, [number, number], [number, number], (string | null)[]][] = [
      ['none denies while all have room', [4, 10_000], [10, 600_000], [null, null, null]],
      ['the key’s denies first', [1, 10_000], [10, 600_000], [null, 'limit1', 'limit1']],
      ['the identity’s second denies', [4, 10_000], [2, 600_000], [null, null, 'limit2']],
    ]
    for (const [what, [ofKey, keyMs], [second, secondMs], expected] of cases)
      test(what, async () => {
        const ws = await fixture()
        await ws.post('identities.createIdentity', {
          externalId: 'team',
          ratelimits: [
            { name: 'limit1', limit: 10, duration: 600_000 },
            { name: 'limit2', limit: second, duration: secondMs },
          ],
        })
        const { key, keyId } = await makeKey(ws, { externalId: 'team' })
        await limitOfKey(keyId, 'limit1', ofKey, keyMs)
        const ratelimits = [{ name: 'limit1' }, { name: 'limit2' }]
        for (const triggered of expected)
          expect(await verify(key, { ratelimits })).toMatchObject({
            code: triggered === null ? 'VALID' : 'RATE_LIMITED',
            triggered,
          })
      })
  })

  test('a thousand calls with twenty keys of one identity pass exactly its limit of a hundred', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'crowd',
      ratelimits: [{ name: 'shared', limit: 100, duration: 600_000 }],
    })
    const keys = await Promise.all(Array.from({ length: 20 }, () => makeKey(ws, { externalId: 'crowd' })))
    const answers = []
    for (let call = 0; call < 1000; call += 50)
      answers.push(
        ...(await Promise.all(
          Array.from({ length: 50 }, (_, i) =>
            verify(keys[(call * 7 + i * 3) % 20]?.key ?? '', { ratelimits: [{ name: 'shared' }] }),
          ),
        )),
      )
    expect(answers.filter(({ valid }) => valid)).toHaveLength(100)
  })

  test('tokens used by one key of an identity are used for its other keys', async () => {
    const ws = await fixture()
    await ws.post('identities.createIdentity', {
      externalId: 'pair',
      ratelimits: [{ name: 'shared', limit: 10, duration: 300_000 }],
    })
    now = Math.ceil(now / 300_000) * 300_000
    const [one, two] = [await makeKey(ws, { externalId: 'pair' }), await makeKey(ws, { externalId: 'pair' })]
    const ratelimits = [{ name: 'shared' }]
    for (let i = 0; i < 20; i++) expect((await verify(one.key, { ratelimits })).valid).toBe(i < 10)
    for (let i = 0; i < 10; i++) {
      now += 1000
      expect((await verify(two.key, { ratelimits })).code).toBe('RATE_LIMITED')
    }
  })

  test('a limit of 0 always refuses, and durations begin at 1 ms', async () => {
    const { key } = await makeKey(await fixture())
    const ask = (entry: object) =>
      verify(key, { ratelimits: [{ name: 'x', limit: 1, duration: 1, ...entry }] })
    expect((await ask({ limit: 0 })).code).toBe('RATE_LIMITED')
    expect((await ask({})).code).toBe('VALID')
    for (const bad of [{ limit: -1 }, { duration: 0 }, { cost: -1 }, { name: '' }])
      expect((await ask(bad)).status).toBe(400)
  })
})

describe('permissions', () => {
  test('roles and permissions are returned, direct ones and those of roles, each once', async () => {
    const ws = await fixture()
    const permission = async (slug: string) =>
      (await ws.post('permissions.createPermission', { name: slug })).permissionId
    const [p1, p2, p3] = [await permission('p.1'), await permission('p.2'), await permission('p.3')]
    for (const [name, permissions] of [
      ['admin', [p1, p2]],
      ['reader', [p2, p3]],
      ['empty', []],
    ] as const) {
      const { roleId } = await ws.post('permissions.createRole', { name })
      await ws.post('permissions.setRolePermissions', {
        roleId,
        permissions: permissions.map((id) => ({ id })),
      })
    }
    const { key } = await makeKey(ws, { roles: ['admin', 'reader', 'admin'], permissions: ['p.1'] })
    const query = { and: ['p.1', { or: ['p.9', { and: ['p.2', 'p.3'] }] }] }
    expect(await verify(key, { authorization: { permissions: query } })).toMatchObject({
      valid: true,
      permissions: ['p.1', 'p.2', 'p.3'],
      roles: ['admin', 'reader'],
    })
    const bare = await makeKey(ws, { roles: ['empty'] })
    expect(await verify(bare.key, { authorization: { permissions: { and: ['p.1', 'p.2'] } } })).toMatchObject(
      {
        valid: false,
        code: 'INSUFFICIENT_PERMISSIONS',
      },
    )
    expect((await verify(bare.key)).valid).toBe(true)
  })
})

test('ten permissions spread over eight overlapping roles are all held, and listed once each', async () => {
  const ws = await fixture()
  const slugs = Array.from({ length: 10 }, (_, i) => `p${i + 1}.do`)
  for (const name of slugs) await ws.post('permissions.createPermission', { name })
  const roles = Array.from({ length: 8 }, (_, i) => `role ${i}`)
  for (const [i, name] of roles.entries()) {
    const { roleId } = await ws.post('permissions.createRole', { name })
    const permissions = [0, 1, 2, 3].map((step) => ({ slug: slugs[(i + step) % 10] }))
    await ws.post('permissions.setRolePermissions', { roleId, permissions })
  }
  const { key } = await makeKey(ws, { roles, permissions: [slugs[0]] })
  const answer = await verify(key, { authorization: { permissions: { and: slugs } } })
  expect(answer.code).toBe('VALID')
  expect(answer.permissions.toSorted()).toEqual(slugs.toSorted())
})

test('a key is not found when its keyspace or API is deleted, or its API is gone', async () => {
  const { sql } = server.server.deps
  const removals: ((apiId: string) => PromiseLike<unknown>)[] = [
    (apiId) =>
      sql`update keyspaces set deleted_at = 1 where id = (select keyspace_id from apis where id = ${apiId})`,
    (apiId) => sql`update apis set deleted_at = 1 where id = ${apiId}`,
    (apiId) => sql`delete from apis where id = ${apiId}`,
  ]
  for (const remove of removals) {
    const ws = await fixture()
    const { key } = await makeKey(ws)
    await remove(ws.apiId)
    expect(await verify(key)).toMatchObject({ status: 200, valid: false, code: 'NOT_FOUND' })
  }
})

describe('the next verification sees a write, cached or not', () => {
  test('that imports or creates a key that was unknown', async () => {
    const ws = await fixture()
    expect((await verify('imported_later')).code).toBe('NOT_FOUND')
    await ws.post('migrations.createKeys', [{ apiId: ws.apiId, plaintext: 'imported_later' }])
    expect((await verify('imported_later')).code).toBe('VALID')
  })

  test('that deletes the key, its API, or all keys of the API', async () => {
    const ws = await fixture()
    const deletions: [string, (keyId: string) => object][] = [
      ['keys.deleteKey', (keyId) => ({ keyId })],
      ['keys.deleteKey', (keyId) => ({ keyId, permanent: true })],
      ['apis.deleteKeys', () => ({ apiId: ws.apiId })],
      ['apis.deleteApi', () => ({ apiId: ws.apiId })],
    ]
    for (const [method, body] of deletions) {
      const { key, keyId } = await makeKey(ws)
      expect((await verify(key)).code).toBe('VALID')
      await ws.post(method, body(keyId))
      expect(await verify(key)).toMatchObject({ status: 200, valid: false, code: 'NOT_FOUND' })
    }
  })

  test('that disables, enables or expires the key, or adds credits', async () => {
    const ws = await fixture()
    const { key, keyId } = await makeKey(ws, { remaining: 1 })
    const update = (change: object) => ws.post('keys.updateKey', { keyId, ...change })
    expect((await verify(key)).code).toBe('VALID')
    expect((await verify(key)).code).toBe('USAGE_EXCEEDED')
    await ws.post('keys.updateRemaining', { keyId, op: 'increment', value: 5 })
    expect(await verify(key)).toMatchObject({ code: 'VALID', remaining: 4 })
    await update({ enabled: false })
    expect((await verify(key)).code).toBe('DISABLED')
    await update({ enabled: true, expires: now - 1 })
    expect((await verify(key)).code).toBe('EXPIRED')
    await update({ expires: null, remaining: null })
    expect(await verify(key)).not.toHaveProperty('remaining')
  })

  test('that changes limits of the identity, or the identity itself', async () => {
    const ws = await fixture()
    const { identityId } = await ws.post('identities.createIdentity', {
      externalId: 'user_1',
      meta: { a: 1 },
    })
    const { key } = await makeKey(ws, { externalId: 'user_1' })
    expect((await verify(key)).identity).toEqual({ id: identityId, externalId: 'user_1', meta: { a: 1 } })
    const ratelimits = [{ name: 'new', limit: 1000, duration: 60_000 }]
    await ws.post('identities.updateIdentity', { identityId, meta: { b: 2 }, ratelimits })
    expect(await verify(key, { ratelimits: [{ name: 'new', cost: 200 }] })).toMatchObject({
      valid: true,
      identity: { meta: { b: 2 } },
      ratelimit: { limit: 1000, remaining: 800 },
    })
    await ws.post('identities.deleteIdentity', { identityId })
    const after = await verify(key)
    expect(after).not.toHaveProperty('identity')
    expect(after.ownerId).toBe('user_1') // what the key itself says stays
  })

  test('that removes or deletes permissions and roles', async () => {
    const ws = await fixture()
    const { permissionId } = await ws.post('permissions.createPermission', { name: 'may.do' })
    const { roleId } = await ws.post('permissions.createRole', { name: 'doer' })
    await ws.post('permissions.setRolePermissions', { roleId, permissions: [{ id: permissionId }] })
    const { key, keyId } = await makeKey(ws, { roles: ['doer'] })
    const may = async () => (await verify(key, { authorization: { permissions: 'may.do' } })).code
    expect(await may()).toBe('VALID')
    await ws.post('keys.removeRoles', { keyId, roles: [{ name: 'doer' }] })
    expect(await may()).toBe('INSUFFICIENT_PERMISSIONS')
    await ws.post('keys.addRoles', { keyId, roles: [{ id: roleId }] })
    expect(await may()).toBe('VALID')
    await ws.post('permissions.setRolePermissions', { roleId, permissions: [] })
    expect(await may()).toBe('INSUFFICIENT_PERMISSIONS')
    await ws.post('keys.addPermissions', { keyId, permissions: [{ id: permissionId }] })
    expect(await may()).toBe('VALID')
    await ws.post('permissions.deletePermission', { permissionId })
    expect(await may()).toBe('INSUFFICIENT_PERMISSIONS')
    await ws.post('permissions.deleteRole', { roleId })
    expect((await verify(key)).roles).toEqual([])
  })
})

describe('an allow list of addresses', () => {
  test('lets listed clients pass and refuses others, by the address that a trusted proxy reports', async () => {
    const ws = await fixture()
    await ws.post('apis.updateApi', { apiId: ws.apiId, ipWhitelist: ['100.100.100.100', '10.0.0.0/8'] })
    const { key } = await makeKey(ws)
    const from = async (address: string) =>
      (await server.post('keys.verifyKey', { key }, null, { 'true-client-ip': address })).body.code
    expect(await from('100.100.100.100')).toBe('VALID')
    expect(await from('::ffff:10.9.8.7')).toBe('VALID')
    expect(await from('200.200.200.200')).toBe('FORBIDDEN')
    expect((await verify(key)).code).toBe('FORBIDDEN') // the socket's own address is not listed
  })
})

test('a disabled workspace is an HTTP 403, not an outcome', async () => {
  const ws = await fixture()
  const { key } = await makeKey(ws)
  const set = { workspaceId: ws.workspaceId, enabled: false }
  await server.post('workspaces.updateWorkspace', set, OPERATOR_KEY)
  expect(await verify(key)).toMatchObject({
    status: 403,
    error: { code: 'FORBIDDEN', message: 'workspace is disabled', docs: `${server.url}/errors/FORBIDDEN` },
  })
})
