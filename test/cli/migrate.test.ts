import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { connect, type Sql } from '../../src/db/connect.ts'
import { VERSION } from '../../src/lib/version.ts'
import { runHere } from '../support/command-line.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let database: TestDatabase
let env: Record<string, string>
beforeAll(async () => {
  database = await openTestDatabase()
  env = { DATABASE_URL: database.databaseUrl ?? '', TOLLGATE_DATA_DIR: database.dataDir }
})
afterAll(() => database[Symbol.asyncDispose]())

const run = (...words: string[]) => runHere(['migrate', ...words], { env })

test('a database of this release has nothing to apply, planned or done', async () => {
  for (const words of [['--plan'], [], ['--contract']])
    expect(await run(...words)).toMatchObject({ code: 0, out: 'no migrations to apply\n', err: '' })
  expect(JSON.parse((await run('--plan', '--json')).out)).toEqual({ pending: [] })
  expect(JSON.parse((await run('--json')).out)).toEqual({ applied: [], later: [] })
})

test('a plan of what is done otherwise is a usage error', async () => {
  expect(await run('--plan', '--contract')).toMatchObject({ code: 2, out: '' })
})

test.skipIf(TEST_DATABASE_URL === null)(
  'a plan names each migration with its phase and its locks, and changes nothing',
  async () => {
    const sql: Sql = connect({ kind: 'url', url: database.databaseUrl ?? '' }, { connectionsMax: 1 })
    await sql`delete from tollgate_migrations where number in (27, 32)`
    const planned = await run('--plan')
    expect(planned.out).toBe(
      `0027_keys_by_owner.sql            expand    servers from ${VERSION}  locks keys (share)
0032_overrides_of_identifier.sql  expand    servers from ${VERSION}  locks ratelimit_overrides (share)
`,
    )
    expect(JSON.parse((await run('--plan', '--json')).out).pending).toMatchObject([
      { name: '0027_keys_by_owner.sql', phase: 'expand', locks: [{ table: 'keys', mode: 'share' }] },
      { name: '0032_overrides_of_identifier.sql' },
    ])
    expect(await sql`select from tollgate_migrations where number in (27, 32)`).toHaveLength(0)

    await sql`drop schema public cascade`
    await sql`create schema public`
    expect(JSON.parse((await run('--plan', '--json')).out).pending[0]).toMatchObject({
      name: '0001_tables.sql',
      locks: [],
    })
    expect(await sql`select from pg_class where relnamespace = 'public'::regnamespace`).toHaveLength(0)
    const { applied, later } = JSON.parse((await run('--json')).out)
    expect(applied[0]).toBe('0001_tables.sql')
    expect(later).toEqual([])
    await sql.end()
  },
)
