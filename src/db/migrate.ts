import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { StartError } from '../errors.ts'
import type { AnySql, Sql } from './connect.ts'

/**
 * Migrates the database to the schema of this version: runs the new files of `sql/` in order, each in one transaction
 * together with the record of it. Concurrent starts take turns by a lock on the record's table. That lock ends with its
 * transaction, so it also works on the embedded database, whose connections share one session; an advisory lock of the
 * session would not.
 *
 * Not a library: postgres-migrations and node-pg-migrate bring `pg` as a second driver, postgres-shift takes no lock and
 * detects neither edited files nor newer databases, and drizzle's runner needs its own journal. Look again when a migration
 * needs more than SQL.
 */

/** The folder of migrations. In the binary it is beside the program's files (src/build.ts). */
const SQL_FOLDER = import.meta.dir.startsWith('/$bunfs/')
  ? join(import.meta.dir, 'sql')
  : join(import.meta.dir, '../../sql')

/**
 * @param sql Any pool of the database; one connection of it is used.
 * @param folder Files `NNNN_name.sql` with distinct numbers.
 * @returns the names of the files applied by this call.
 * @throws StartError when an applied file was edited or is missing, or when one fails: then it and later files changed
 *   nothing.
 */
export async function migrate(sql: Sql, folder: string = SQL_FOLDER): Promise<{ applied: string[] }> {
  const files = await readFiles(folder)
  await createRecord(sql)
  const applied: string[] = []
  for (const file of files) {
    if (await sql.begin((tx) => applyOnce(tx, files, file))) applied.push(file.name)
  }
  return { applied }
}

type MigrationFile = { number: number; name: string; text: string; checksum: string }

/** @returns true when this call applied the file. */
async function applyOnce(tx: AnySql, files: MigrationFile[], file: MigrationFile): Promise<boolean> {
  await tx`lock table tollgate_migrations in exclusive mode`
  const done = await tx<{ number: number; name: string; checksum: string }[]>`
    select number, name, checksum from tollgate_migrations order by number`
  for (const record of done) checkRecord(record, files)
  if (done.some((record) => record.number === file.number)) return false
  // Servers that run write no usage meanwhile (the lock of `erased_names`, sql/0018): a batch locks several tables, and its
  // order need not be the file's.
  await tx`select pg_advisory_xact_lock(8317504812)`
  try {
    await tx.unsafe(file.text)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`migration ${file.name} failed and was rolled back: ${reason}`, { cause })
  }
  await tx`
    insert into tollgate_migrations (number, name, checksum, applied_at)
    values (${file.number}, ${file.name}, ${file.checksum}, ${Date.now()})`
  return true
}

function checkRecord(
  record: { number: number; name: string; checksum: string },
  files: MigrationFile[],
): void {
  const file = files.find(({ number }) => number === record.number)
  if (file === undefined) {
    throw new StartError(
      `the database is newer than this version of Tollgate: it has migration ${record.name}, which this version does not know; start the newer version`,
    )
  }
  if (file.name !== record.name || file.checksum !== record.checksum) {
    throw new StartError(
      `migration ${file.name} differs from the migration that was applied to the database (${record.name}): a released file must not be edited; add a new file`,
    )
  }
}

/** Of two concurrent `create table if not exists`, both may find the table missing, and one fails. It tries again. */
async function createRecord(sql: Sql): Promise<void> {
  const create = () => sql`
    create table if not exists tollgate_migrations (
      number     integer primary key,
      name       text    not null,
      checksum   text    not null,
      applied_at bigint  not null
    )`
  await create().catch(create)
}

async function readFiles(folder: string): Promise<MigrationFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  const numbers = names.map((name) => Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(name)?.[1]))
  return Promise.all(
    names.map(async (name, index) => {
      const number = numbers[index] ?? Number.NaN
      if (Number.isNaN(number) || number === numbers[index - 1]) {
        throw new StartError(`the migration ${join(folder, name)} needs a unique number (NNNN_name.sql)`)
      }
      const text = await Bun.file(join(folder, name)).text()
      return { number, name, text, checksum: new Bun.CryptoHasher('sha256').update(text).digest('hex') }
    }),
  )
}
