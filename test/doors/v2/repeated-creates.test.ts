import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { CreateAnswers, KEYED_MS, UNANSWERED_MS } from '../../../src/api/idempotency/answers.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../../support/database.ts'
import { makeApi } from '../../support/fixtures.ts'
import { failBehindCommits } from '../../support/lost-answers.ts'
import { spawnServer } from '../../support/process.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { callV2, dataOf, refusalOf } from './common-cases.ts'

/** Creates of the v2 API that are sent again, as its client does after a 5xx. */
setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let server: TestServer
let mine: TestWorkspace
let apiId: string
let now = Date.now()
beforeAll(async () => {
  database = await openTestDatabase()
  server = await startTestServer({ database, clock: () => now })
  mine = await server.workspace()
  apiId = await makeApi(mine)
})
afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

let count = 0
const unique = () => `made.${++count}`
/** Creates, with a new body for each call of `body`, and how many things its call has made. */
const CREATES: { name: string; body: () => Json | Promise<Json>; made: (body: Json) => Promise<number> }[] = [
  {
    name: 'apis.createApi',
    body: () => ({ name: unique() }),
    made: ({ name }) => rows('select from apis where name = $1', name),
  },
  {
    name: 'keys.createKey',
    body: () => ({ apiId, name: unique() }),
    made: ({ name }) => rows('select from keys where name = $1', name),
  },
  {
    name: 'keys.rerollKey',
    body: async () => ({
      keyId: (await dataOf(call('keys.createKey', { apiId, name: unique() }))).keyId,
      expiration: 60_000,
    }),
    made: ({ keyId }) => rows('select from keys where id = $1 and successor_id is not null', keyId),
  },
  {
    name: 'keys.migrateKeys',
    body: () => ({
      migrationId: 'moved',
      apiId,
      keys: [{ hash: Bun.SHA256.hash(unique(), 'hex'), name: unique() }],
    }),
    made: ({ keys }) => rows('select from keys where name = $1', keys[0].name),
  },
  {
    name: 'identities.createIdentity',
    body: () => ({ externalId: unique() }),
    made: ({ externalId }) => rows('select from identities where external_id = $1', externalId),
  },
  {
    name: 'permissions.createPermission',
    body: () => ({ name: 'made', slug: unique() }),
    made: ({ slug }) => rows('select from permissions where slug = $1', slug),
  },
  {
    name: 'permissions.createRole',
    body: () => ({ name: unique() }),
    made: ({ name }) => rows('select from roles where name = $1', name),
  },
]

const rows = async (query: string, value: string) =>
  (await server.server.deps.sql.unsafe(query, [value])).length
const call = (name: string, body: Json, headers: Record<string, string> = {}, rootKey = mine.rootKey) =>
  callV2(server, name, body, rootKey, headers)
const unanswered = async () =>
  (await server.server.deps.sql`select from create_answers where attempt <> ''`).length

/** Runs a call whose transaction is committed and whose answer is then lost. */
async function failing<T>(run: () => Promise<T>): Promise<T> {
  const stop = failBehindCommits(server)
  return await run().finally(stop)
}

describe.each(CREATES)('$name', ({ name, body: newBody, made }) => {
  test('that failed behind its commit is not carried out twice, and answers when it is sent again', async () => {
    const body = await newBody()
    const lost = await failing(() => call(name, body))
    expect(lost.status).toBe(500)
    expect(await made(body)).toBe(1)
    const answer = await dataOf(call(name, body))
    expect(await made(body)).toBe(1)
    expect(await unanswered()).toBe(0)
    await expectIsReal(answer)
    // Whoever sends it now has the answer, and means another one.
    const { status, body: second } = await call(name, body)
    if (status === 200) expect(second.data).not.toEqual(answer)
    else expect([409, 412]).toContain(status)
  })

  test('with an Idempotency-Key has one answer for ten minutes, also of several calls at once', async () => {
    const body = await newBody()
    const key = { 'Idempotency-Key': unique() }
    const answers = await Promise.all(Array.from({ length: 4 }, () => dataOf(call(name, body, key))))
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1)
    expect(await made(body)).toBe(1)
    now += KEYED_MS - 1
    expect(await dataOf(call(name, body, key))).toEqual(answers[0])
    expect(await made(body)).toBe(1)
    now += 1
    const { status, body: later } = await call(name, body, key)
    if (status === 200) expect(later.data).not.toEqual(answers[0])
    else expect([409, 412]).toContain(status)
  })

  test('that is refused keeps nothing, with or without an Idempotency-Key', async () => {
    const body = await newBody()
    const key = { 'Idempotency-Key': unique() }
    const weak = await mine.post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] })
    for (const headers of [{}, key]) {
      const [status] = await refusalOf(call(name, body, headers, weak.rootKey))
      expect([403, 404]).toContain(status)
    }
    await dataOf(call(name, body, key))
    expect(await made(body)).toBe(1)
  })
})

