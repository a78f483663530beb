import { StartError } from '../../errors.ts'
import { VERSION } from '../../lib/version.ts'
import type { AnySql, Sql } from '../connect.ts'
import { knownMigrations, migrate } from '../migrate.ts'
import { lockStart } from '../settings.ts'
import type { Backup, BackupLine } from './backup-file.ts'
import { columnsOf } from './dump.ts'
import { BACKUP_SEQUENCES, BACKUP_TABLES, MONTHLY } from './tables.ts'

/**
 * Restores a backup into a new database.
 *
 * 1. The migrations that the backup's database had make the tables, so an older backup fits.
 * 2. One transaction loads all rows, and compares their numbers with the file and with the tables. Whatever fails leaves the
 *    database empty. Until then no server can start on it.
 * 3. The migrations since then run on the rows, as in an upgrade.
 * @param options.inTransaction More work before it is committed.
 * @throws StartError when the file does not fit, or the database is not empty.
 */
export async function load(
  sql: Sql,
  backup: Backup,
  options: { isPooled: boolean; isEmbedded: boolean; inTransaction?: (tx: AnySql) => Promise<void> },
): Promise<{ rows: Record<string, number>; applied: string[] }> {
  const { head } = backup
  await requireKnown(head.migrations, head.version)
  await requireEmpty(sql, head.migrations)
  const { isPooled } = options
  await migrate(sql, { isPooled, only: head.migrations })
  const rows = await sql.begin(async (tx) => {
    await tx`lock table tollgate_migrations in exclusive mode`
    await lockStart(tx)
    await requireEmpty(tx, head.migrations)
    const loaded = await new Loading(tx, options.isEmbedded).run(backup)
    await options.inTransaction?.(tx)
    return loaded
  })
  const { applied } = await migrate(sql, { isPooled })
  await sql`analyze`
  return { rows, applied }
}

/** @throws StartError when the backup's database was migrated by a release that this one does not know. */
export async function requireKnown(migrations: string[], version: string): Promise<void> {
  const known = await knownMigrations()
  const unknown = migrations.find((name) => !known.includes(name))
  if (unknown !== undefined)
    throw new StartError(
      `the backup is newer than this version of Tollgate (${VERSION}): version ${version} wrote it, with migration ${unknown}; use that version or a newer one`,
    )
}

/** @throws StartError when a server has run on the database, or its tables are newer than the backup. */
async function requireEmpty(sql: AnySql, migrations: string[]): Promise<void> {
  const [record] = await sql<
    { isThere: boolean }[]
  >`select to_regclass('tollgate_migrations') is not null as "isThere"`
  if (record?.isThere !== true) return
  const done = await sql<{ name: string }[]>`select name from tollgate_migrations order by number`
  const newer = done.find(({ name }) => !migrations.includes(name))
  if (newer !== undefined)
    throw new StartError(
      `the database has migration ${newer.name}, which the backup is older than; restore into a database without tables`,
    )
  if (!(await hasRows(sql))) return
  throw new StartError(
    'the database is not empty: a server has run on it; restore into a new database or data dir, and keep this one until you know that you do not need it',
  )
}

async function hasRows(sql: AnySql): Promise<boolean> {
  const [table] = await sql<{ isThere: boolean }[]>`select to_regclass('settings') is not null as "isThere"`
  if (table?.isThere !== true) return false
  const rows = await sql`select from settings where name = 'database_id' limit 1`
  return rows.length > 0
}

/** The transaction that fills the tables. */
class Loading {
  readonly #tx: AnySql
  readonly #isEmbedded: boolean
  readonly #rows: Record<string, number> = {}
  #insert: ((lines: string) => Promise<number>) | null = null
  #table = ''
  #loggedBytes = 0

  constructor(tx: AnySql, isEmbedded: boolean) {
    this.#tx = tx
    this.#isEmbedded = isEmbedded
  }

