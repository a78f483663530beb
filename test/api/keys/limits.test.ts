import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { getApiWithKeys } from '../../../src/api/apis/get-api.ts'
import { listKeysWithLimits } from '../../../src/api/apis/list-keys.ts'
import { createKey } from '../../../src/api/keys/create-key.ts'
import { getKey } from '../../../src/api/keys/get-key.ts'
import type { KeyLimit } from '../../../src/api/keys/limits/store.ts'
import { updateKey } from '../../../src/api/keys/update-key.ts'
import { actorIn } from '../../support/actor.ts'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const limitOf = (name: string, fields: Partial<KeyLimit> = {}): KeyLimit => ({
  name,
  limit: 10,
  durationMs: 60_000,
  autoApply: false,
  ...fields,
})

const NEW_KEY = {
  prefix: null,
  byteLength: null,
  isRecoverable: false,
  name: null,
  externalId: null,
  meta: null,
  environment: null,
  enabled: true,
  expiresAt: null,
  remaining: null,
  refill: null,
  limits: [],
  roles: [],
  permissions: [],
  ensuredSlugs: [],
}

const RULES = {
  roles: { mayChange() {}, mayCreate() {} },
  permissions: { mayChange() {}, mayCreate() {} },
  refuseMissingDuration: () => expect.unreachable(),
  refuseUnknownLimit: () => expect.unreachable(),
  mayRefillUncounted() {},
}

async function start(limits: KeyLimit[], fields: Partial<typeof NEW_KEY> | { ensuredSlugs: string[] } = {}) {
  const { deps } = server.server
  const workspace = await server.workspace()
  const actor = actorIn(workspace)
  const api = await getApiWithKeys(deps, actor, await makeApi(workspace))
  const { id: keyId, text: key } = await createKey(deps, actor, api, { ...NEW_KEY, ...fields, limits })
  /** By name: ids of one second are in no order. */
  const read = async () =>
    (await getKey(deps, actor, keyId)).limits.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return {
    workspace,
    actor,
    api,
    keyId,
    read,
    names: async () => (await read()).map(({ name }) => name),
    replace: async (wanted: KeyLimit[]) => {
      const update = { limits: wanted, fieldNames: ['ratelimits'] }
      await updateKey(deps, actor, { id: keyId, apiId: api.id }, update, RULES)
    },
    verify: async (fields: object = {}) => (await server.post('keys.verifyKey', { key, ...fields })).body,
  }
}

test('a key has several limits, of which verifications count those that apply by themselves and those they name', async () => {
  const { read, verify } = await start([limitOf('always', { limit: 2, autoApply: true }), limitOf('heavy')])
  expect(await read()).toEqual([
    { ...limitOf('always', { limit: 2, autoApply: true }), id: expect.stringMatching(/^rl_/) },
    { ...limitOf('heavy'), id: expect.stringMatching(/^rl_/) },
  ])
  expect((await verify()).ratelimit).toMatchObject({ limit: 2, remaining: 1 })
  expect((await verify({ ratelimits: [{ name: 'heavy', cost: 11 }] })).code).toBe('RATE_LIMITED')
  expect((await verify()).code).toBe('RATE_LIMITED')
})

test('a replacement deletes what it leaves out, changes the rest in place, and the next verification knows', async () => {
  const { read, replace, verify } = await start([limitOf('a'), limitOf('b'), limitOf('default')])
  const before = Object.fromEntries((await read()).map(({ name, id }) => [name, id]))
  expect((await verify()).code).toBe('VALID')
  await replace([limitOf('c'), limitOf('b', { limit: 0, autoApply: true })])
  const after = Object.fromEntries((await read()).map(({ name, id }) => [name, id]))
  expect(after).toEqual({ b: before.b ?? '', c: expect.stringMatching(/^rl_/) })
  expect((await verify()).code).toBe('RATE_LIMITED')
  await replace([])
  expect(await read()).toEqual([])
  expect((await verify()).code).toBe('VALID')
})

