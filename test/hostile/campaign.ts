import { parseArgs } from 'node:util'
import fc from 'fast-check'
import type { AnySql } from '../../src/db/connect.ts'
import type { Endpoint } from '../../src/doors/http/endpoint.ts'
import { TYPE_BASE } from '../../src/doors/v2/problems.ts'
import { V2 } from '../../src/pages/v2-description.ts'
import { allEndpoints, createApp } from '../../src/server/app.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { type Caller, fillIn, type HostileRequest, later, type Pool, requestsTo } from './requests.ts'
import { rowsOfWorkspace } from './workspace-rows.ts'

/**
 * Generated requests against a whole server, in batches with a workspace each:
 *
 * 1. A batch is generated from the seed and sent, several requests at a time. Every answer must arrive, must not be a 5xx,
 *    and must match the endpoint's description.
 * 2. Refused requests are sent again until one pass refuses all (others of the batch may have changed an answer). In that
 *    pass no row may be written, according to triggers on every table. Usage and windows have no triggers, as refusals are
 *    counted there.
 * 3. Another workspace, whose ids and keys occur in the requests, must be unchanged.
 *
 * Without `watches` the second step is left out and requests go straight to the app, which allows more of them.
 *
 * `bun run hostile --requests 2000000 --watched 200000 --seed 1`
 */
export type Campaign = {
  /** Number of generated requests, without those of the second step. */
  requests: number
  batch: number
  seed: number
  /** Requests in flight at a time. */
  concurrency: number
  /** Over HTTP, with every table watched. */
  watches: boolean
}

export type CampaignReport = {
  drawn: number
  sent: number
  byStatus: Record<string, number>
  /** Accepted requests by path of the endpoint: a path with none is not tested. */
  accepted: Record<string, number>
  /** Writes of accepted requests that the triggers recorded. 0 would mean that the triggers are broken. */
  writesSeen: number
  /** Requests refused again while every table was watched. */
  refusedWatched: number
  /** Heap in MiB after a collection, after each quarter. */
  heapMib: number[]
  residentMib: number[]
  seconds: number
}

/** @throws Error with seed, batch and request, for the first wrong answer. */
export async function runCampaign(
  { server, clock }: HostileServer,
  { requests, batch, seed, concurrency, watches }: Campaign,
  onProgress: (report: CampaignReport) => void = () => {},
): Promise<CampaignReport> {
  const { sql } = server.server.deps
  if (watches) await watchWrites(sql)
  const { app } = createApp(server.server.deps)
  const transport: Transport = watches ? fetch : async (url, init) => await app.fetch(new Request(url, init))
  const foreign = await makeFixture(server)
  const untouched = await rowsOfWorkspace(sql, foreign.workspaceId, { withoutUse: true })
  const arbitrary = requestsTo(allEndpoints, POOL)
  const startedAt = performance.now()
  const report: CampaignReport = {
    drawn: 0,
    sent: 0,
    byStatus: {},
    accepted: Object.fromEntries(allEndpoints.map(({ path }) => [path, 0])),
    writesSeen: 0,
    refusedWatched: 0,
    heapMib: [],
    residentMib: [],
    seconds: 0,
  }
  for (let index = 0; report.drawn < requests; index++) {
    const fixture = await makeFixture(server)
    const numRuns = Math.min(batch, requests - report.drawn)
    const texts = textsOf(fixture, foreign)
    const drawn = fc
      .sample(arbitrary, { seed: seed + index, numRuns })
      .map((request) => fillIn(request, texts))
    const send = async (which: readonly HostileRequest[]) => {
      const statuses = await sendAll(server.url, which, {
        fixture,
        concurrency,
        transport,
        where: `seed ${seed + index}`,
      })
      report.sent += which.length
      for (const [i, status] of statuses.entries()) {
        report.byStatus[status] = (report.byStatus[status] ?? 0) + 1
        const { path, method } = which[i]?.endpoint ?? {}
        if (status < 300 && path !== undefined && which[i]?.method === method)
          report.accepted[path] = (report.accepted[path] ?? 0) + 1
      }
      return which.filter((_, i) => (statuses[i] ?? 0) >= 400)
    }
    let refused = await send(drawn)
    report.drawn += drawn.length
    if (watches) report.writesSeen += await takeWrites(sql)
    for (let pass = 0; watches; pass++) {
      await importsDone(server)
      await takeWrites(sql)
      const again = await send(refused)
      if (again.length === refused.length) break
      if (pass === PASSES_MAX) throw new Error(`${refused.length} requests are refused now and then`)
      refused = again
    }
    const stored = watches ? await readWrites(sql) : []
    if (stored.length > 0) {
      const guilty = await findGuilty(server, refused, fixture)
      throw new Error(
        `refused requests of seed ${seed + index} wrote to ${stored.join(', ')}: ${guilty.map(describe).join('\n')}`,
      )
    }
    if (watches) report.refusedWatched += refused.length
    const now = await rowsOfWorkspace(sql, foreign.workspaceId, { withoutUse: true })
    if (!Bun.deepEquals(now, untouched)) throw new Error(`seed ${seed + index} changed another workspace`)
    clock.now += 60_000
    if (report.drawn >= ((report.heapMib.length + 1) * requests) / 4) {
      Bun.gc(true)
      const { heapUsed, rss } = process.memoryUsage()
      report.heapMib.push(Math.round(heapUsed / 2 ** 20))
      report.residentMib.push(Math.round(rss / 2 ** 20))
    }
    report.seconds = (performance.now() - startedAt) / 1000
    onProgress(report)
  }
  return report
}

