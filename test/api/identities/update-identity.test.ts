import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { countStatements } from '../../support/statements.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  // Time stands still: no window ends between two verifications.
  server = await startTestServer({ clock: () => Date.parse('2026-06-01T12:00:00.000Z') })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const requests = { name: 'requests', limit: 10, duration: 60_000 }
const tokens = { name: 'tokens', limit: 1000, duration: 60_000 }
const limitsNamed = (...names: string[]) => names.map((name) => ({ ...requests, name }))

/** A workspace with one identity. */
async function start(fields = {}) {
  const workspace = await server.workspace()
  const { identityId } = await workspace.post('identities.createIdentity', {
    externalId: 'user_1',
    ...fields,
  })
  return {
    ...workspace,
    identityId,
    update: (change: object) => workspace.post('identities.updateIdentity', { identityId, ...change }),
    get: () => workspace.get('identities.getIdentity', { identityId }),
    limitIds: async () => {
      const rows = await server.server.deps.sql<{ id: string; name: string }[]>`
        select id, name from ratelimits where identity_id = ${identityId}`
      return new Map(rows.map(({ id, name }) => [name, id]))
    },
  }
}

test('a request with neither id is a 400 that names both, after the root key is checked', async () => {
  const { rootKey } = await server.workspace()
  expect((await server.post('identities.updateIdentity', {})).body.error.code).toBe('UNAUTHORIZED')
  const { status, body } = await server.post('identities.updateIdentity', {}, rootKey)
  expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
  expect(body.error.message).toContain('identityId')
  expect(body.error.message).toContain('externalId')
})

test('ids have at least one character, and limits have the bounds of createIdentity', async () => {
  const message = async (body: object) =>
    (await server.post('identities.updateIdentity', body)).body.error.message
  expect(await message({ identityId: '' })).toBe('identityId: String must contain at least 1 character(s)')
  expect(await message({ externalId: '' })).toBe('externalId: String must contain at least 1 character(s)')
  const withLimit = (change: object) =>
    message({ identityId: 'id_1', ratelimits: [{ ...requests, ...change }] })
  expect(await withLimit({})).toBe('key required')
  expect(await withLimit({ limit: 0 })).toBe('ratelimits.0.limit: Number must be greater than or equal to 1')
  expect(await withLimit({ duration: 999 })).toBe(
    'ratelimits.0.duration: Number must be greater than or equal to 1000',
  )
  expect(await withLimit({ name: undefined })).toBe('ratelimits.0.name: Required')
})

test('two limits with one name are a conflict that names it, and nothing changes', async () => {
  const { identityId, rootKey, get } = await start({ ratelimits: [tokens], meta: { a: 1 } })
  const { status, body } = await server.post(
    'identities.updateIdentity',
    { identityId, meta: {}, ratelimits: limitsNamed('one', 'two', 'one') },
    rootKey,
  )
  expect([status, body.error.code]).toEqual([409, 'CONFLICT'])
  expect(body.error.message).toContain('one')
  expect(await get()).toMatchObject({ meta: { a: 1 }, ratelimits: [tokens] })
})

test('an unknown or deleted identity and one of another workspace are a 404 that names the id used', async () => {
  const { rootKey } = await server.workspace()
  const foreign = await start()
  for (const [name, named] of [
    [{ identityId: 'id_none', externalId: 'user_none' }, 'id_none'],
    [{ identityId: foreign.identityId }, foreign.identityId],
    [{ externalId: 'user_1' }, 'user_1'],
  ] as const) {
    const { status, body } = await server.post(
      'identities.updateIdentity',
      { ...name, meta: { a: 1 } },
      rootKey,
    )
    expect([status, body.error.message]).toEqual([404, `identity ${named} not found`])
  }
  expect((await foreign.get()).meta).toEqual({})
})

test('the list replaces the limits, by either id, and environment has no effect', async () => {
  const { identityId, post, update } = await start({ ratelimits: [requests] })
  const wanted = limitsNamed('one', 'two')
  expect(
    await post('identities.updateIdentity', { externalId: 'user_1', environment: 'x', ratelimits: wanted }),
  ).toEqual({ id: identityId, externalId: 'user_1', meta: {}, ratelimits: wanted })
  expect((await update({ ratelimits: [tokens] })).ratelimits).toEqual([tokens])
  expect((await update({ ratelimits: [] })).ratelimits).toEqual([])
})

test('a limit that stays keeps its id and its place, and new ones follow', async () => {
  const { update, get, limitIds } = await start({ ratelimits: limitsNamed('one', 'two', 'three') })
  const before = await limitIds()
  const wanted = [...limitsNamed('new_b', 'new_a', 'three'), { name: 'one', limit: 5, duration: 1000 }]
  const { ratelimits } = await update({ ratelimits: wanted })
  expect(ratelimits).toEqual([
    { name: 'one', limit: 5, duration: 1000 },
    ...limitsNamed('three', 'new_b', 'new_a'),
  ])
  const after = await limitIds()
  expect(after.get('one')).toBe(before.get('one') ?? '')
  expect(after.get('three')).toBe(before.get('three') ?? '')
  expect([...after.keys()].toSorted()).toEqual(['new_a', 'new_b', 'one', 'three'])
  // Ids sort by second: the two created last may share theirs with the first.
  expect((await get()).ratelimits).toHaveLength(4)
})

test('setting the same six limits ten times leaves six', async () => {
  const { update, limitIds } = await start()
  const wanted = limitsNamed('a', 'b', 'c', 'd', 'e', 'f')
  const first = await update({ ratelimits: wanted })
  const ids = await limitIds()
  for (let i = 1; i < 10; i++) expect(await update({ ratelimits: wanted })).toEqual(first)
  expect(await limitIds()).toEqual(ids)
})