/** A text belongs to the key of the id that is answered with it. */
async function expectIsReal(answer: Json): Promise<void> {
  if (typeof answer.key !== 'string') return
  const { data } = (await call('keys.verifyKey', { key: answer.key })).body
  expect([data.code, data.keyId]).toEqual(['VALID', answer.keyId])
}

test('equal creates that are answered make one thing each, also at once', async () => {
  const body = { apiId, name: unique() }
  const keys = await Promise.all(Array.from({ length: 8 }, () => dataOf(call('keys.createKey', body))))
  expect(new Set(keys.map(({ keyId }) => keyId)).size).toBe(8)
  expect(await unanswered()).toBe(0)
})

test('of equal creates that were lost, each is answered once', async () => {
  const body = { apiId, name: unique() }
  await failing(() => Promise.all(Array.from({ length: 3 }, () => call('keys.createKey', body))))
  const again = await Promise.all(Array.from({ length: 4 }, () => dataOf(call('keys.createKey', body))))
  expect(new Set(again.map(({ keyId }) => keyId)).size).toBe(4)
  expect(await rows('select from keys where name = $1', body.name)).toBe(4)
})

test('what was lost is answered to the same root key alone, for the same body alone, and for a minute', async () => {
  const body = { name: unique() }
  const lost = async () => expect((await failing(() => call('apis.createApi', body))).status).toBe(500)
  const made = async () => await rows('select from apis where name = $1', body.name)
  await lost()
  const other = await mine.post('rootKeys.createRootKey', { permissions: ['*'] })
  await dataOf(call('apis.createApi', body, {}, other.rootKey))
  await dataOf(call('apis.createApi', { name: `${body.name} too` }))
  expect(await made()).toBe(2)
  await dataOf(call('apis.createApi', body))
  expect(await made()).toBe(2)
  await lost()
  now += UNANSWERED_MS
  await dataOf(call('apis.createApi', body))
  expect(await made()).toBe(4)
})

test('an Idempotency-Key belongs to one body, one method and one root key', async () => {
  const key = { 'Idempotency-Key': unique() }
  const [body, other] = [{ name: unique() }, { name: unique() }]
  const first = await dataOf(call('apis.createApi', body, key))
  expect(await refusalOf(call('apis.createApi', other, key))).toEqual([
    400,
    'unkey/application/invalid_input',
  ])
  expect(await rows('select from apis where name = $1', other.name)).toBe(0)
  await dataOf(call('permissions.createRole', { name: body.name }, key))
  const another = await mine.post('rootKeys.createRootKey', { permissions: ['*'] })
  expect(await dataOf(call('apis.createApi', body, key, another.rootKey))).not.toEqual(first)
  expect(await dataOf(call('apis.createApi', body, key))).toEqual(first)
})

test.each([
  ['empty', ''],
  ['of 256 characters', 'k'.repeat(256)],
])('an Idempotency-Key that is %s is refused, and one of 255 characters is not', async (_, text) => {
  const body = { name: unique() }
  expect((await refusalOf(call('apis.createApi', body, { 'Idempotency-Key': text })))[0]).toBe(400)
  expect(await rows('select from apis where name = $1', body.name)).toBe(0)
  await dataOf(call('apis.createApi', body, { 'Idempotency-Key': String(count).padStart(255, 'k') }))
})

test('nothing that is kept can be read without the root key', async () => {
  const body = { apiId, name: unique() }
  const { key, keyId } = await dataOf(call('keys.createKey', body, { 'Idempotency-Key': 'readable?' }))
  const kept = await server.server.deps.sql<Record<string, unknown>[]>`select * from create_answers`
  const texts = kept.flatMap((row) =>
    Object.values(row).map((value) =>
      value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : String(value),
    ),
  )
  for (const secret of [key, keyId, body.name, 'readable?', mine.rootKey])
    expect(texts.filter((text) => text.includes(secret))).toEqual([])
})

