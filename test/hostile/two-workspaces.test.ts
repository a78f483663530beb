import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { removeOldest } from '../../src/db/kept-rows.ts'
import { makeApi } from '../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { listStatements } from '../support/statements.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * Two workspaces on one server. One floods everything that a caller can make grow; the other must not notice. A bound
 * reached by the first does not affect the second, its keys stay cached, its limits and counts exact, and the database
 * grows by a bounded amount.
 */
setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let flooding: TestWorkspace
let quiet: TestWorkspace
let quietApi: string
beforeAll(async () => {
  server = await startTestServer({
    env: {
      TOLLGATE_BOUNDS:
        'apis=6,keys=80,rootKeys=5,identities=20,namespaces=6,overrides=12,overridesPerNamespace=10,roles=8,permissions=8,queuedImports=90,tagSets=40,usageIdentifiers=60,auditEvents=300',
      TOLLGATE_KEY_CACHE_MIB: '4',
      TOLLGATE_LIMITER_MEMORY_MIB: '8',
      TOLLGATE_DB_TIMEOUT_MS: '60000',
    },
  })
  flooding = await server.workspace()
  quiet = await server.workspace()
  quietApi = await makeApi(quiet)
})
afterAll(() => server[Symbol.asyncDispose]())

const inParallel = async <T>(
  count: number,
  run: (index: number) => Promise<T>,
  workers = 16,
): Promise<T[]> => {
  const results: T[] = []
  let next = 0
  const work = async () => {
    for (let index = next++; index < count; index = next++) results[index] = await run(index)
  }
  await Promise.all(Array.from({ length: workers }, work))
  return results
}

describe('what one workspace has too much of is refused to it alone', () => {
  type Make = (
    workspace: TestWorkspace,
    apiId: string,
    index: number,
  ) => Promise<{ status: number; body: Json }>
  const call =
    (method: string, bodyOf: (index: number, apiId: string) => Json): Make =>
    ({ rootKey }, apiId, index) =>
      server.post(method, bodyOf(index, apiId), rootKey)
  const things: [string, Make][] = [
    ['namespaces', call('ratelimits.createNamespace', (index) => ({ name: `namespace ${index}` }))],
    [
      'namespaces made by their first use',
      call('ratelimits.limit', (index) => ({
        namespace: `used ${index}`,
        identifier: 'user',
        limit: 10,
        duration: 60_000,
      })),
    ],
    [
      'overrides',
      call('ratelimits.setOverride', (index) => ({
        namespaceName: 'namespace 0',
        identifier: `user ${index}`,
        limit: 1,
        duration: 60_000,
      })),
    ],
    ['identities', call('identities.createIdentity', (index) => ({ externalId: `user ${index}` }))],
    ['roles', call('permissions.createRole', (index) => ({ name: `role.${index}` }))],
    ['permissions', call('permissions.createPermission', (index) => ({ name: `permission.${index}` }))],
    ['root keys', call('rootKeys.createRootKey', () => ({ permissions: [] }))],
    ['keys', call('keys.createKey', (_, apiId) => ({ apiId }))],
    [
      'identities made by keys',
      call('keys.createKey', (index, apiId) => ({ apiId, externalId: `owner ${index}` })),
    ],
    [
      'imported keys',
      call('migrations.createKeys', (_, apiId) =>
        Array.from({ length: 10 }, () => ({ apiId, plaintext: crypto.randomUUID() })),
      ),
    ],
    ['APIs', call('apis.createApi', (index) => ({ name: `api ${index}` }))],
    [
      'queued imports',
      call('migrations.enqueueKeys', (_, apiId) => ({
        migrationId: 'm',
        apiId,
        keys: Array.from({ length: 10 }, () => ({ plaintext: crypto.randomUUID() })),
      })),
    ],
  ]
  let floodingApi: string
  beforeAll(async () => {
    floodingApi = await makeApi(flooding)
  })
  // Waiting keys would take the room in the tests below, and the importer's statements would be among those listed.
  afterAll(async () => {
    const { sql } = server.server.deps
    await sql`delete from key_imports where workspace_id = ${flooding.workspaceId}`
    while ((await sql`select 1 from key_imports limit 1`).length > 0) await Bun.sleep(20)
    await Bun.sleep(100) // until the current batch has ended
  })
  for (const [name, make] of things)
    test(name, async () => {
      const answers = await inParallel(120, (index) => make(flooding, floodingApi, index))
      const refused = answers.filter(({ status }) => status === 412)
      expect(refused.length).toBeGreaterThan(10)
      expect(answers.every(({ status }) => [200, 202, 412].includes(status))).toBe(true)
      for (const { body } of refused) expect(body.error).toMatchObject({ code: 'PRECONDITION_FAILED' })
      expect((await make(quiet, quietApi, 0)).status).toBeOneOf([200, 202])
    })
})

