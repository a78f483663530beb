import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../../support/server.ts'
import { SLOW_MS } from '../../../support/timeout.ts'
import { callV2, commonCases, dataOf, refusalOf } from '../common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let mine: TestWorkspace
beforeAll(async () => {
  // Time stands still: no window ends between two verifications.
  server = await startTestServer({ clock: () => Date.parse('2026-06-01T12:00:00.000Z') })
  mine = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

type Limit = { id: string; name: string; limit: number; duration: number; autoApply: boolean }

const requests = { name: 'requests', limit: 10, duration: 60_000, autoApply: false }
const tokens = { name: 'tokens', limit: 1000, duration: 60_000, autoApply: true }
const named = (...names: string[]) => names.map((name) => ({ ...requests, name }))

const call = (name: string, body: unknown, rootKey: string | null = mine.rootKey) =>
  callV2(server, `identities.${name}`, body, rootKey)
let count = 0

/** An identity of `mine`, by its external id. */
async function start(fields: Json = {}) {
  const identity = `user_${++count}`
  const { identityId } = await dataOf(call('createIdentity', { externalId: identity, ...fields }))
  return {
    identity,
    identityId,
    update: (change: Json, rootKey = mine.rootKey) =>
      call('updateIdentity', { identity, ...change }, rootKey),
    read: () => dataOf(call('getIdentity', { identity })),
  }
}
const byName = (limits: Limit[] = []) => new Map(limits.map((limit) => [limit.name, limit]))

commonCases(async () => {
  const { identityId } = await start()
  return {
    server,
    name: 'identities.updateIdentity',
    rootKey: mine.rootKey,
    permissions: ['identity.*.update_identity'],
    body: () => ({ identity: identityId, meta: { plan: 'pro' } }),
  }
})

test('limits are added, changed in place and deleted in one call, and the rest stays', async () => {
  const { update, read } = await start({
    meta: { plan: 'pro' },
    ratelimits: named('kept', 'changed', 'gone'),
  })
  const before = byName((await read()).ratelimits)
  const change = [...named('kept', 'new'), { name: 'changed', limit: 5, duration: 1000, autoApply: true }]
  const updated = await dataOf(update({ ratelimits: change }))
  expect(updated.meta).toEqual({ plan: 'pro' })
  const after = byName(updated.ratelimits)
  expect([...after.keys()].toSorted()).toEqual(['changed', 'kept', 'new'])
  expect(after.get('kept')).toEqual(before.get('kept'))
  expect(after.get('changed')).toEqual({ id: before.get('changed')?.id ?? '', ...change[2] } as Limit) // the third of the list
  expect(after.get('new')?.id).toStartWith('rl_')
  expect(byName((await read()).ratelimits)).toEqual(after)
})

test('absent fields stay, an empty list removes all limits and an empty object all meta', async () => {
  const { update, read } = await start({ meta: { a: 1 }, ratelimits: [tokens] })
  expect(await dataOf(update({}))).toEqual(await read())
  const first = await dataOf(update({ meta: { b: { c: [1] } } }))
  expect(first).toMatchObject({ meta: { b: { c: [1] } }, ratelimits: [tokens] })
  expect(await dataOf(update({ ratelimits: [requests] }))).toMatchObject({
    meta: { b: { c: [1] } },
    ratelimits: [requests],
  })
  expect((await dataOf(update({ ratelimits: [] }))).ratelimits).toBeUndefined()
  expect((await dataOf(update({ meta: {} }))).meta).toBeUndefined()
  const both = await dataOf(update({ meta: { d: 1 }, ratelimits: [tokens] }))
  expect(both).toMatchObject({ meta: { d: 1 }, ratelimits: [tokens] })
  expect(await read()).toEqual(both)
})

test('null is no value, and unknown fields are refused', async () => {
  const { update } = await start()
  for (const change of [{ meta: null }, { ratelimits: null }, { identity: null }, { environment: 'x' }])
    expect((await update(change)).status).toBe(400)
})

test('two limits of one name are a 400 that names it, also for an unknown identity, and nothing changes', async () => {
  const { update, read } = await start({ ratelimits: [tokens] })
  const before = await read()
  const answer = await update({ meta: { a: 1 }, ratelimits: named('one', 'two', 'one') })
  expect(await refusalOf(answer)).toEqual([400, 'unkey/application/invalid_input'])
  expect(answer.body.error.detail).toContain('one')
  expect(await read()).toEqual(before)
  expect((await update({ identity: 'nobody', ratelimits: named('one', 'one') })).status).toBe(400)
  expect((await update({ identity: 'nobody', meta: { a: 'x'.repeat(70_000) } })).status).toBe(400)
})

test('an unknown and a foreign identity are not found, after the permission', async () => {
  const { identityId, update } = await start()
  const other = await server.workspace()
  for (const [identity, rootKey] of [
    ['nobody', mine.rootKey],
    [identityId, other.rootKey],
  ] as const)
    expect(await refusalOf(update({ identity, meta: {} }, rootKey))).toEqual([
      404,
      'unkey/data/identity_not_found',
    ])
  const rootKey = await mine.rootKeyWith('identity.*.read_identity', `identity.${identityId}.update_identity`)
  for (const identity of [identityId, 'nobody'])
    expect(await refusalOf(update({ identity, meta: {} }, rootKey))).toEqual([
      403,
      'unkey/authorization/insufficient_permissions',
    ])
})

/** The unique index would refuse a mixture, and locks taken in two orders would deadlock. */
test('concurrent updates with different sets end with one of the sets', async () => {
  const { update, read } = await start({ ratelimits: named('aaa', 'bbb') })
  const sets = [
    named('aaa', 'ccc', 'ddd').map((limit) => ({ ...limit, limit: 1 })),
    named('ddd', 'bbb', 'aaa').map((limit) => ({ ...limit, limit: 2 })),
    [],
    named('eee', 'ddd', 'ccc', 'bbb', 'aaa').map((limit) => ({ ...limit, limit: 4 })),
  ]
  const shapeOf = (limits: Omit<Limit, 'id'>[] = []) =>
    limits.map(({ name, limit }) => `${name} ${limit}`).toSorted()
  for (let round = 0; round < 5; round++) {
    const answers = await Promise.all([...sets, ...sets].map((ratelimits) => update({ ratelimits })))
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    for (const [index, { body }] of answers.entries())
      expect(shapeOf(body.data.ratelimits)).toEqual(shapeOf(sets[index % sets.length]))
    expect(sets.map(shapeOf)).toContainEqual(shapeOf((await read()).ratelimits))
  }
})

test('an update and a delete at the same moment leave no limit behind', async () => {
  const { identity, identityId, update } = await start()
  const [deleted, ...updated] = await Promise.all([
    call('deleteIdentity', { identity }),
    ...[1, 2, 3].map(() => update({ ratelimits: [tokens, requests] })),
  ])
  expect(deleted.status).toBe(200)
  for (const { status } of updated) expect([200, 404]).toContain(status)
  const rows = await server.server.deps.sql`select 1 from ratelimits where identity_id = ${identityId}`
  expect(rows).toHaveLength(0)
})

test('keys see new limits at the next verification', async () => {
  const { identity, update } = await start()
  const { apiId } = await mine.post('apis.createApi', { name: 'my api' })
  const { key } = await mine.post('keys.createKey', { apiId, externalId: identity })
  const verify = async () => (await mine.post('keys.verifyKey', { key })).code
  expect(await verify()).toBe('VALID')
  await dataOf(update({ ratelimits: [{ ...tokens, limit: 1 }] }))
  expect([await verify(), await verify()]).toEqual(['VALID', 'RATE_LIMITED'])
  await dataOf(update({ ratelimits: [{ ...tokens, limit: 3 }] }))
  expect([await verify(), await verify(), await verify()]).toEqual(['VALID', 'VALID', 'RATE_LIMITED'])
  await dataOf(update({ ratelimits: [{ ...tokens, autoApply: false }] }))
  expect(await verify()).toBe('VALID')
})

/** One store: what one API leaves out it also leaves alone. */
test('v1 and v2 change one identity together', async () => {
  const { identity, identityId, update, read } = await start({ ratelimits: [tokens] })
  const shared = [{ id: (await read()).ratelimits[0].id, ...tokens }]
  await mine.post('identities.updateIdentity', { identityId, meta: { from: 'v1' } })
  expect(await read()).toEqual({
    id: identityId,
    externalId: identity,
    meta: { from: 'v1' },
    ratelimits: shared,
  })
  const v1Limits = [
    { name: 'tokens', limit: 7, duration: 60_000 },
    { name: 'ab', limit: 1, duration: 1000 },
  ]
  await mine.post('identities.updateIdentity', { externalId: identity, ratelimits: v1Limits })
  expect(byName((await read()).ratelimits)).toEqual(
    byName([
      { ...tokens, limit: 7, id: shared[0]?.id ?? '' },
      { id: expect.any(String) as unknown as string, name: 'ab', limit: 1, duration: 1000, autoApply: false }, // a matcher in place of a text
    ]),
  )
  await dataOf(update({ ratelimits: [requests], meta: {} }))
  expect(await mine.get('identities.getIdentity', { identityId })).toEqual({
    id: identityId,
    externalId: identity,
    meta: {},
    ratelimits: [{ name: 'requests', limit: 10, duration: 60_000 }],
  })
})

test('an external id of v1 that v2 would refuse is shown and found', async () => {
  const externalId = `zoë & co/${++count}`
  const { identityId } = await mine.post('identities.createIdentity', { externalId })
  const { data } = (await call('getIdentity', { identity: externalId })).body
  expect(data).toEqual({ id: identityId, externalId })
  const [found] = await dataOf(call('listIdentities', { search: '& CO/' }))
  expect(found).toEqual(data)
})
