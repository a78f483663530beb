import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Backup, type BackupHead, openBackup, writeBackup } from '../../src/db/backup/backup-file.ts'
import { dump } from '../../src/db/backup/dump.ts'
import { load } from '../../src/db/backup/load.ts'
import { BACKUP_SEQUENCES, BACKUP_TABLES, LEFT_OUT_TABLES } from '../../src/db/backup/tables.ts'
import { connect, type Sql } from '../../src/db/connect.ts'
import { knownMigrations, migrate } from '../../src/db/migrate.ts'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase, openTestSql, TEST_DATABASE_URL } from '../support/database.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-backup-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const fileNamed = (name: string) => join(folder, name)
/** Lines without the head, which has the time. */
async function contentOf(path: string): Promise<string[]> {
  const lines: string[] = []
  for await (const line of (await openBackup(path)).lines()) lines.push(line)
  return lines
}

/** A database that no server has used. */
type Place = AsyncDisposable & { env: Record<string, string> }

async function newPostgres(): Promise<Place & { sql: Sql }> {
  const name = `tollgate_test_${Math.floor(Date.now() / 1000)}_${crypto.randomUUID().slice(0, 8)}`
  const admin = connect({ kind: 'url', url: TEST_DATABASE_URL ?? '' }, { connectionsMax: 1 })
  await admin`create database ${admin(name)} template template0`
  const url = new URL(TEST_DATABASE_URL ?? '')
  url.pathname = `/${name}`
  const sql = connect({ kind: 'url', url: url.href }, { connectionsMax: 1 })
  return {
    env: { DATABASE_URL: url.href, TOLLGATE_DATA_DIR: fileNamed(`data-${name}`) },
    sql,
    [Symbol.asyncDispose]: async () => {
      await sql.end({ timeout: 1 })
      await admin`drop database ${admin(name)} with (force)`
      await admin.end()
    },
  }
}

const newEmbedded = (): Place => ({
  env: { TOLLGATE_DATA_DIR: fileNamed(crypto.randomUUID()) },
  [Symbol.asyncDispose]: async () => {},
})

/** @returns what it printed; fails unless it succeeds. */
async function run(words: string[], env: Record<string, string>): Promise<string> {
  const { out, err, code } = await runHere(words, { env })
  expect({ words, code, err }).toEqual({ words, code: 0, err: '' })
  return out
}

