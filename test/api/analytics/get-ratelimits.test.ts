import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const HOUR = 3_600_000
const NOW = Date.UTC(2026, 10, 21, 13, 37)
const THIS_HOUR = NOW - (NOW % HOUR)

let server: TestServer
let workspace: TestWorkspace
beforeAll(async () => {
  server = await startTestServer({ clock: () => NOW })
  workspace = await server.workspace()
})
afterAll(() => server[Symbol.asyncDispose]())

let made = 0
/** Creates a namespace by its first use. Decisions in it can be made at chosen times. */
async function makeNamespace() {
  const name = `namespace ${++made}`
  await workspace.post('ratelimits.limit', {
    namespace: name,
    identifier: 'first',
    limit: 1,
    duration: 60_000,
  })
  const { sql, usage } = server.server.deps
  const [row] = await sql<{ id: string }[]>`select id from ratelimit_namespaces where name = ${name}`
  const namespaceId = row?.id ?? ''
  const record = (identifier: string, { passed = 0, denied = 0, atMs = NOW }) => {
    const { workspaceId } = workspace
    for (let i = 0; i < passed + denied; i++)
      usage.recordRatelimit({ workspaceId, namespaceId, identifier, passed: i < passed, atMs })
  }
  const ask = async (query: Record<string, unknown> = {}): Promise<Json> => {
    await usage.flush()
    return workspace.get('analytics.getRatelimits', { namespaceId, ...query })
  }
  return { name, namespaceId, record, ask }
}

test('decisions of ratelimits.limit are counted, and found by namespace id and by name', async () => {
  const { name, namespaceId, ask } = await makeNamespace()
  for (const identifier of ['first', 'second', 'second', 'second'])
    await workspace.post('ratelimits.limit', { namespace: name, identifier, limit: 2, duration: 60_000 })
  expect(await ask()).toEqual([{ passed: 4, denied: 1, total: 5 }])
  const byName = await workspace.get('analytics.getRatelimits', {
    namespaceName: name,
    groupBy: 'identifier',
  })
  expect(byName).toEqual([
    { identifier: 'first', passed: 2, denied: 0, total: 2 },
    { identifier: 'second', passed: 2, denied: 1, total: 3 },
  ])
  expect(await workspace.get('analytics.getRatelimits', { namespaceId, identifier: 'second' })).toEqual([
    { passed: 2, denied: 1, total: 3 },
  ])
})

/** Findings 5.3. */
test('a call with cost 0 is not counted, whether alone, in multiLimit or async', async () => {
  const { name, ask } = await makeNamespace()
  const take = { namespace: name, identifier: 'one', limit: 1, duration: 60_000 }
  const before = await metricOf(name)
  await workspace.post('ratelimits.limit', { ...take, cost: 0 })
  await workspace.post('ratelimits.limit', { ...take, cost: 0, async: true })
  await workspace.post('ratelimits.multiLimit', [{ ...take, cost: 0 }, take, { ...take, cost: 0 }, take])
  await workspace.post('ratelimits.multiLimit', [{ ...take, cost: 0, async: true }])
  expect(await ask({ identifier: 'one' })).toEqual([{ passed: 1, denied: 1, total: 2 }])
  expect((await metricOf(name)) - before).toBe(2)
})

