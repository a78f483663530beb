import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { META_CHARACTERS_MAX } from '../../../src/lib/meta.ts'
import { makeApi } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

/** Of so many characters as JSON. */
const metaOf = (characters: number) => ({ a: 'x'.repeat(characters - '{"a":""}'.length) })
const longest = metaOf(META_CHARACTERS_MAX)
const tooLong = metaOf(META_CHARACTERS_MAX + 1)
const refusal = (path: string) => ({
  status: 400,
  body: {
    error: {
      code: 'BAD_REQUEST',
      message: `${path}: must be at most ${META_CHARACTERS_MAX} characters of JSON, has ${META_CHARACTERS_MAX + 1}`,
    },
  },
})

/** Findings of November 2026, 3.4: each verification answered with 950 kB, and 70 such keys filled the cache. */
test('meta of a key has the same bound as meta of an identity, in every method that takes it', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const post = (method: string, body: Json) => server.post(method, body, workspace.rootKey)
  const made = await post('keys.createKey', { apiId, meta: longest })
  expect(made.status).toBe(200)
  const { key, keyId } = made.body
  expect(await post('keys.createKey', { apiId, meta: tooLong })).toMatchObject(refusal('meta'))
  expect((await post('keys.updateKey', { keyId, meta: longest })).status).toBe(200)
  expect(await post('keys.updateKey', { keyId, meta: tooLong })).toMatchObject(refusal('meta'))
  const imported = (meta: Json) => [{ apiId, plaintext: crypto.randomUUID(), meta }]
  expect((await post('migrations.createKeys', imported(longest))).status).toBe(200)
  expect(await post('migrations.createKeys', imported(tooLong))).toMatchObject(refusal('0.meta'))
  const queued = (meta: Json) => ({ migrationId: 'm', apiId, keys: imported(meta) })
  expect(await post('migrations.enqueueKeys', queued(tooLong))).toMatchObject(refusal('keys.0.meta'))
  expect(await post('identities.createIdentity', { externalId: 'user', meta: tooLong })).toMatchObject(
    refusal('meta'),
  )
  expect((await server.post('keys.verifyKey', { key })).body.meta).toEqual(longest)
})

test('a key with meta stored before the bound existed keeps working, and its other fields can be changed', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { key, keyId } = await workspace.post('keys.createKey', { apiId })
  const stored = JSON.stringify(metaOf(300_000))
  await server.server.deps.sql`update keys set meta = ${stored} where id = ${keyId}`
  server.server.deps.keys.forget(keyId)
  for (let i = 0; i < 2; i++) {
    const { body } = await server.post('keys.verifyKey', { key })
    expect([body.valid, JSON.stringify(body.meta).length]).toEqual([true, 300_000])
  }
  await workspace.post('keys.updateKey', { keyId, name: 'renamed' })
  expect((await workspace.get('keys.getKey', { keyId })).name).toBe('renamed')
})

/** A page of 100 keys with the longest meta held the thread, and everybody, for 0.1 to 0.2 s. */
test('a page of keys with long meta ends early with a cursor, and no key is missing or repeated', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const made: string[] = []
  for (let i = 0; i < 20; i++)
    made.push(
      (await workspace.post('keys.createKey', { apiId, ...(i % 5 !== 0 && { meta: longest }) })).keyId,
    )
  const pages: number[] = []
  const listed: string[] = []
  let cursor: string | undefined
  do {
    const page = await workspace.get('apis.listKeys', {
      apiId,
      limit: 18,
      ...(cursor !== undefined && { cursor }),
    })
    pages.push(page.keys.length)
    listed.push(...page.keys.map(({ id }: Json) => id))
    cursor = page.cursor
    expect(page.total).toBe(20)
  } while (cursor !== undefined)
  expect(listed).toEqual(made.toSorted())
  // Keys without meta, in the order of their ids, may be left for a third.
  expect(pages.length).toBeWithin(2, 4)
  expect(pages[0]).toBeWithin(8, 14)
})

/** Each is a row and an audit event: 40 000 of a call held the thread for half a second. */
test('the number of roles and permissions in an import call is bounded, and within it all are written', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const permissions = Array.from({ length: 300 }, (_, i) => `p.${i}`)
  const { keyId } = await workspace.post('keys.createKey', { apiId })
  await workspace.post('keys.addPermissions', {
    keyId,
    permissions: permissions.map((slug) => ({ slug, create: true })),
  })
  const keysOf = (count: number) =>
    Array.from({ length: count }, () => ({ apiId, plaintext: crypto.randomUUID(), permissions }))
  for (const [method, body] of [
    ['migrations.createKeys', keysOf(34)],
    ['migrations.enqueueKeys', { migrationId: 'm', apiId, keys: keysOf(34) }],
  ] as const)
    expect(await server.post(method, body, workspace.rootKey)).toMatchObject({
      status: 400,
      body: {
        error: { message: expect.stringContaining('10000 roles and permissions in all, these have 10200') },
      },
    })
  const { keyIds } = await workspace.post('migrations.createKeys', keysOf(10))
  const rows = await server.server.deps.sql<{ links: number; events: number }[]>`
    select (select count(*)::integer from keys_permissions where key_id = any(${keyIds}::text[])) as links,
           (select count(*)::integer from audit_events where workspace_id = ${workspace.workspaceId}
               and event = 'authorization.connect_permission_and_key') as events`
  expect(rows[0]).toEqual({ links: 3000, events: 3300 })
})

/** Every one of them is written to the audit log. */
test('resources of a limit call are bounded, and a call over the bound charges nothing', async () => {
  const workspace = await server.workspace()
  const limit = (resources: Json) =>
    server.post(
      'ratelimits.limit',
      { identifier: 'user', limit: 5, duration: 3_600_000, resources },
      workspace.rootKey,
    )
  const of = (meta: Json) => [{ type: 'document', id: '1', meta }]
  expect(await limit(of(longest))).toMatchObject({ status: 400, body: { error: { code: 'BAD_REQUEST' } } })
  expect((await limit(of({ a: 1 }))).body.remaining).toBe(4)
})

test('a page of long audit events ends early with a cursor, and no event is missing or repeated', async () => {
  const workspace = await server.workspace()
  const resources = (at: number) => [{ type: 'document', id: `${at}`, meta: metaOf(60_000) }]
  for (let at = 0; at < 20; at++)
    await workspace.post('ratelimits.limit', {
      identifier: 'user',
      limit: 50,
      duration: 3_600_000,
      resources: resources(at),
    })
  const ids: string[] = []
  const pages: number[] = []
  let cursor: string | undefined
  do {
    const page = await workspace.get('audit.listEvents', {
      event: 'ratelimit.success',
      ...(cursor !== undefined && { cursor }),
    })
    pages.push(page.events.length)
    ids.push(...page.events.map(({ resources }: Json) => resources[1].id))
    cursor = page.cursor
  } while (cursor !== undefined)
  expect(ids).toEqual(Array.from({ length: 20 }, (_, at) => `${at}`))
  expect(pages).toEqual([9, 9, 2])
})

test('a long user agent is cut in the audit log', async () => {
  const workspace = await server.workspace()
  const agent = `agent ${'x'.repeat(3000)}`
  const answer = await server.post('apis.createApi', { name: 'name' }, workspace.rootKey, {
    'user-agent': agent,
  })
  expect(answer.status).toBe(200)
  const { events } = await workspace.get('audit.listEvents', { event: 'api.create' })
  expect(events[0].userAgent).toBe(agent.slice(0, 256))
})