test('absent fields stay: meta alone leaves the limits, limits alone leave meta', async () => {
  const { update, get, limitIds } = await start({ ratelimits: [requests], meta: { a: 1 } })
  const ids = await limitIds()
  expect((await update({ meta: { b: 2 } })).ratelimits).toEqual([requests])
  expect(await get()).toMatchObject({ meta: { b: 2 }, ratelimits: [requests] })
  expect(await limitIds()).toEqual(ids)
  expect((await update({ ratelimits: [tokens] })).meta).toEqual({ b: 2 })
  expect((await update({ meta: {} })).meta).toEqual({})
  expect((await get()).meta).toEqual({})
})

test('only the general right is enough', async () => {
  const { identityId, rootKeyWith } = await start()
  const answer = async (right: string) => {
    const { body } = await server.post('identities.updateIdentity', { identityId }, await rootKeyWith(right))
    return body.error?.code ?? 'ok'
  }
  expect(await answer('identity.*.update_identity')).toBe('ok')
  expect(await answer('identity.*.read_identity')).toBe('INSUFFICIENT_PERMISSIONS')
})

test('each change of a limit is audited, and nothing else', async () => {
  const { update, workspaceId } = await start({ ratelimits: limitsNamed('kept', 'gone') })
  await update({ ratelimits: [...limitsNamed('kept', 'new'), tokens] })
  await update({ ratelimits: [...limitsNamed('kept', 'new'), { ...tokens, limit: 7 }] })
  const rows = await server.server.deps.sql<{ event: string; count: number }[]>`
    select event, count(*)::integer as count from audit_events
     where workspace_id = ${workspaceId} and event ~ '^(identity|ratelimit)[.]' group by event order by event`
  expect([...rows]).toEqual([
    { event: 'identity.create', count: 1 },
    { event: 'identity.update', count: 2 },
    { event: 'ratelimit.create', count: 4 },
    { event: 'ratelimit.delete', count: 1 },
    { event: 'ratelimit.update', count: 1 },
  ])
})

/** The v1 API purged its cache only for identities with fewer than ten keys. */
test('setting 20 limits on an identity with 1000 keys takes as many statements as one limit, and applies to every key at once', async () => {
  const { identityId, update, ...workspace } = await start()
  const keys = await makeKeys(workspace, identityId, 1000)
  const sample = [keys[0], keys[500], keys[999]].map((key) => key ?? '')
  const verify = async (key: string, name: string, cost = 1) =>
    (await server.post('keys.verifyKey', { key, ratelimits: [{ name, cost }] })).body
  for (const key of sample) expect((await verify(key, 'limit_19')).error.code).toBe('BAD_REQUEST') // now cached
  const limits = (count: number) => limitsNamed(...Array.from({ length: count }, (_, i) => `limit_${i}`))
  const few = await countStatements(server, () => update({ ratelimits: limits(1) }))
  // The first call created one; this one keeps it and creates nineteen.
  const many = await countStatements(server, () => update({ ratelimits: limits(20) }))
  expect(many).toBe(few)
  for (const [used, key] of sample.entries())
    expect(await verify(key, 'limit_19')).toMatchObject({
      valid: true,
      identity: { id: identityId },
      ratelimit: { limit: 10, remaining: 9 - used }, // shared by the keys of the identity
    })
  const [row] = await server.server.deps.sql`
    select count(*)::integer as keys from keys where identity_id = ${identityId}`
  expect(row).toEqual({ keys: 1000 })
})

test('a new identity, its key, new limits and a verification that names them work one right after another', async () => {
  const { identityId, update, post } = await start({ meta: { plan: 'pro' } })
  const { apiId } = await post('apis.createApi', { name: 'my api' })
  const { key } = await post('keys.createKey', { apiId, externalId: 'user_1' })
  const identity = { id: identityId, externalId: 'user_1', meta: { plan: 'pro' } }
  expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true, identity })
  await update({ ratelimits: [requests, tokens] })
  const ratelimits = [{ name: 'requests' }, { name: 'tokens', cost: 200 }]
  expect((await server.post('keys.verifyKey', { key, ratelimits })).body).toMatchObject({
    valid: true,
    identity,
  })
  const rest = await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 0 }] })
  expect(rest.body.ratelimit).toMatchObject({ limit: 1000, remaining: 800 })
})

/** In one statement, as migrations do: creating them one by one is not tested here. */
async function makeKeys(
  { post, workspaceId }: Pick<TestWorkspace, 'post' | 'workspaceId'>,
  identityId: string,
  count: number,
): Promise<string[]> {
  const { sql } = server.server.deps
  const { apiId } = await post('apis.createApi', { name: 'my api' })
  const [api] = await sql<
    { keyspaceId: string }[]
  >`select keyspace_id as "keyspaceId" from apis where id = ${apiId}`
  const keys = Array.from({ length: count }, () => crypto.randomUUID())
  const rows = keys.map((key) => ({
    id: `key_${key}`,
    hash: new Bun.CryptoHasher('sha256').update(key).digest('base64'),
  }))
  await sql`
    insert into keys (id, workspace_id, keyspace_id, hash, start, identity_id, created_at)
    select k.id, ${workspaceId}, ${api?.keyspaceId ?? ''}, k.hash, 'test', ${identityId}, 0
      from json_to_recordset((${JSON.stringify(rows)}::text)::json) as k (id text, hash text)`
  return keys
}