const PASSES_MAX = 5

export type HostileServer = AsyncDisposable & { server: TestServer; clock: { now: number } }

/** Time moves only between batches, so that nothing becomes due while a batch is watched. */
export async function startHostileServer(): Promise<HostileServer> {
  const clock = { now: Date.now() }
  const server = await startTestServer({
    clock: () => clock.now,
    // For slow machines; slow databases are not tested here.
    env: { TOLLGATE_DB_TIMEOUT_MS: '60000' },
  })
  return { server, clock, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() }
}

type Transport = (url: string, init: RequestInit) => Promise<Response>

type Fixture = {
  workspaceId: string
  keys: Record<Caller, string | null>
  texts: Record<
    | 'apiId'
    | 'keyId'
    | 'richKeyId'
    | 'key'
    | 'richKey'
    | 'weakKey'
    | 'permissionId'
    | 'roleId'
    | 'identityId'
    | 'namespaceId'
    | 'rootKeyId'
    | 'workspaceId'
    | 'hash'
    | 'otherHash',
    string
  >
}

/** Creates one of everything. The texts are listed by the fields that they fit. */
async function makeFixture(server: TestServer): Promise<Fixture> {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { permissionId } = await workspace.post('permissions.createPermission', { name: 'a.permission' })
  const { roleId } = await workspace.post('permissions.createRole', { name: 'a role' })
  const limits = [{ name: 'requests', limit: 100, duration: 60_000 }]
  const { identityId } = await workspace.post('identities.createIdentity', {
    externalId: 'user_1',
    ratelimits: limits,
  })
  const plain = await makeKey(workspace, apiId)
  const rich = await makeKey(workspace, apiId, {
    externalId: 'user_1',
    remaining: 1000,
    refill: { interval: 'daily', amount: 5 },
    roles: ['a role'],
    permissions: ['a.permission'],
    ratelimit: { limit: 100, duration: 60_000 },
    recoverable: true,
    meta: { plan: 'pro' },
  })
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'a namespace' })
  await workspace.post('ratelimits.setOverride', {
    namespaceId,
    identifier: 'some*',
    limit: 5,
    duration: 1000,
  })
  const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { permissions: [] })
  const weak = await workspace.rootKeyWith('api.*.read_api')
  // The operator disables and renames this one at will, so it contains nothing else.
  const { workspaceId } = await server.workspace()
  return {
    workspaceId: workspace.workspaceId,
    keys: { root: workspace.rootKey, weak, key: plain.key, none: null, operator: OPERATOR_KEY },
    texts: {
      apiId,
      keyId: plain.keyId,
      richKeyId: rich.keyId,
      key: plain.key,
      richKey: rich.key,
      weakKey: weak,
      permissionId,
      roleId,
      identityId,
      namespaceId,
      rootKeyId,
      workspaceId,
      hash: hashKey(crypto.randomUUID()),
      otherHash: hashKey(crypto.randomUUID()),
    },
  }
}

/** Values for `later`: own texts by the name of the field, another workspace's with `foreign.` before it. */
function textsOf({ texts }: Fixture, foreign: Fixture): Record<string, string> {
  const others = Object.entries(foreign.texts).map(([name, text]) => [`foreign.${name}`, text])
  return { ...texts, ...Object.fromEntries(others) }
}

/** Mostly an own text. */
const either = (...names: (keyof Fixture['texts'])[]) =>
  names.flatMap((name) => [later(name), later(name), later(name), later(`foreign.${name}`)])