  async run({ head, lines }: Backup): Promise<Record<string, number>> {
    const tx = this.#tx
    const tables: string[] = []
    for (const table of BACKUP_TABLES) if ((await columnsOf(tx, table)).length > 0) tables.push(table)
    await tx`truncate ${tx.unsafe(tables.map((table) => `"${table}"`).join())}`
    // The counts that triggers keep are rows of the backup too.
    for (const table of tables) await tx`alter table ${tx(table)} disable trigger user`
    for (const make of Object.values(MONTHLY))
      for (const month of head.months[make] ?? []) await tx`select ${tx(make)}(${month})`
    let counted: Record<string, number> | null = null
    for await (const text of lines()) counted = (await this.#take(text)) ?? counted
    await this.#endTable()
    await this.#compare(counted)
    for (const table of tables) await tx`alter table ${tx(table)} enable trigger user`
    return this.#rows
  }

  /** @returns the numbers of rows, which the last line has. */
  async #take(text: string): Promise<Record<string, number> | null> {
    if (text.startsWith('[')) {
      if (this.#insert === null) throw damaged('it has rows without a table')
      this.#rows[this.#table] = (this.#rows[this.#table] ?? 0) + (await this.#insert(text))
      await this.#boundLog(text.length)
      return null
    }
    const line = JSON.parse(text) as Exclude<BackupLine, string[]> // written by `dump`, and its checksum is right
    if ('rows' in line) return line.rows
    if ('table' in line) await this.#beginTable(line.table, line.columns)
    else await this.#setSequence(line)
    return null
  }

  async #beginTable(table: string, columns: string[]): Promise<void> {
    const tx = this.#tx
    await this.#endTable()
    const known: readonly string[] = BACKUP_TABLES
    if (!known.includes(table)) throw damaged(`it has a table ${table}, which this version does not know`)
    const types = await tx<{ name: string; type: string }[]>`
      select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute
       where attrelid = to_regclass(${table}) and attnum > 0 and not attisdropped`
    const parts = columns.map((name) => {
      const type = types.find((each) => each.name === name)?.type
      if (type === undefined)
        throw damaged(`its table ${table} has a column ${name}, which the database lacks`)
      return `"${name}" ${type}`
    })
    await tx.unsafe(`create type ${ROW} as (${parts.join()})`)
    const list = columns.map((name) => `"${name}"`).join()
    const statement = `
      insert into "${table}" (${list}) overriding system value
      select ${list} from unnest((select array_agg(line::${ROW}) from json_array_elements_text($1::text::json) as line))`
    this.#table = table
    this.#rows[table] = 0
    this.#insert = async (lines) => (await tx.unsafe(statement, [lines])).count
  }

  async #endTable(): Promise<void> {
    if (this.#insert !== null) await this.#tx.unsafe(`drop type ${ROW}`)
    this.#insert = null
  }

  async #setSequence({
    sequence,
    lastValue,
    isCalled,
  }: {
    sequence: string
    lastValue: string
    isCalled: boolean
  }) {
    const known: readonly string[] = BACKUP_SEQUENCES
    if (!known.includes(sequence))
      throw damaged(`it has a sequence ${sequence}, which this version does not know`)
    await this.#tx`select setval(${sequence}, ${lastValue}::text::bigint, ${isCalled})`
  }

  /** @throws StartError when rows are missing, in the file or in the tables. */
  async #compare(counted: Record<string, number> | null): Promise<void> {
    if (counted === null) throw damaged('it has no numbers of rows')
    for (const [table, rows] of Object.entries(counted)) {
      const [there] = await this.#tx<{ rows: number }[]>`select count(*) as rows from ${this.#tx(table)}`
      if (this.#rows[table] === rows && there?.rows === rows) continue
      throw damaged(
        `table ${table} should have ${rows} rows; ${this.#rows[table] ?? 0} were read, ${there?.rows} stored`,
      )
    }
  }

  /** The embedded database has nobody else to write a checkpoint, and would keep the log of the whole transaction. */
  async #boundLog(bytes: number): Promise<void> {
    this.#loggedBytes += bytes
    if (!this.#isEmbedded || this.#loggedBytes < CHECKPOINT_BYTES) return
    this.#loggedBytes = 0
    await this.#tx`checkpoint`
  }
}

const ROW = 'tollgate_restored_row'
const CHECKPOINT_BYTES = 16 * 2 ** 20

const damaged = (what: string) =>
  new StartError(`the backup cannot be restored: ${what}; the database stays empty`)
