import { join } from 'node:path'
import { StartError } from '../errors.ts'
import { systemTimers, type Timers } from '../lib/timers.ts'
import { isOlder, VERSION } from '../lib/version.ts'
import { log } from '../log.ts'
import type { AnySql, Sql } from './connect.ts'
import { builtIndex, locksOf, type MigrationFile, readMigrations, type TableLock } from './migration-file.ts'
import { beat, olderServers } from './servers.ts'

/**
 * Migrates the database to the schema of this version: runs the new files of `sql/` in order, each once, together with the
 * record of it. Servers of the release before run meanwhile, and go on after it: docs/decisions/0031.
 *
 * 1. What the record has and this version does not know is of a newer release, and says which servers can live with it.
 * 2. Concurrent starts take turns by a lock on the record's table. It ends with its transaction, so it also works on the
 *    embedded database, whose connections share one session; an advisory lock of the session would not.
 * 3. A file waits {@link LOCK_MS} for a lock, as everybody else queues behind it meanwhile, and is tried again for a minute.
 *
 * @param sql Any pool of the database; one connection of it is used.
 * @returns the names of the files applied by this call.
 * @throws StartError when an applied file was edited, a newer release does not live with this version, or a file fails: then
 *   it and later files changed nothing.
 */
export async function migrate(sql: Sql, options: MigrateOptions = {}): Promise<{ applied: string[] }> {
  const migration = new Migration(sql, await readMigrations(options.folder ?? SQL_FOLDER), options)
  return { applied: await migration.run() }
}

export type MigrateOptions = {
  /** Files `NNNN_name.sql` with distinct numbers. */
  folder?: string
  /** Version of the servers that this program starts. */
  version?: string
  /** Runs files of the phase `contract` too. Without, they only run on a database without any migration. */
  isContract?: boolean
  /** Names of the files to run, whatever their phase; default: all. */
  only?: readonly string[]
  /** A pooler is in between: nothing may be set for a session. */
  isPooled?: boolean
  /** How long a file is tried while others hold what it has to lock. */
  lockWaitMs?: number
  timers?: Timers
}

/** A file that was not applied yet, for people. */
export type PlannedMigration = Pick<MigrationFile, 'name' | 'phase' | 'transaction'> & {
  oldestServer: string
  locks: TableLock[]
}

/**
 * What {@link migrate} would run, and the files of the phase `contract`. Changes nothing.
 * @throws StartError as migrate does.
 */
export async function planMigrations(sql: Sql, options: MigrateOptions = {}): Promise<PlannedMigration[]> {
  const { folder = SQL_FOLDER, version = VERSION } = options
  const files = await readMigrations(folder)
  const done = (await recordState(sql)).isThere ? await readRecord(sql) : []
  checkRecord(done, files, version)
  return files
    .filter(({ number }) => !done.some((record) => record.number === number))
    .map(({ name, phase, transaction, oldestServer, text }) => ({
      name,
      phase,
      transaction,
      oldestServer: oldestServer ?? version,
      locks: locksOf(text),
    }))
}

/**
 * Names of files that were not applied yet, and of applied ones that only a newer release knows. Changes nothing.
 * @throws StartError as migrate does.
 */
export async function schemaState(
  sql: Sql,
  { folder = SQL_FOLDER, version = VERSION }: Pick<MigrateOptions, 'folder' | 'version'> = {},
): Promise<{ isNew: boolean; pending: string[]; ahead: string[] }> {
  const files = await readMigrations(folder)
  const done = (await recordState(sql)).isThere ? await readRecord(sql) : []
  const ahead = checkRecord(done, files, version)
  const pending = files.filter(({ number }) => !done.some((record) => record.number === number))
  return { isNew: done.length === 0, pending: pending.map(({ name }) => name), ahead }
}

/**
 * Says that a server of this version runs, before it serves. Under the lock of the record a migration that takes something
 * away either sees the server, or is seen by it.
 * @throws StartError when the database has such a migration by now.
 */