test('tags: the quiet workspace’s sets and counts are exact, the flood is cut', async () => {
  const { key: floodKey } = await quietOrFresh(flooding)
  const { key } = await quiet.post('keys.createKey', { apiId: quietApi, externalId: 'tagged' })
  const { sql } = server.server.deps
  const bytes = async () => {
    const [row] = await sql<{ size: number }[]>`
      select sum(pg_total_relation_size(c.oid))::bigint as size from pg_class c
       where c.relkind = 'r' and c.relname ~ '^usage_(tag|verifications)'`
    return row?.size ?? 0
  }
  const before = await bytes()
  await inParallel(3_000, (index) => {
    const isQuiet = index % 100 === 0
    const tags = isQuiet
      ? [`plan=${(index / 100) % 3}`]
      : Array.from({ length: 10 }, () => crypto.randomUUID().repeat(3))
    return server.post('keys.verifyKey', { key: isQuiet ? key : floodKey, tags })
  })
  await server.server.deps.usage.flush()
  const analyst = quiet.rootKey
  const end = Date.now() + 3_600_000
  const { body } = await server.get(
    'analytics.getVerifications',
    { apiId: quietApi, start: end - 7_200_000, end, groupBy: 'tags', externalId: 'tagged' },
    analyst,
  )
  const counts = Object.fromEntries(body.map(({ tags, total }: Json) => [tags.join(), total]))
  expect(counts).toEqual({ 'plan=0': 10, 'plan=1': 10, 'plan=2': 10 })
  const [row] = await sql<{ total: number; sets: number }[]>`
    select (select sum(valid)::integer from usage_verifications where workspace_id = ${flooding.workspaceId}) as total,
           (select count(*)::integer from usage_tag_sets where workspace_id = ${flooding.workspaceId}) as sets`
  expect(row).toEqual({ total: 2970, sets: 41 })
  expect((await bytes()) - before).toBeLessThan(4_000_000)
})

test('cached keys: many large keys of one workspace leave the other’s cached', async () => {
  const made = await inParallel(30, () =>
    quiet.post('keys.createKey', { apiId: quietApi, meta: { plan: 'x' } }),
  )
  const verifyAll = () =>
    inParallel(made.length, (index) => server.post('keys.verifyKey', { key: made[index].key }))
  await verifyAll()
  const apiId = await freshApi(flooding)
  const large = await inParallel(60, () =>
    flooding.post('keys.createKey', { apiId, meta: { text: 'x'.repeat(60_000) } }),
  )
  const flood = () =>
    inParallel(large.length, (index) => server.post('keys.verifyKey', { key: large[index].key }))
  await flood()
  await flood()
  expect(await listStatements(server, verifyAll)).toEqual([])
  // Dropping all cached keys of one workspace drops none of the other's.
  const [permission] = await flooding.get('permissions.listPermissions')
  await flooding.post('permissions.deletePermission', { permissionId: permission.id })
  expect(await listStatements(server, verifyAll)).toEqual([])
})

test('names of limits defined by requests: the other workspace’s limits stay exact', async () => {
  const { key } = await quietOrFresh(flooding)
  const { key: quietKey } = await quiet.post('keys.createKey', { apiId: quietApi })
  const year = 365 * 86_400_000
  await inParallel(2_000, (index) =>
    server.post('keys.verifyKey', {
      key,
      ratelimits: Array.from({ length: 100 }, (_, at) => ({
        name: `${index} ${at}`,
        limit: 5,
        duration: year,
      })),
    }),
  )
  const verify = (name: string) =>
    server.post('keys.verifyKey', { key: quietKey, ratelimits: [{ name, limit: 2, duration: year }] })
  for (let name = 0; name < 20; name++) {
    const codes = []
    for (let i = 0; i < 3; i++) codes.push((await verify(`mine ${name}`)).body.code)
    expect(codes).toEqual(['VALID', 'VALID', 'RATE_LIMITED'])
  }
})

