import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { createLinger, LESS_THAN_LINGERING_MS } from '../../support/linger.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: LESS_THAN_LINGERING_MS } })
  const { sql } = server.server.deps
  await createLinger(sql)
  await sql`create trigger linger after update on keys for each statement execute function linger()`
})
afterAll(async () => await server[Symbol.asyncDispose]())

const KEYS = 15_000

/** An API that could never be deleted because it has too many keys would be worse than a slow answer. */
test.each(['apis.deleteApi', 'apis.deleteKeys'])('%s may take longer than other requests', async (method) => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId)
  const { sql, database } = server.server.deps
  await database.write(
    (tx) => tx`
      insert into keys (id, workspace_id, keyspace_id, hash, start, created_at)
      select new_id_like(k.id) || i, k.workspace_id, k.keyspace_id, k.id || i, '', 0
        from keys k join apis a using (keyspace_id), generate_series(1, ${KEYS}::integer) as i
       where a.id = ${apiId}`,
    { timeoutMs: SLOW_MS },
  )
  const reply = await workspace.post(method, { apiId })
  if (method === 'apis.deleteKeys') expect(reply).toEqual({ deletedKeys: KEYS + 1 })
  expect((await server.post('keys.verifyKey', { key })).body.code).toBe('NOT_FOUND')
  const [row] = await sql<{ total: number }[]>`
    select count(distinct id)::integer as total from audit_events
     where workspace_id = ${workspace.workspaceId} and event = 'key.delete'`
  expect(row).toEqual({ total: KEYS + 1 })
})
