import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../../src/db/connect.ts'
import { TEST_DATABASE_URL } from '../../support/database.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** On the embedded database all share one session: there a lock blocks everything. */
const onRealPostgres = test.if(TEST_DATABASE_URL !== null)

/** Methods that read history, with the table that they read. */
const QUESTIONS: Record<
  string,
  { table: string; query: (made: { apiId: string; keyId: string; namespaceId: string }) => Json }
> = {
  'analytics.getVerifications': { table: 'usage_keyspace_hours', query: ({ apiId }) => ({ apiId }) },
  'analytics.getRatelimits': { table: 'usage_ratelimits', query: ({ namespaceId }) => ({ namespaceId }) },
  'keys.getVerifications': { table: 'usage_verifications', query: ({ keyId }) => ({ keyId }) },
  'audit.listEvents': { table: 'audit_events', query: () => ({}) },
}

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({
    // No flush in the meantime: it would wait for the same lock.
    env: { TOLLGATE_DB_TIMEOUT_MS: '1500', TOLLGATE_FLUSH_MS: '60000' },
  })
})
afterAll(() => server[Symbol.asyncDispose]())

/** Bug: four slow ones used all connections of a thread, and ran on in Postgres after their callers had given up. */
onRealPostgres.each(Object.keys(QUESTIONS))(
  '%s: slow ones take nothing from credits and new keys, and end in Postgres when they are given up',
  async (method) => {
    const workspace = await server.workspace()
    const made = await makeAll(workspace)
    const question = QUESTIONS[method]
    if (question === undefined) throw new Error('no such question')
    const rootKey = method.startsWith('analytics') ? made.readingRootKey : workspace.rootKey
    const ask = () => server.get(method, question.query(made), rootKey)
    expect((await ask()).status).toBe(200)

    const url = server.server.deps.config.databaseUrl ?? ''
    await using aside = disposable(connect({ kind: 'url', url }, { connectionsMax: 2 }))
    const { sql } = aside
    const waitingInPostgres = async () => {
      const [row] = await sql<{ count: number }[]>`
        select count(*) as count from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`
      return row?.count
    }
    await sql.begin(async (tx) => {
      await tx`lock table ${tx(question.table)} in access exclusive mode`
      const asked = Promise.all(Array.from({ length: 8 }, ask))
      while ((await waitingInPostgres()) !== 2) await Bun.sleep(10)
      for (const { key } of made.keys) {
        const { body } = await server.post('keys.verifyKey', { key })
        expect(body).toMatchObject({ valid: true, remaining: 9 })
      }
      expect(await waitingInPostgres()).toBe(2)
      expect((await asked).map(({ status }) => status)).toEqual(Array.from({ length: 8 }, () => 500))
      while ((await waitingInPostgres()) !== 0) await Bun.sleep(10) // the lock is still held
      expect((await server.get('liveness')).body.services.database).toBe('ok')
    })
    expect((await ask()).status).toBe(200)
  },
)

async function makeAll(workspace: TestWorkspace) {
  const apiId = await makeApi(workspace)
  const keys = await Promise.all(
    Array.from({ length: 4 }, () => makeKey(workspace, apiId, { remaining: 10 })),
  )
  const { keyId = '' } = keys[0] ?? {}
  const name = 'some namespace'
  await workspace.post('ratelimits.limit', {
    namespace: name,
    identifier: 'user',
    limit: 1,
    duration: 60_000,
  })
  const [namespace] = (await workspace.get('ratelimits.listNamespaces')).namespaces
  // Of these two, one accepts only this permission, and not `*`.
  const readingRootKey = await workspace.rootKeyWith('api.*.read_api', 'ratelimit.*.read_namespace')
  return { apiId, keyId, keys, namespaceId: namespace.id, readingRootKey }
}

const disposable = (sql: ReturnType<typeof connect>) => ({
  sql,
  [Symbol.asyncDispose]: () => sql.end({ timeout: 0 }),
})