test('a call that hangs so long that an equal one is answered in its place is not answered with the same', async () => {
  const before = await unanswered()
  const { sql, clock } = server.server.deps
  const [one, other] = [new CreateAnswers({ sql, clock }), new CreateAnswers({ sql, clock })]
  const call = { path: '/v2/apis.createApi', key: null, body: unique() }
  const workspaceId = mine.workspaceId as WorkspaceId // as the server returned it
  const hangs = one.attempt<string>('root key', call)
  const next = other.attempt<string>('root key', call)
  let answered: unknown = null
  const hanging = hangs.carryOut(async () => {
    await hangs.find(workspaceId)
    await server.server.deps.database.write((tx) => hangs.keep(tx, 'made once'))
    answered = await next.carryOut(async () => {
      await next.find(workspaceId)
      return 'made twice'
    })
    return 'made once'
  })
  await expect(hanging).rejects.toThrow('an equal call took this one for lost')
  expect(answered).toBe('made once')
  expect(await unanswered()).toBe(before)
})

test('of two equal calls that read the list of what was lost at once, one takes it and the other makes its own', async () => {
  const { sql, clock } = server.server.deps
  let held = Promise.resolve()
  /** Hands the rows of a query on only when `held` is done. */
  const slowly = ((...query: Parameters<typeof sql>) => {
    const until = held
    return sql(...query).then(async (rows) => {
      await until
      return rows
    })
  }) as unknown as typeof sql // all that is called
  const answers = new CreateAnswers({ sql: slowly, clock })
  const call = { path: '/v2/apis.createApi', key: null, body: unique() }
  const workspaceId = mine.workspaceId as WorkspaceId // as the server returned it
  const make = (made: string, isLost = false) => {
    const attempt = answers.attempt<string>('root key', call)
    return attempt.carryOut(async () => {
      await attempt.find(workspaceId)
      await server.server.deps.database.write((tx) => attempt.keep(tx, made))
      if (isLost) throw new Error('the connection broke behind the commit')
      return made
    })
  }
  await expect(make('lost', true)).rejects.toThrow('broke behind')
  const gate = Promise.withResolvers<void>()
  held = gate.promise
  const late = make('its own')
  held = Promise.resolve()
  expect(await make('not made')).toBe('lost')
  gate.resolve()
  expect(await late).toBe('its own')
})

/** The deletion of the answer hangs, so the server dies between the commit and the answer. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a create whose server was killed behind its commit is answered by another server, and made once',
  async () => {
    await using database = await openTestDatabase()
    const start = () =>
      spawnServer({
        DATABASE_URL: database.databaseUrl ?? '',
        TOLLGATE_DATA_DIR: database.dataDir,
        TOLLGATE_HTTP_THREADS: '1',
      })
    const first = await start()
    const { apiId } = (await first.post('apis.createApi', { name: 'killed' }, OPERATOR_KEY)).body
    const { default: postgres } = await import('postgres')
    await using sql = Object.assign(postgres(database.databaseUrl ?? '', { max: 1 }), {
      [Symbol.asyncDispose]: async () => await sql.end(),
    })
    await sql`
      create function hang() returns trigger language plpgsql as $$ begin perform pg_sleep(600); return old; end $$`
    await sql`create trigger hang before delete on create_answers for each row execute function hang()`
    const body = { apiId, name: 'once' }
    const made = async () => (await sql`select from keys where name = 'once'`).length
    const cut = first.post('/v2/keys.createKey', body, OPERATOR_KEY).catch(() => null)
    while ((await made()) === 0) await Bun.sleep(5)
    await first.end('SIGKILL')
    await cut
    await sql`
      select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and query like '%create_answers%' and pid <> pg_backend_pid()`
    await sql`drop trigger hang on create_answers`
    await using second = await start()
    const { data } = (await second.post('/v2/keys.createKey', body, OPERATOR_KEY)).body
    expect(await made()).toBe(1)
    const verified = (await second.post('/v2/keys.verifyKey', { key: data.key }, OPERATOR_KEY)).body.data
    expect([verified.code, verified.keyId]).toEqual(['VALID', data.keyId])
    expect((await second.post('/v2/keys.createKey', body, OPERATOR_KEY)).status).toBe(200)
    expect(await made()).toBe(2)
  },
)