test('v1 shows and changes the limit `default` only, and what it writes counts with every verification', async () => {
  const { workspace, keyId, read, replace } = await start([limitOf('heavy')])
  const shown = async () => (await workspace.get('keys.getKey', { keyId })).ratelimit
  expect(await shown()).toBeUndefined()
  await workspace.post('keys.updateKey', { keyId, ratelimit: { limit: 5, duration: 1000 } })
  expect(await shown()).toMatchObject({ limit: 5, duration: 1000 })
  expect(await read()).toMatchObject([
    { name: 'default', limit: 5, durationMs: 1000, autoApply: true },
    limitOf('heavy'),
  ])
  await replace([limitOf('heavy'), limitOf('default', { limit: 7, durationMs: 2000 })])
  expect(await shown()).toMatchObject({ limit: 7, duration: 2000 })
  await workspace.post('keys.updateKey', { keyId, ratelimit: { limit: 8 } })
  expect(await read()).toMatchObject([
    { name: 'default', limit: 8, durationMs: 2000, autoApply: true },
    limitOf('heavy'),
  ])
  await workspace.post('keys.updateKey', { keyId, ratelimit: null })
  expect(await read()).toMatchObject([limitOf('heavy')])
})

test('of replacements at once one is there as a whole', async () => {
  const { replace, names } = await start([limitOf('default')])
  const sets = Array.from({ length: 12 }, (_, set) => ['x', 'y', 'z'].map((name) => `${name} ${set % 4}`))
  await Promise.all(sets.map((set) => replace([...set, 'same'].map((name) => limitOf(name)))))
  const left = (await names()).filter((name) => name !== 'same').sort()
  expect(await names()).toHaveLength(4)
  expect(sets.map((set) => set.join())).toContain(left.join())
})

test('the audit log has the limits before and after a replacement', async () => {
  const { workspace, keyId, replace } = await start([limitOf('a')])
  await replace([limitOf('b', { limit: 3 })])
  const { events } = await workspace.get('audit.listEvents', { event: 'key.update' })
  const fields = { duration: 60_000, autoApply: false }
  expect(events.at(-1).resources.find(({ id }: { id: string }) => id === keyId)).toMatchObject({
    before: { ratelimits: [{ name: 'a', limit: 10, ...fields }] },
    after: { ratelimits: [{ name: 'b', limit: 3, ...fields }] },
  })
})

/** A page holds the limits of its keys: 100 keys with 50 limits, whose identity has 100, are megabytes. */
test('many limits make a page of keys shorter, but not one that does not show them', async () => {
  const many = Array.from({ length: 50 }, (_, index) => limitOf(`limit ${index}`))
  const { workspace, actor, api } = await start([])
  const { deps } = server.server
  for (let index = 0; index < 60; index++)
    await createKey(deps, actor, api, { ...NEW_KEY, limits: many, externalId: 'user_1' })
  const page = await listKeysWithLimits(deps, actor, api, null, { limit: 100, cursor: '' })
  expect(page.items.length).toBeGreaterThan(10)
  expect(page.items.length).toBeLessThan(50)
  const rest = await listKeysWithLimits(deps, actor, api, null, { limit: 100, cursor: page.cursor ?? '' })
  expect(rest.items.length + page.items.length).toBe(61)
  expect(rest.items.at(-1)?.limits).toHaveLength(50)
  expect((await workspace.get('apis.listKeys', { apiId: api.id })).keys).toHaveLength(61)
})

test('permissions that do not exist are created with a key, once, also by several keys at once', async () => {
  const { workspace, actor, api } = await start([])
  const { deps } = server.server
  const slugs = ['docs.read', 'docs.write']
  const keys = await Promise.all(
    Array.from({ length: 10 }, () => createKey(deps, actor, api, { ...NEW_KEY, ensuredSlugs: slugs })),
  )
  for (const { id } of keys) expect((await getKey(deps, actor, id)).permissions).toEqual(slugs)
  const all: { name: string; slug: string }[] = await workspace.get('permissions.listPermissions')
  expect(all.map(({ name }) => name).sort()).toEqual(slugs)
  const { events } = await workspace.get('audit.listEvents', { event: 'permission.create' })
  expect(events).toHaveLength(2)
})