describe('a backup of a running server', () => {
  let server: TestServer
  let workspace: TestWorkspace
  let env: Record<string, string>
  let spent: { key: string; keyId: string }
  let recoverable: { key: string; keyId: string }
  const backup = fileNamed('running.backup')
  const limited = { namespace: 'mails', identifier: 'ada', limit: 10, duration: 86_400_000 }

  beforeAll(async () => {
    const database = await openTestDatabase()
    server = await startTestServer({ database })
    env = { TOLLGATE_DATA_DIR: database.dataDir, DATABASE_URL: database.databaseUrl ?? '' }
    workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const odd = 'a "quoted", (odd)\n\\name\\ 🗝️ with \t and '
    spent = await makeKey(workspace, apiId, { name: odd, remaining: 5, meta: { odd, none: null } })
    recoverable = await makeKey(workspace, apiId, { recoverable: true, externalId: 'user_1' })
    await server.post('keys.verifyKey', { key: spent.key, tags: ['path=/a', 'b'] })
    await workspace.post('ratelimits.limit', { ...limited, cost: 4 })
    await workspace.post('ratelimits.setOverride', {
      namespaceName: 'mails',
      identifier: 'vip*',
      limit: 99,
      duration: 60_000,
    })
    await server.server.deps.usage.flush()
    await server.server.shards.flush()
    const { sql } = server.server.deps
    // Months that a new database does not have, and rows of before the log had months.
    await sql`select make_usage_month(1700000000000), make_audit_month(1700000000000)`
    await sql`
      insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at, era)
      select 'log_old' || t.at, ${workspace.workspaceId}, 'key.create', 'key', 'key_1', '[]', '', t.at, t.era
        from (values (1700000000000, null::smallint), (1600000000000, null), (1500000000000, 0)) as t (at, era)`
    await run(['backup', backup], env)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  test('is readable by its owner alone, says its version and numbers of rows, and leaves no copy behind', async () => {
    expect(statSync(backup).mode & 0o777).toBe(0o600)
    const checked = JSON.parse(await run(['restore', backup, '--check', '--json'], {}))
    expect(checked).toMatchObject({ tollgateBackup: 1, version: expect.any(String), rows: { apis: 2 } })
    expect(checked.rows.audit_events).toBeGreaterThan(3)
    expect(checked.rows.ratelimit_segments).toBeGreaterThan(0)
    expect(readdirSync(env.TOLLGATE_DATA_DIR ?? '').filter((name) => name.startsWith('backup-'))).toEqual([])
    expect(readdirSync(folder).filter((name) => name.endsWith('.part'))).toEqual([])
  })

  test('restored, it holds the same rows, and a server goes on from them', async () => {
    await using place = TEST_DATABASE_URL === null ? newEmbedded() : await newPostgres()
    expect(await run(['restore', backup], place.env)).toContain(
      'recoverable keys need the vault key that servers of the backup had',
    )
    const again = fileNamed('again.backup')
    await run(['backup', again], place.env)
    expect(await contentOf(again)).toEqual(await contentOf(backup))

    const placed = { databaseUrl: place.env.DATABASE_URL ?? null, dataDir: place.env.TOLLGATE_DATA_DIR ?? '' }
    await using restored = await startTestServer({
      database: { ...placed, [Symbol.asyncDispose]: async () => {} },
    })
    const usage = await restored.get('keys.getVerifications', { keyId: spent.keyId }, workspace.rootKey)
    expect(usage.body.verifications).toMatchObject([{ success: 1 }])
    const { body } = await restored.post('keys.verifyKey', { key: spent.key })
    expect(body).toMatchObject({ valid: true, remaining: 3 })
    const asked = { keyId: recoverable.keyId, decrypt: true }
    expect((await restored.get('keys.getKey', asked, workspace.rootKey)).body.plaintext).toBe(recoverable.key)
    expect((await restored.post('ratelimits.limit', limited, workspace.rootKey)).body.remaining).toBe(5)
    // What is new comes after what was restored.
    await makeApi({
      ...workspace,
      post: async (method, body) => (await restored.post(method, body, workspace.rootKey)).body,
    })
  })

  // Two embedded databases are made, which takes 10 s.
  test.skipIf(TEST_DATABASE_URL === null || !IS_NIGHTLY)(
    'moves from a Postgres into an embedded database and back, row by row',
    async () => {
      const embedded = newEmbedded()
      await run(['restore', backup], embedded.env)
      const moved = fileNamed('moved.backup')
      await run(['backup', moved], embedded.env)
      expect((await openBackup(moved)).head.source).toStartWith('embedded Postgres ')
      expect(await contentOf(moved)).toEqual(await contentOf(backup))
      await using back = await newPostgres()
      await run(['restore', moved], back.env)
      const returned = fileNamed('returned.backup')
      await run(['backup', returned], back.env)
      expect(await contentOf(returned)).toEqual(await contentOf(backup))
    },
  )

  test('is not restored over a database that is in use, and overwrites no file', async () => {
    const { code, err } = await runHere(['restore', backup], { env })
    expect(code).toBe(1)
    expect(err).toMatch(/is not empty|embedded database in .* already/)
    expect((await server.post('keys.verifyKey', { key: spent.key })).body.valid).toBe(true)
    expect((await runHere(['backup', backup], { env })).err).toBe(
      `${backup} exists already; give another name\n`,
    )
  })

  test('a damaged, cut, foreign or newer file is refused in one line, before anything is touched', async () => {
    const bytes = readFileSync(backup)
    const place = newEmbedded()
    const refusalOf = async (name: string, content: Uint8Array | string) => {
      writeFileSync(fileNamed(name), content)
      const { code, out, err } = await runHere(['restore', fileNamed(name)], { env: place.env })
      expect({ code, out, lines: err.trim().split('\n').length }).toEqual({ code: 1, out: '', lines: 1 })
      return err
    }
    const changed = Buffer.from(bytes)
    changed[bytes.length - 200] = (bytes[bytes.length - 200] ?? 0) ^ 1
    expect(await refusalOf('changed', changed)).toContain('its checksum does not match')
    expect(await refusalOf('cut', bytes.subarray(0, -100))).toContain('is damaged: its end is missing')
    expect(await refusalOf('foreign', 'PGDMP')).toContain('is not a backup of Tollgate')
    expect(await refusalOf('empty', '')).toContain('is not a backup of Tollgate')
    const newer = '{"tollgateBackup":2,"version":"7.0.0"}\n'
    expect(await refusalOf('newer', newer)).toContain('has format 2, written by Tollgate 7.0.0')
    expect(await refusalOf('missing/file', '').catch(() => 'none')).toBe('none')
    expect((await runHere(['restore', fileNamed('nowhere')], { env: place.env })).err).toContain(
      'cannot be read',
    )
    expect(readdirSync(folder)).not.toContain(place.env.TOLLGATE_DATA_DIR?.split('/').at(-1))
  })
})

test('every table and sequence of a new database is in a backup, or left out by name', async () => {
  await using database = await openTestSql()
  const names = async (kinds: string) =>
    (
      await database.sql<{ name: string }[]>`
        select relname as name from pg_class
         where relnamespace = current_schema()::regnamespace and relkind = any(string_to_array(${kinds}, null)::"char"[])
           and not relispartition order by 1`
    ).map(({ name }) => name)
  expect(await names('rp')).toEqual([...BACKUP_TABLES, ...LEFT_OUT_TABLES].sort())
  expect(await names('S')).toEqual([...BACKUP_SEQUENCES].sort())
})

describe.skipIf(TEST_DATABASE_URL === null)('into a Postgres', () => {
  const options = { isPooled: false, isEmbedded: false }
  const path = fileNamed('older.backup')
  /** Of an earlier release. */
  let older: Backup
  beforeAll(async () => {
    await using place = await newPostgres()
    await migrate(place.sql, { only: (await knownMigrations()).filter((each) => each < '0046') })
    await place.sql`insert into settings (name, value) values ('database_id', 'older'), ('x', 'kept')`
    await dump(place.sql, path, { source: 'Postgres' })
    older = await openBackup(path)
  })
  /** The same with another head, or without some lines. */
  async function changed(
    name: string,
    { head = {}, without = 'nothing' }: { head?: Partial<BackupHead>; without?: string },
  ): Promise<string> {
    const lines = (async function* () {
      for await (const line of older.lines()) if (!line.includes(without)) yield `${line}\n`
    })()
    const { tollgateBackup: _, ...rest } = older.head
    await writeBackup(fileNamed(name), { ...rest, ...head }, lines)
    return fileNamed(name)
  }

  test('a backup of an earlier release is loaded into its own tables and migrated afterwards', async () => {
    await using place = await newPostgres()
    const { applied } = await load(place.sql, older, options)
    expect(applied[0]).toStartWith('0046_')
    expect(await place.sql`select value from settings where name = 'x'`).toMatchObject([{ value: 'kept' }])
    expect(await migrate(place.sql)).toEqual({ applied: [] })
  })

  test('when rows are missing nothing is stored, and the same database takes the next backup', async () => {
    const cut = await changed('short.backup', { without: 'kept' })
    await using place = await newPostgres()
    expect(await runHere(['restore', cut], { env: place.env })).toEqual({
      code: 1,
      out: '',
      err: 'the backup cannot be restored: table settings should have 3 rows; 0 were read, 0 stored; the database stays empty\n',
    })
    expect(await place.sql`select from settings where name = 'database_id'`).toHaveLength(0)
    await run(['restore', path], place.env)
    expect(await place.sql`select value from settings where name = 'x'`).toMatchObject([{ value: 'kept' }])
  })

  test('a backup of a newer release is refused with its version', async () => {
    const head = { version: '9.1.0', migrations: [...older.head.migrations, '9999_x.sql'] }
    const future = await changed('future.backup', { head })
    const env = { DATABASE_URL: TEST_DATABASE_URL ?? '', TOLLGATE_DATA_DIR: fileNamed('future') }
    for (const words of [[], ['--check']])
      expect((await runHere(['restore', future, ...words], { env })).err).toContain(
        'version 9.1.0 wrote it, with migration 9999_x.sql; use that version or a newer one',
      )
  })
})