/** Decisions of a namespace according to the metrics. */
async function metricOf(name: string): Promise<number> {
  const text = await (await fetch(`${server.url}/metrics`)).text()
  return text
    .split('\n')
    .filter(
      (line) => line.startsWith('tollgate_ratelimit_decisions_total') && line.includes(`namespace="${name}"`),
    )
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

test('sums by hour, day and month are exact, gaps are filled, and identifiers are added up or separate', async () => {
  const { record, ask } = await makeNamespace()
  record('a', { passed: 3, denied: 1, atMs: THIS_HOUR - 2 * HOUR })
  record('b', { passed: 5, atMs: THIS_HOUR - 2 * HOUR + 1 })
  record('a', { denied: 2, atMs: THIS_HOUR - 26 * HOUR })
  const range = { start: NOW - 30 * HOUR, end: THIS_HOUR - HOUR }
  const hours: Json[] = await ask({ ...range, groupBy: 'hour' })
  expect(hours).toHaveLength(29)
  expect(hours.filter(({ total }) => total > 0)).toEqual([
    { time: THIS_HOUR - 26 * HOUR, passed: 0, denied: 2, total: 2 },
    { time: THIS_HOUR - 2 * HOUR, passed: 8, denied: 1, total: 9 },
  ])
  expect(await ask({ ...range, groupBy: 'day,identifier' })).toEqual([
    { time: Date.UTC(2026, 10, 20), identifier: 'a', passed: 0, denied: 2, total: 2 },
    { time: Date.UTC(2026, 10, 21), identifier: 'a', passed: 3, denied: 1, total: 4 },
    { time: Date.UTC(2026, 10, 21), identifier: 'b', passed: 5, denied: 0, total: 5 },
  ])
  expect(await ask({ ...range, groupBy: 'month' })).toEqual([
    { time: Date.UTC(2026, 10), passed: 8, denied: 3, total: 11 },
  ])
  const top = { ...range, groupBy: 'identifier', orderBy: 'total', order: 'desc', limit: 1 }
  expect(await ask(top)).toEqual([{ identifier: 'a', passed: 3, denied: 3, total: 6 }])
  const cut = {
    ...range,
    groupBy: ['hour', 'identifier'],
    orderBy: 'denied',
    order: 'desc',
    limit: 3,
    identifier: ['a', 'c'],
  }
  expect(await ask(cut)).toEqual([
    { time: THIS_HOUR - 26 * HOUR, identifier: 'a', passed: 0, denied: 2, total: 2 },
    { time: THIS_HOUR - 2 * HOUR, identifier: 'a', passed: 3, denied: 1, total: 4 },
    { time: THIS_HOUR - 30 * HOUR, passed: 0, denied: 0, total: 0 },
  ])
})

/** The total is exact whichever identifiers are stored by name, so the rest is the difference. */
test('identifiers not stored by name are one row without identifier', async () => {
  const { namespaceId, record, ask } = await makeNamespace()
  record('kept', { passed: 3 })
  record('forgotten', { passed: 2, denied: 1 })
  record('forgotten too', { denied: 4 })
  await ask()
  await server.server.deps.sql`
    delete from usage_ratelimit_identifiers where namespace_id = ${namespaceId} and identifier like 'forgotten%'`
  const range = { start: THIS_HOUR, end: NOW }
  expect(await ask({ ...range, groupBy: 'identifier', orderBy: 'total', order: 'desc' })).toEqual([
    { passed: 2, denied: 5, total: 7 },
    { identifier: 'kept', passed: 3, denied: 0, total: 3 },
    { identifier: 'first', passed: 1, denied: 0, total: 1 },
  ])
  expect(await ask({ ...range, groupBy: 'hour' })).toEqual([
    { time: THIS_HOUR, passed: 6, denied: 5, total: 11 },
  ])
})

test('without decisions there is one row of zeros without groups, and no row by identifier', async () => {
  const { ask } = await makeNamespace()
  const range = { start: NOW - 5 * HOUR, end: NOW - 2 * HOUR }
  expect(await ask(range)).toEqual([{ passed: 0, denied: 0, total: 0 }])
  expect(await ask({ ...range, groupBy: 'identifier' })).toEqual([])
})

test('a call needs the right to read the namespace, and finds namespaces of its own workspace only', async () => {
  const { name, namespaceId } = await makeNamespace()
  const ask = async (query: Record<string, unknown>, rootKey: string | null) => {
    const { status, body } = await server.get('analytics.getRatelimits', query, rootKey)
    return [status, body.error?.code]
  }
  const keyWith = (permission: string) => workspace.rootKeyWith(permission)
  for (const permission of ['*', 'ratelimit.*.read_namespace', `ratelimit.${namespaceId}.read_namespace`]) {
    expect(await ask({ namespaceId }, await keyWith(permission))).toEqual([200, undefined])
    expect(await ask({ namespaceName: name }, await keyWith(permission))).toEqual([200, undefined])
  }
  expect(await ask({ namespaceId }, await keyWith('ratelimit.*.limit'))).toEqual([
    403,
    'INSUFFICIENT_PERMISSIONS',
  ])
  expect(await ask({ namespaceId }, null)).toEqual([403, 'UNAUTHORIZED'])
  expect(await ask({ namespaceId: 'rlns_none' }, workspace.rootKey)).toEqual([404, 'NOT_FOUND'])
  expect(await ask({ namespaceId }, (await server.workspace()).rootKey)).toEqual([404, 'NOT_FOUND'])
  for (const query of [
    {},
    { namespaceId, groupBy: 'key' },
    { namespaceId, orderBy: 'time' },
    { namespaceId, start: NOW, end: NOW - 1 },
  ])
    expect(await ask(query, null)).toEqual([400, 'BAD_REQUEST'])
})

test('grouped by namespace, all namespaces of the workspace are counted, by hour too, and no identifier', async () => {
  const other = await server.workspace()
  const { sql, usage } = server.server.deps
  const ids: string[] = []
  for (const name of ['first', 'second']) {
    const { namespaceId } = await other.post('ratelimits.createNamespace', { name })
    ids.push(namespaceId)
  }
  const [first = '', second = ''] = ids
  const record = (namespaceId: string, passed: boolean, atMs: number) =>
    usage.recordRatelimit({ workspaceId: other.workspaceId, namespaceId, identifier: 'a', passed, atMs })
  record(first, true, NOW)
  record(first, false, NOW - HOUR)
  record(second, false, NOW)
  await usage.flush()
  const ask = (query: Record<string, unknown> = {}) =>
    other.get('analytics.getRatelimits', { groupBy: 'namespace', ...query })
  expect(await ask({ orderBy: 'total', order: 'desc' })).toEqual([
    { namespace: { id: first, name: 'first' }, passed: 1, denied: 1, total: 2 },
    { namespace: { id: second, name: 'second' }, passed: 0, denied: 1, total: 1 },
  ])
  await other.post('ratelimits.deleteNamespace', { namespaceId: second })
  const hours = await ask({ groupBy: ['namespace', 'hour'], start: NOW - 2 * HOUR })
  expect(hours).toEqual([
    { time: THIS_HOUR - 2 * HOUR, passed: 0, denied: 0, total: 0 },
    { time: THIS_HOUR - HOUR, namespace: { id: first, name: 'first' }, passed: 0, denied: 1, total: 1 },
    ...hours.slice(2),
  ])
  expect(hours.slice(2)).toContainEqual({
    time: THIS_HOUR,
    namespace: { id: second },
    passed: 0,
    denied: 1,
    total: 1,
  })
  expect(hours).toHaveLength(4)
  for (const query of [{ namespaceId: first }, { identifier: 'a' }, { groupBy: ['namespace', 'identifier'] }])
    await expect(ask(query)).rejects.toThrow('groupBy: namespace counts all namespaces')
  expect(await sql`select 1 from usage_ratelimits where workspace_id = ${other.workspaceId}`).toHaveLength(3)
})