test('unknown keys: a flood of them evicts no key, and a key that is not cached is found meanwhile', async () => {
  const { key } = await quiet.post('keys.createKey', { apiId: quietApi })
  const { key: cold } = await quiet.post('keys.createKey', { apiId: quietApi })
  await server.post('keys.verifyKey', { key })
  const flood = inParallel(3_000, () => server.post('keys.verifyKey', { key: crypto.randomUUID() }))
  expect((await server.post('keys.verifyKey', { key: cold })).body.valid).toBe(true)
  await flood
  expect(await listStatements(server, () => server.post('keys.verifyKey', { key }))).toEqual([])
})

test('identifiers in usage: the other workspace’s are all stored, and both totals are exact', async () => {
  const limit = (workspace: TestWorkspace, namespace: string, identifier: string) =>
    server.post('ratelimits.limit', { namespace, identifier, limit: 10, duration: 60_000 }, workspace.rootKey)
  const { namespaces } = await flooding.get('ratelimits.listNamespaces')
  await inParallel(600, (index) =>
    limit(flooding, namespaces[index % namespaces.length].name, `flood ${index}`),
  )
  await inParallel(20, (index) => limit(quiet, 'namespace 0', `mine ${index}`))
  await server.server.deps.usage.flush()
  const named = async (workspaceId: string) => {
    const [row] = await server.server.deps.sql<{ named: number }[]>`
      select count(*)::integer as named from usage_ratelimit_identifiers
       where workspace_id = ${workspaceId} and (identifier like 'flood %' or identifier like 'mine %')`
    return row?.named
  }
  expect(await named(quiet.workspaceId)).toBe(20)
  expect(await named(flooding.workspaceId)).toBeLessThanOrEqual(60)
})

test('audit events: the oldest of the flood go, and none of the other workspace', async () => {
  const events = async ({ workspaceId }: TestWorkspace) => {
    const [row] = await server.server.deps.sql<{ count: number }[]>`
      select count(*)::integer as count from audit_events where workspace_id = ${workspaceId}`
    return row?.count ?? 0
  }
  const before = await events(quiet)
  expect(before).toBeLessThan(300)
  const { namespaces } = await flooding.get('ratelimits.listNamespaces')
  await inParallel(400, (index) =>
    server.post(
      'ratelimits.limit',
      {
        namespace: namespaces[0].name,
        identifier: `audited ${index}`,
        limit: 10,
        duration: 60_000,
        resources: [{ type: 'document', id: String(index) }],
      },
      flooding.rootKey,
    ),
  )
  await removeOldest(server.server.deps.sql)
  expect(await events(flooding)).toBe(300)
  expect(await events(quiet)).toBe(before)
})

test('metrics name the workspace with the flood, and not the other', async () => {
  const metrics = await (await fetch(`${server.url}/metrics`)).text()
  const reached = metrics
    .split('\n')
    .filter((line) => line.startsWith('tollgate_workspace_bound_reached_total{'))
  for (const bound of [
    'apis',
    'keys',
    'rootKeys',
    'identities',
    'namespaces',
    'overridesPerNamespace',
    'roles',
  ])
    expect(reached.join('\n')).toContain(`workspace="${flooding.workspaceId}",bound="${bound}"`)
  expect(reached.join('\n')).not.toContain(quiet.workspaceId)
})

/** A workspace that is full of keys deletes some. */
async function freshApi(workspace: TestWorkspace): Promise<string> {
  const { apis } = await workspace.get('apis.listApis')
  const [{ id }] = apis
  await workspace.post('apis.deleteKeys', { apiId: id, permanent: true })
  return id
}

async function quietOrFresh(workspace: TestWorkspace): Promise<Json> {
  return await workspace.post('keys.createKey', { apiId: await freshApi(workspace) })
}
