import { VERSION } from '../../lib/version.ts'
import type { AnySql, Sql } from '../connect.ts'
import { type BackupHead, writeBackup } from './backup-file.ts'
import { BACKUP_SEQUENCES, BACKUP_TABLES, MONTHLY } from './tables.ts'

export type BackupMade = { bytes: number; rows: Record<string, number> }

/**
 * Writes a backup of everything at one moment: one transaction reads all of it, in slices of about {@link SLICE_BYTES}. Servers go
 * on meanwhile.
 * @param source For people: which kind of database it is.
 * @throws StartError when the file cannot be written.
 */
export async function dump(sql: Sql, path: string, options: { source: string }): Promise<BackupMade> {
  return await sql.begin('isolation level repeatable read read only', async (tx) => {
    const head = await readHead(tx, options)
    const rows: Record<string, number> = {}
    const { bytes } = await writeBackup(path, head, linesOf(tx, rows))
    return { bytes, rows }
  })
}

async function readHead(
  tx: AnySql,
  { source }: { source: string },
): Promise<Omit<BackupHead, 'tollgateBackup'>> {
  const [row] = await tx<{ databaseId: string | null; postgres: string; migrations: string[] }[]>`
    select (select value from settings where name = 'database_id') as "databaseId",
           current_setting('server_version') as postgres,
           array(select name from tollgate_migrations order by number) as migrations`
  const months: Record<string, number[]> = {}
  for (const [table, make] of Object.entries(MONTHLY)) {
    const names = await tx<{ month: string }[]>`
      select right(c.relname, 6) as month
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
       where i.inhparent = to_regclass(${table}) and c.relname ~ '_[0-9]{6}$' order by 1`
    months[make] = names.map(({ month }) => Date.UTC(Number(month.slice(0, 4)), Number(month.slice(4)) - 1))
  }
  return {
    version: VERSION,
    madeAt: new Date().toISOString(),
    source: `${source} ${row?.postgres.split(' ')[0]}`,
    databaseId: row?.databaseId ?? '',
    migrations: row?.migrations ?? [],
    months,
  }
}

/** @param rows Is filled with the number of rows of each table. */
async function* linesOf(tx: AnySql, rows: Record<string, number>): AsyncGenerator<string> {
  for (const table of BACKUP_TABLES) {
    const columns = await columnsOf(tx, table)
    if (columns.length === 0) continue // of a newer migration than the database has
    yield `${JSON.stringify({ table, columns })}\n`
    rows[table] = 0
    for await (const lines of slicesOf(tx, table, columns)) {
      rows[table] += lines.length
      yield `${JSON.stringify(lines)}\n`
    }
  }
  // After the rows, as sequences do not belong to a transaction: none may be behind them.
  for (const sequence of BACKUP_SEQUENCES) {
    const [row] = await tx<{ isThere: boolean }[]>`select to_regclass(${sequence}) is not null as "isThere"`
    if (row?.isThere !== true) continue
    const [value] = await tx<{ lastValue: string; isCalled: boolean }[]>`
      select last_value::text as "lastValue", is_called as "isCalled" from ${tx(sequence)}`
    yield `${JSON.stringify({ sequence, ...value })}\n`
  }
  yield `${JSON.stringify({ rows })}\n`
}

async function* slicesOf(tx: AnySql, table: string, columns: string[]): AsyncGenerator<string[]> {
  await tx`declare backup no scroll cursor for select row(${tx(columns)})::text as line from ${tx(table)}`
  for (let count = FIRST_ROWS; ; ) {
    const lines = await tx.unsafe<{ line: string }[]>(`fetch ${count} from backup`)
    if (lines.length > 0) yield lines.map(({ line }) => line)
    if (lines.length < count) break
    const bytes = lines.reduce((sum, { line }) => sum + line.length, 0)
    count = Math.max(1, Math.min(ROWS_MAX, Math.floor((SLICE_BYTES * count) / bytes)))
  }
  await tx`close backup`
}

/** In the order of the table; none = there is no such table. */
export async function columnsOf(tx: AnySql, table: string): Promise<string[]> {
  const columns = await tx<{ name: string }[]>`
    select attname as name from pg_attribute
     where attrelid = to_regclass(${table}) and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`
  return columns.map(({ name }) => name)
}

const FIRST_ROWS = 20
const ROWS_MAX = 5_000
const SLICE_BYTES = 524_288
