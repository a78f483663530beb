import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, type Sql } from '../../src/db/connect.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-restore-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const post = async (server: ServerProcess, method: string, body: unknown) =>
  (await server.post(method, body, OPERATOR_KEY)).body

async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 3_000; attempt++) {
    if (await isSo()) return
    await Bun.sleep(20)
  }
  throw new Error(`never: ${what}`)
}

async function tool(...words: string[]): Promise<void> {
  const child = Bun.spawn(words, { stdout: 'pipe', stderr: 'pipe' })
  if ((await child.exited) !== 0) throw new Error(`${words[0]}: ${await new Response(child.stderr).text()}`)
}

/** Restores a dump under running servers, into a new database of the same name. */
async function replace(url: string, dump: string): Promise<void> {
  const name = new URL(url).pathname.slice(1)
  const admin = connect({ kind: 'url', url: TEST_DATABASE_URL ?? '' }, { connectionsMax: 1 })
  await admin`drop database ${admin(name)} with (force)`
  await admin`create database ${admin(name)} template template0`
  await admin.end()
  await tool('pg_restore', '--exit-on-error', '--single-transaction', `--dbname=${url}`, dump)
}

const HAS_TOOLS = Bun.which('pg_dump') !== null && Bun.which('pg_restore') !== null

test.if(TEST_DATABASE_URL !== null && HAS_TOOLS)(
  'an older state restored under a running server: keys and credits are those of the restored one, limits go on, and usage counts once',
  async () => {
    await using database = await openTestDatabase()
    const url = database.databaseUrl ?? ''
    const env = { DATABASE_URL: url, TOLLGATE_DATA_DIR: database.dataDir, TOLLGATE_SHARDS: '1' }
    await using server = await spawnServer(env)
    const { apiId } = await post(server, 'apis.createApi', { name: 'restored' })
    const old = await post(server, 'keys.createKey', { apiId })
    const paid = await post(server, 'keys.createKey', { apiId, remaining: 10 })
    const verify = async ({ key }: { key: string }) => (await server.post('keys.verifyKey', { key })).body
    const limit = (of: ServerProcess) =>
      post(of, 'ratelimits.limit', { namespace: 'n', identifier: 'i', limit: 10, duration: 86_400_000 })
    await verify(paid)
    expect((await limit(server)).remaining).toBe(9)
    await verify(old)
    await verify(old)
    const countsOf = async (sql: Sql) => {
      const [row] = await sql<{ valid: number }[]>`
        select coalesce(sum(valid), 0)::bigint as valid from usage_verifications where key_id = ${old.keyId}`
      return row?.valid ?? 0
    }
    const before = connect({ kind: 'url', url }, { connectionsMax: 1 })
    await until('usage is written', async () => (await countsOf(before)) === 2)
    const dump = join(folder, 'older.dump')
    await tool('pg_dump', '--format=custom', `--file=${dump}`, url)

    // What the backup does not know: a key, spent credits, a limit that was used, a verification.
    const young = await post(server, 'keys.createKey', { apiId })
    expect((await verify(young)).valid).toBe(true)
    expect((await verify(paid)).remaining).toBe(8)
    expect((await limit(server)).remaining).toBe(8)
    await verify(old)
    await until('usage is written', async () => (await countsOf(before)) === 3)
    await until('windows are written', async () => (await before`select from ratelimit_segments`).length > 0)
    await before.end({ timeout: 1 })

    const replacing = replace(url, dump)
    // While there is no database, a cached key goes on. These two are in no batch that was answered.
    await until('the database is away', () => server.output().includes('"database_unavailable"'))
    expect([(await verify(old)).valid, (await verify(old)).valid]).toEqual([true, true])
    await replacing
    await until('the server notices', () => server.output().includes('"database_replaced"'))

    await until('the young key is gone', async () => (await verify(young)).code === 'NOT_FOUND')
    expect(await verify(paid)).toMatchObject({ valid: true, remaining: 8 }) // 9 in the backup
    expect((await limit(server)).remaining).toBe(7)
    const after = connect({ kind: 'url', url }, { connectionsMax: 1 })
    await until('usage is written', async () => (await countsOf(after)) >= 4)
    expect(await post(server, 'keys.createKey', { apiId, recoverable: false })).toMatchObject({
      key: expect.any(String),
    })
    expect(await server.end('SIGTERM')).toBe(0)
    expect(await countsOf(after)).toBe(4) // 2 of the backup, 2 that were not answered
    expect(await after`select from server_marks`).toHaveLength(0)
    await after.end({ timeout: 1 })

    // The window of before is in the restored database too, so a restart hands out nothing anew.
    await using next = await spawnServer({ ...env, TOLLGATE_DATA_DIR: join(folder, 'other') })
    expect((await limit(next)).remaining).toBe(6)
    for (const event of ['database_replaced_unusable', 'usage_batch_refused'])
      expect(server.output()).not.toContain(event)
  },
)