const IDS = either('permissionId', 'roleId', 'keyId', 'apiId', 'identityId', 'namespaceId', 'rootKeyId')
const NAMES = ['a role', 'a.permission', 'new.permission', 'another role']
const POOL: Pool = {
  apiId: either('apiId'),
  keyId: either('keyId', 'richKeyId'),
  key: either('key', 'richKey', 'weakKey'),
  permissionId: either('permissionId'),
  roleId: either('roleId'),
  identityId: either('identityId'),
  namespaceId: either('namespaceId'),
  rootKeyId: either('rootKeyId'),
  identity: [...either('identityId'), 'user_1', 'user_2'],
  permission: [...either('permissionId'), 'a.permission'],
  role: [...either('roleId'), 'a role'],
  override: ['some*', 'somebody'],
  search: ['a', 'user', 'role'],
  workspaceId: [later('workspaceId')],
  id: either('permissionId', 'roleId'),
  cursor: IDS,
  actorId: IDS,
  resourceId: IDS,
  prefix: ['demo', 'p'],
  defaultPrefix: ['demo'],
  externalId: ['user_1', 'user_2', 'user_3'],
  ownerId: ['user_1', 'user_2'],
  identifier: ['some*', 'somebody', 'user_1'],
  namespace: ['a namespace', 'another'],
  namespaceName: ['a namespace', 'another'],
  name: [...NAMES, 'requests', 'default'],
  slug: NAMES,
  roles: ['a role'],
  permissions: ['a.permission', 'api.*.read_api', '*'],
  value: [later('hash'), later('hash'), later('otherHash')],
  ipWhitelist: ['127.0.0.1', '::1', '10.0.0.0/8', '0.0.0.0/0', '10.0.0.0/33', 'nowhere'],
  ratelimit: ['requests', 'x,limit=5,duration=1000', 'requests,cost=2', ',', 'x,cost=1e9'],
}

/** @returns the status of each, in order. @throws Error for the first wrong or missing answer. */
async function sendAll(
  url: string,
  requests: readonly HostileRequest[],
  {
    fixture,
    concurrency,
    transport,
    where,
  }: {
    fixture: Fixture
    concurrency: number
    transport: Transport
    where: string
  },
): Promise<number[]> {
  const statuses: number[] = new Array(requests.length).fill(0)
  const underWay = new Set<HostileRequest>()
  let next = 0
  const lane = async () => {
    for (let at = next++; at < requests.length; at = next++) {
      const request = requests[at] as HostileRequest // in range
      underWay.add(request)
      const { status, problem } = await send(url, request, { keys: fixture.keys, transport })
      if (problem !== null) throw new Error(`${where}: ${problem}: ${describe(request)}`)
      underWay.delete(request)
      statuses[at] = status
    }
  }
  const hung = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    const list = [...underWay].map(describe).join('\n')
    hung.reject(new Error(`${where}: no answer within ${HANG_MS} ms: ${list}`))
  }, HANG_MS)
  await Promise.race([Promise.all(Array.from({ length: concurrency }, lane)), hung.promise]).finally(() =>
    clearTimeout(timer),
  )
  return statuses
}

/** For a whole batch. */
const HANG_MS = 120_000

async function send(
  url: string,
  request: HostileRequest,
  { keys, transport }: { keys: Fixture['keys']; transport: Transport },
): Promise<{ status: number; problem: string | null }> {
  const { endpoint, caller, method, target, contentType, body } = request
  const headers: Record<string, string> = {}
  const key = keys[caller]
  if (key !== null) headers.authorization = `Bearer ${key}`
  // An empty text, because `fetch` would otherwise set one.
  headers['content-type'] = contentType ?? ''
  const response = await transport(url + target, { method, headers, body: method === 'GET' ? null : body })
  const { status } = response
  const text = await response.text()
  if (status >= 500) return { status, problem: `answered ${status} ${text}` }
  if (method === 'HEAD' || method === 'OPTIONS') return { status, problem: null }
  let reply: Reply
  try {
    reply = JSON.parse(text) as Reply // read field by field below
  } catch {
    return { status, problem: `answered ${status} with what is no JSON: ${text.slice(0, 200)}` }
  }
  if (status < 300) return { status, problem: status === endpoint.status ? null : `answered ${status}` }
  const { name, says, requestId } = refusalOf(endpoint, reply)
  const isKnown =
    namesOf(endpoint).has(name) || (method !== endpoint.method && (status === 404 || status === 405))
  const isWhole =
    typeof says === 'string' && says !== '' && requestId === response.headers.get('unkey-request-id')
  return { status, problem: isKnown && isWhole ? null : `answered ${status} ${text.slice(0, 300)}` }
}

/** The body of a refusal, in either API. */
type Reply = {
  error?: { code?: string; message?: unknown; requestId?: unknown; type?: string; detail?: unknown }
  meta?: { requestId?: unknown }
}
type Refusal = { name: string; says: unknown; requestId: unknown }

const isV2 = ({ path }: Endpoint) => path.startsWith('/v2/')

function refusalOf(endpoint: Endpoint, { error = {}, meta = {} }: Reply): Refusal {
  if (isV2(endpoint))
    return { name: error.type?.replace(TYPE_BASE, '') ?? '', says: error.detail, requestId: meta.requestId }
  return { name: error.code ?? '', says: error.message, requestId: error.requestId }
}