export async function joinServers(
  sql: Sql,
  nodeId: string,
  options: Pick<MigrateOptions, 'folder' | 'version'> = {},
): Promise<void> {
  const { folder = SQL_FOLDER, version = VERSION } = options
  const files = await readMigrations(folder)
  await sql.begin(async (tx) => {
    await tx`lock table tollgate_migrations in exclusive mode`
    checkRecord(await readRecord(tx), files, version)
    await beat(tx, nodeId, version)
  })
}

/** Names of the migrations of this release. */
export const knownMigrations = async (): Promise<string[]> =>
  (await readMigrations(SQL_FOLDER)).map(({ name }) => name)

/** The folder of migrations. In the binary it is beside the program's files (src/build.ts). */
const SQL_FOLDER = import.meta.dir.startsWith('/$bunfs/')
  ? join(import.meta.dir, 'sql')
  : join(import.meta.dir, '../../sql')

class Migration {
  readonly #sql: Sql
  readonly #files: MigrationFile[]
  readonly #options: Required<Omit<MigrateOptions, 'folder' | 'only'>> & Pick<MigrateOptions, 'only'>
  /** The index that was half-made when it was last looked at. */
  #leftover: number | null = null

  constructor(sql: Sql, files: MigrationFile[], options: MigrateOptions) {
    this.#sql = sql
    this.#files = files
    this.#options = {
      version: VERSION,
      isContract: false,
      isPooled: false,
      lockWaitMs: LOCK_WAIT_MS,
      timers: systemTimers,
      ...options,
    }
  }

  async run(): Promise<string[]> {
    await this.#patiently('the table of migrations', () => createRecord(this.#sql))
    const done = await readRecord(this.#sql)
    const ahead = checkRecord(done, this.#files, this.#options.version)
    if (ahead.length > 0)
      log(
        'warn',
        'schema_ahead',
        'the database has migrations of a newer release, with which this one works',
        {
          migrations: ahead,
        },
      )
    const { only } = this.#options
    const runsAll = this.#options.isContract || done.length === 0 || only !== undefined
    const applied: string[] = []
    for (const file of this.#files) {
      if (done.some(({ number }) => number === file.number)) continue
      if (only?.includes(file.name) === false) continue
      if (file.phase === 'contract' && !runsAll) continue
      if (await this.#apply(file)) applied.push(file.name)
    }
    return applied
  }

  /** @returns true when this call applied the file. */
  async #apply(file: MigrationFile): Promise<boolean> {
    for (;;) {
      const beganAt = this.#options.timers.now()
      const outcome = await this.#patiently(`migration ${file.name}`, () =>
        this.#sql.begin((tx) => this.#step(tx, file)),
      )
      if (outcome === 'applied') return true
      if (outcome === 'known') return false
      if (outcome === 'leftover') await this.#pause(LOCK_MS)
      else if (outcome === 'unbuilt') await this.#patiently(`migration ${file.name}`, () => this.#build(file))
      // As long as a batch took: others get half of the database.
      else await this.#pause(Math.min(REST_MS_MAX, this.#options.timers.now() - beganAt))
    }
  }

  /** One transaction: the whole file, one batch of it, or the look at the index that it builds. */
  async #step(
    tx: AnySql,
    file: MigrationFile,
  ): Promise<'applied' | 'known' | 'unbuilt' | 'leftover' | 'unfinished'> {
    await tx`lock table tollgate_migrations in exclusive mode`
    const done = await readRecord(tx)
    checkRecord(done, this.#files, this.#options.version)
    if (done.some(({ number }) => number === file.number)) return 'known'
    const oldestServer = file.oldestServer ?? this.#options.version
    if (file.phase === 'contract') await refuseForServers(tx, file.name, oldestServer)
    await tx`select set_config('lock_timeout', ${`${LOCK_MS}ms`}, true)`
    if (file.transaction === 'none') {
      const state = await this.#lookAtBuild(tx, file)
      if (state !== 'built') return state
    } else {
      // Servers that run write no usage meanwhile (the lock of `erased_names`, sql/0018): a batch locks several tables, and
      // its order need not be the file's.
      if (file.transaction === 'one') await tx`select pg_advisory_xact_lock(8317504812)`
      const { count } = await attempt(file, () => tx.unsafe(file.text))
      if (file.transaction === 'batches' && count > 0) return 'unfinished'
    }
    await tx`
      insert into tollgate_migrations (number, name, checksum, applied_at, oldest_server)
      values (${file.number}, ${file.name}, ${file.checksum}, ${Date.now()}, ${oldestServer})`
    return 'applied'
  }

  /**
   * Whether the index of a file is there. One that a break left half-made is dropped: it would cost every write and serve
   * no read. Whoever builds one holds the lock that is asked for here, and is done a moment after giving it back: so what is
   * half-made is dropped when it is seen for the second time.
   */
  async #lookAtBuild(tx: AnySql, file: MigrationFile): Promise<'built' | 'unbuilt' | 'leftover'> {
    const built = builtIndex(file.text)
    if (built === null) throw new Error(`${file.name} builds no index`) // readMigrations checks it
    const { index, table } = built
    const look = async () => {
      const [row] = await tx<{ id: number; isOfTable: boolean; isValid: boolean }[]>`
        select c.oid as id, coalesce(i.indrelid = to_regclass(${table}), false) as "isOfTable",
               coalesce(i.indisvalid, false) as "isValid"
          from pg_class c left join pg_index i on i.indexrelid = c.oid where c.oid = to_regclass(${index})`
      return row
    }
    const found = await look()
    if (found === undefined) return 'unbuilt'
    if (!found.isOfTable)
      throw new StartError(`migration ${file.name} cannot build ${index}: something else has that name`)
    if (found.isValid) return 'built'
    await tx`lock table ${tx(table)} in share update exclusive mode`
    const again = await look()
    if (again?.isValid === true) return 'built'
    if (again !== undefined && this.#leftover !== again.id) {
      this.#leftover = again.id
      return 'leftover'
    }
    if (again !== undefined) await tx`drop index ${tx(index)}`
    return 'unbuilt'
  }

  /**
   * Builds an index beside all traffic. It waits for transactions that are open, and nobody waits for it: so longer than for
   * other locks. Of two starts at once one builds, and the other finds a table with that name.
   */
  async #build(file: MigrationFile): Promise<void> {
    await this.#sql`select 1` // so that a connection is open: the driver's reserve() never returns a new one
    const session = await this.#sql.reserve()
    try {
      if (!this.#options.isPooled) await session.unsafe(`set lock_timeout = ${this.#options.lockWaitMs}`)
      await attempt(file, () => session.unsafe(file.text))
    } catch (cause) {
      if (!isTaken(cause)) throw cause
    } finally {
      if (!this.#options.isPooled) await session.unsafe('reset lock_timeout')
      session.release()
    }
  }

  /**
   * Repeats work that got no lock in time, after a pause in which those that queued behind it go first.
   * @throws StartError after a minute, naming who has been at work for longest.
   */
  async #patiently<T>(what: string, work: () => Promise<T>): Promise<T> {
    const { timers, lockWaitMs } = this.#options
    const beganAt = timers.now()
    for (;;) {
      try {
        return await work()
      } catch (cause) {
        if (!isLocked(cause)) throw cause
        if (timers.now() - beganAt < lockWaitMs) {
          await this.#pause(LOCK_MS)
          continue
        }
        const seconds = Math.round(lockWaitMs / 1000)
        throw new StartError(
          `${what} found its tables locked for ${seconds} s and changed nothing${await holder(this.#sql)}; start again when it has ended`,
          { cause },
        )
      }
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.#options.timers.after(ms, resolve))
  }
}

