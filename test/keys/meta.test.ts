import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { META_CHARACTERS_MAX } from '../../src/lib/meta.ts'
import { makeApi } from '../support/fixtures.ts'
import { type Json, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

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
      message: `${path}: must be at most ${META_CHARACTERS_MAX} characters as JSON, is ${META_CHARACTERS_MAX + 1}`,
    },
  },
})

/** Findings of November 2026, 3.4: each verification answered with 950 kB, and 70 such keys filled the cache. */
test('meta of a key is bounded as that of an identity, wherever it is given', async () => {
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

test('a key whose meta was stored before there was a bound goes on working, and can be changed otherwise', async () => {
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

/** Every one of them is written to the audit log. */
test('what a limit call gives to audit is bounded, and one that gives more charges nothing', async () => {
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