/** Codes, in v2 types, of the errors that the description lists. */
const namesOf = (endpoint: Endpoint): ReadonlySet<string> => {
  let names = listed.get(endpoint)
  if (names === undefined) {
    const method = endpoint.path.replace(/^\/v\d\//, '')
    names = new Set(
      isV2(endpoint) ? V2.errorsOf(method, endpoint, '').map(({ name }) => name) : endpoint.errors,
    )
    listed.set(endpoint, names)
  }
  return names
}
const listed = new Map<Endpoint, ReadonlySet<string>>()

const describe = ({ caller, method, target, contentType, body }: HostileRequest) =>
  `${method} ${target} as ${caller}, ${contentType}: ${String(body).slice(0, 2000)}`

/** Finds those that write, by sending each alone. */
async function findGuilty(
  { url, server }: TestServer,
  refused: readonly HostileRequest[],
  fixture: Fixture,
): Promise<HostileRequest[]> {
  const guilty: HostileRequest[] = []
  for (const request of refused) {
    await takeWrites(server.deps.sql)
    await send(url, request, { keys: fixture.keys, transport: fetch })
    if ((await readWrites(server.deps.sql)).length > 0) guilty.push(request)
    if (guilty.length === 5) break
  }
  return guilty
}

/** Waits for the import of enqueued keys, which happens outside of any request. */
async function importsDone({ server: { deps } }: TestServer): Promise<void> {
  for (let waitMs = 0; waitMs < 60_000; waitMs += 20) {
    const [row] = await deps.sql<{ count: number }[]>`
      select count(*) as count from key_imports where failed_at is null and next_at <= ${deps.clock()}`
    if (row?.count === 0) return
    await Bun.sleep(20)
  }
  throw new Error('keys are still waiting to be imported')
}

/** Makes the database record every written row. Rolled-back writes leave no record. */
async function watchWrites(sql: AnySql): Promise<void> {
  const tables = await sql<{ name: string }[]>`
    select c.relname as name
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'public' and c.relkind = 'r' and not c.relispartition
       and c.relname not like 'usage%' and c.relname not in ('ratelimit_windows', 'ratelimit_segments', 'server_marks', 'servers')
     order by 1`
  if (tables.length < 15) throw new Error('the tables are not where they were')
  await sql`create table hostile_writes (name text not null, rows bigint not null)`
  await sql`
    create function hostile_note() returns trigger language plpgsql as $$
    declare n bigint;
    begin
      if tg_op = 'DELETE' then select count(*) into n from gone; else select count(*) into n from made; end if;
      if n > 0 then insert into hostile_writes values (tg_table_name, n); end if;
      return null;
    end $$`
  for (const { name } of tables) {
    const table = sql(name)
    for (const [event, rows] of [
      ['insert', 'new table as made'],
      ['update', 'new table as made'],
      ['delete', 'old table as gone'],
    ] as const)
      await sql`
        create trigger ${sql(`hostile_${event}`)} after ${sql.unsafe(event)} on ${table}
          referencing ${sql.unsafe(rows)} for each statement execute function hostile_note()`
  }
}

const readWrites = async (sql: AnySql): Promise<string[]> =>
  (await sql<{ name: string }[]>`select distinct name from hostile_writes order by 1`).map(({ name }) => name)

/** @returns the number of rows written since the last call. */
async function takeWrites(sql: AnySql): Promise<number> {
  const [row] = await sql<{ rows: number }[]>`
    with taken as (delete from hostile_writes returning rows)
    select coalesce(sum(rows), 0)::bigint as rows from taken`
  return row?.rows ?? 0
}

/** `bun run hostile --requests 2000000 --watched 200000 --seed 1` */
export async function runApiCampaigns(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      requests: { type: 'string', default: '2000000' },
      watched: { type: 'string', default: '200000' },
      seed: { type: 'string', default: '1' },
    },
  })
  const requests = Number(values.requests)
  const watched = Number(values.watched)
  for (const [count, watches] of [
    [watched, true],
    [requests - watched, false],
  ] as const) {
    await using server = await startHostileServer()
    let shownAt = 0
    const options = { requests: count, batch: 2000, seed: Number(values.seed), concurrency: 16, watches }
    const report = await runCampaign(server, options, ({ drawn, sent, seconds, heapMib, residentMib }) => {
      if (seconds - shownAt < 10) return
      shownAt = seconds
      console.log(
        `${drawn} drawn, ${sent} sent, ${Math.round(sent / seconds)}/s, heap ${heapMib.join(' ')} MiB, resident ${residentMib.join(' ')} MiB`,
      )
    })
    console.log(JSON.stringify(report, null, 2))
  }
}
