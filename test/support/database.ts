import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import packageJson from '../../package.json' with { type: 'json' }
import { connect, type DatabaseAddress, type Sql } from '../../src/db/connect.ts'
import { startEmbedded } from '../../src/db/embedded/embedded.ts'
import { migrate } from '../../src/db/migrate.ts'
import { DAY_MS } from '../../src/lib/clock.ts'

/**
 * A fresh, migrated database for one test file, removed afterwards. With TEST_DATABASE_URL it is on that Postgres;
 * otherwise it is an embedded one, copied from a template that is made once for each state of `sql/`.
 */
export type TestDatabase = AsyncDisposable & {
  /** Value of `DATABASE_URL`; null = start the embedded database in `dataDir`. */
  databaseUrl: string | null
  /** A new folder below the system's temporary folder. Value of `TOLLGATE_DATA_DIR`. */
  dataDir: string
}

/** The Postgres for the suite; null = embedded. */
export const TEST_DATABASE_URL = process.env.TEST_DATABASE_URL || null

export async function openTestDatabase(): Promise<TestDatabase> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-'))
  if (TEST_DATABASE_URL === null) {
    await copyEmbedded(dataDir)
    return {
      databaseUrl: null,
      dataDir,
      [Symbol.asyncDispose]: async () => rmSync(dataDir, { recursive: true, force: true }),
    }
  }
  const name = `tollgate_test_${Math.floor(Date.now() / 1000)}_${crypto.randomUUID().slice(0, 8)}`
  const url = new URL(TEST_DATABASE_URL)
  url.pathname = `/${name}`
  await administer(TEST_DATABASE_URL, async (sql) => {
    await dropLeftovers(sql)
    await sql`create database ${sql(name)} template ${sql(await postgresTemplate(sql, TEST_DATABASE_URL))}`
  })
  return {
    databaseUrl: url.href,
    dataDir,
    [Symbol.asyncDispose]: async () => {
      await administer(TEST_DATABASE_URL ?? '', (admin) => giveBack(admin, name))
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

/**
 * A file that gets the names of databases nobody needs any more, for `bun test/support/database.ts <file>` to drop when the
 * run ends; null = each is dropped at once. ext4 gives out the inode of a deleted file only minutes later, and until then
 * looks at it for each new file: making a database of 550 files takes 0.3 s of CPU next to dropped ones, else 0.1 s.
 */
const DROP_LATER = process.env.TEST_DROP_LATER || null

async function giveBack(sql: Sql, name: string): Promise<void> {
  if (DROP_LATER === null) await drop(sql, name)
  else {
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name}`
    appendFileSync(DROP_LATER, `${name}\n`)
  }
}

const drop = async (sql: Sql, name: string) =>
  void (await sql`drop database if exists ${sql(name)} with (force)`)

/** A pool on a fresh database, for tests without a server. */
export type TestSql = AsyncDisposable & {
  sql: Sql
  address: DatabaseAddress
  /** Opens another pool on the same database, as another thread would. Closed with the rest. */
  anotherPool(): Sql
}

export async function openTestSql(): Promise<TestSql> {
  const database = await openTestDatabase()
  const embedded = database.databaseUrl === null ? await startEmbedded(database.dataDir) : null
  const address: DatabaseAddress = embedded?.address ?? { kind: 'url', url: database.databaseUrl ?? '' }
  const pools: Sql[] = []
  const anotherPool = () => {
    const sql = connect(address, { connectionsMax: 2 })
    pools.push(sql)
    return sql
  }
  return {
    sql: anotherPool(),
    address,
    anotherPool,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(pools.map((sql) => sql.end({ timeout: 1 })))
      await embedded?.stop()
      await database[Symbol.asyncDispose]()
    },
  }
}

/** Copies a migrated embedded database into a data directory, so that its server starts in well under a second. */
export async function copyEmbedded(dataDir: string): Promise<void> {
  cpSync(join(await embeddedTemplate(), 'postgres'), join(dataDir, 'postgres'), { recursive: true })
}

/** Runs `work` with one connection to the database from which test databases are created. */
async function administer(url: string, work: (sql: Sql) => Promise<unknown>): Promise<void> {
  const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
  try {
    await work(sql)
  } finally {
    await sql.end()
  }
}

/** Drops databases of killed runs (the names contain the time, and no run lasts an hour), and templates of earlier days. */
async function dropLeftovers(sql: Sql): Promise<void> {
  const rows = await sql<{ name: string }[]>`
    select datname as name from pg_database where datname ~ '^tollgate_test_[0-9]+_'`
  const anHourAgo = Date.now() / 1000 - 3600
  for (const { name } of rows) {
    if (Number(name.split('_')[2]) < anHourAgo) await drop(sql, name)
  }
  const aDayAgo = Date.now() / 1000 - DAY_MS / 1000
  const templates = await sql<{ name: string; madeAt: string | null }[]>`
    select datname as name, shobj_description(oid, 'pg_database') as "madeAt"
      from pg_database
     where datname ~ '^tollgate_test_template_'`
  for (const { name, madeAt } of templates) if (Number(madeAt ?? Infinity) < aDayAgo) await drop(sql, name)
}

/**
 * @returns the name of a migrated database without connections, on the suite's Postgres. Concurrent test files wait until
 *   the first of them has created it.
 */
async function postgresTemplate(sql: Sql, suiteUrl: string): Promise<string> {
  const name = `tollgate_test_template_${templateVersion()}`
  const isThere = async () => (await sql`select 1 from pg_database where datname = ${name}`).length > 0
  if (await isThere()) return name
  // A lock of the session: this pool has one connection, and is closed when the database exists.
  await sql`select pg_advisory_lock(hashtext(${name}))`
  if (await isThere()) return name
  const part = `${name}_part`
  await drop(sql, part)
  await sql`create database ${sql(part)}`
  const url = new URL(suiteUrl)
  url.pathname = `/${part}`
  await administer(url.href, (admin) => migrate(admin))
  await sql`comment on database ${sql(part)} is ${sql.unsafe(`'${Math.floor(Date.now() / 1000)}'`)}`
  await sql`alter database ${sql(part)} rename to ${sql(name)}`
  return name
}

/** @returns a data directory with a migrated database. The first caller makes it, others wait for it: each making takes 1 GB. */
async function embeddedTemplate(): Promise<string> {
  const prefix = `tollgate-test-template-${process.getuid?.() ?? 0}-`
  const path = join(tmpdir(), prefix + templateVersion())
  const lock = `${path}-lock`
  while (!takeLock(lock)) {
    if (existsSync(path)) return path
    await Bun.sleep(100)
  }
  try {
    if (!existsSync(path)) await makeTemplate(path, prefix)
  } finally {
    rmSync(lock, { recursive: true, force: true })
  }
  return path
}

/** False = another process has it, or had it and was killed less than five minutes ago. */
function takeLock(lock: string): boolean {
  const stats = statSync(lock, { throwIfNoEntry: false })
  if (stats !== undefined && stats.mtimeMs < Date.now() - 300_000)
    rmSync(lock, { recursive: true, force: true })
  try {
    mkdirSync(lock)
    return true
  } catch {
    return false
  }
}

async function makeTemplate(path: string, prefix: string): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    const old = join(tmpdir(), name)
    const isOld = name.startsWith(prefix) && statSync(old).mtimeMs < Date.now() - DAY_MS
    if (isOld) rmSync(old, { recursive: true, force: true })
  }
  const part = mkdtempSync(`${path}-part-`)
  const embedded = await startEmbedded(part)
  const sql = connect(embedded.address, { connectionsMax: 1 })
  await migrate(sql)
  await sql.end()
  await embedded.stop()
  renameSync(part, path)
}

/** A hash of everything that the template is made from. */
function templateVersion(): string {
  const root = join(import.meta.dir, '../..')
  const hash = new Bun.CryptoHasher('sha256').update(packageJson.dependencies['@electric-sql/pglite'])
  for (const name of readdirSync(join(root, 'sql')).sort())
    hash.update(name).update(readFileSync(join(root, 'sql', name)))
  return hash.digest('hex').slice(0, 16)
}

if (import.meta.main) {
  const names = readFileSync(process.argv[2] ?? '', 'utf8')
    .split('\n')
    .filter(Boolean)
  const dropOthers = async (sql: Sql) => {
    for (let name = names.pop(); name !== undefined; name = names.pop()) await drop(sql, name)
  }
  await Promise.all([1, 2, 3, 4].map(() => administer(TEST_DATABASE_URL ?? '', dropOthers)))
}