/** A failed file names itself. Its transaction is rolled back. */
async function attempt<T>(file: MigrationFile, work: () => PromiseLike<T>): Promise<T> {
  try {
    return await work()
  } catch (cause) {
    if (isLocked(cause) || isTaken(cause)) throw cause
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`migration ${file.name} failed and was rolled back: ${reason}`, { cause })
  }
}

const codeOf = (cause: unknown) => (cause instanceof Error && 'code' in cause ? cause.code : null)
/** No lock in time, or a deadlock. */
const isLocked = (cause: unknown) => codeOf(cause) === '55P03' || codeOf(cause) === '40P01'
/** Another session makes something of that name at this moment. */
const isTaken = (cause: unknown) =>
  codeOf(cause) === '42P07' ||
  (cause instanceof Error &&
    'constraint_name' in cause &&
    cause.constraint_name === 'pg_class_relname_nsp_index')

/** @throws StartError with the names of running servers that cannot live with the file. */
async function refuseForServers(tx: AnySql, name: string, oldestServer: string): Promise<void> {
  const servers = await olderServers(tx, oldestServer)
  if (servers.length === 0) return
  const names = servers.map(({ host, nodeId, version }) => `${host} (${nodeId}, version ${version})`)
  throw new StartError(
    `migration ${name} needs servers of version ${oldestServer} or newer, and older ones were seen within a minute: ${names.join(', ')}; stop or upgrade them first`,
  )
}

/** Of the sessions with an open transaction, the one that has it for longest. */
async function holder(sql: AnySql): Promise<string> {
  const [row] = await sql<{ pid: number; program: string; seconds: number }[]>`
    select pid, application_name as program, floor(extract(epoch from clock_timestamp() - xact_start))::integer as seconds
      from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
     order by xact_start limit 1`
  return row === undefined
    ? ''
    : ` (the longest transaction is that of process ${row.pid}, ${row.program || 'without a name'}, ${row.seconds} s)`
}

type Applied = { number: number; name: string; checksum: string; oldestServer: string | null }

/** The table has `oldest_server` since 0.1; databases of before are not there any more, or get it now. */
const readRecord = async (sql: AnySql): Promise<Applied[]> =>
  await sql<Applied[]>`
    select number, name, checksum, to_jsonb(m) ->> 'oldest_server' as "oldestServer"
      from tollgate_migrations m order by number`

/**
 * @returns the names of migrations of newer releases.
 * @throws StartError when one of them does not live with this version, or a known one was edited.
 */
function checkRecord(done: Applied[], files: MigrationFile[], version: string): string[] {
  const ahead: string[] = []
  let demanding: Applied | null = null
  for (const record of done) {
    const file = files.find(({ number }) => number === record.number)
    if (file !== undefined) {
      if (file.name === record.name && file.checksum === record.checksum) continue
      throw new StartError(
        `migration ${file.name} differs from the migration that was applied to the database (${record.name}): a released file must not be edited; add a new file`,
      )
    }
    ahead.push(record.name)
    const { oldestServer } = record
    if (oldestServer === null || isOlder(demanding?.oldestServer ?? version, oldestServer)) demanding = record
    if (oldestServer === null) break
  }
  if (demanding === null) return ahead
  const { name, oldestServer } = demanding
  throw new StartError(
    oldestServer === null
      ? `the database is newer than this version of Tollgate (${version}): it has migration ${name}, which this version does not know; start the newer version`
      : `the database is newer than this version of Tollgate (${version}): since migration ${name} it needs version ${oldestServer} or newer; start such a version`,
  )
}

async function recordState(sql: AnySql): Promise<{ isThere: boolean; isWhole: boolean }> {
  const [row] = await sql<{ isThere: boolean; isWhole: boolean }[]>`
    with record as (select to_regclass('tollgate_migrations') as id)
    select id is not null as "isThere",
           exists (select from pg_attribute where attrelid = id and attname = 'oldest_server') as "isWhole"
      from record`
  return row ?? { isThere: false, isWhole: false }
}

/** Of two concurrent `create table if not exists`, both may find the table missing, and one fails. It tries again. */
async function createRecord(sql: Sql): Promise<void> {
  const { isThere, isWhole } = await recordState(sql)
  if (isWhole) return
  const create = () => sql`
    create table if not exists tollgate_migrations (
      number        integer primary key,
      name          text    not null,
      checksum      text    not null,
      applied_at    bigint  not null,
      oldest_server text
    )`
  if (!isThere) await create().catch(create)
  else
    await sql.begin(async (tx) => {
      await tx`select set_config('lock_timeout', ${`${LOCK_MS}ms`}, true)`
      await tx`alter table tollgate_migrations add column if not exists oldest_server text`
    })
}

/** What a table's users wait at most, behind a migration that waits itself. */
const LOCK_MS = 1_000
const LOCK_WAIT_MS = 60_000
const REST_MS_MAX = 1_000
