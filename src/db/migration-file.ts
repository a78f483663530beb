import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { StartError } from '../errors.ts'

/**
 * The files of `sql/`. Each begins with lines that say how it may run:
 *
 * | line | meaning |
 * |---|---|
 * | `-- oldest server: 0.1` | Servers from this version on can run on the database once the file is applied. |
 * | `-- phase: contract` | It takes something away. It runs by `tollgate migrate --contract`, never at a start. |
 * | `-- transaction: none` | One `create index concurrently`, outside a transaction. |
 * | `-- transaction: batches` | One statement that changes some rows and is repeated, each time in a transaction of its own, until it changes none. |
 *
 * Files up to 0032 have no such lines: no release is older than they are.
 */
export type MigrationFile = {
  number: number
  name: string
  text: string
  checksum: string
  /** Null = the release that the file came with. */
  oldestServer: string | null
  phase: 'expand' | 'contract'
  transaction: 'one' | 'none' | 'batches'
}

/**
 * @returns the files of a folder in the order of their numbers.
 * @throws StartError when a number is missing or occurs twice, or a first line is not one of the table above.
 */
export async function readMigrations(folder: string): Promise<MigrationFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  const numbers = names.map((name) => Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(name)?.[1]))
  return Promise.all(
    names.map(async (name, index) => {
      const number = numbers[index] ?? Number.NaN
      if (Number.isNaN(number) || number === numbers[index - 1]) {
        throw new StartError(`the migration ${join(folder, name)} needs a unique number (NNNN_name.sql)`)
      }
      const text = await Bun.file(join(folder, name)).text()
      const checksum = new Bun.CryptoHasher('sha256').update(text).digest('hex')
      return { number, name, text, checksum, ...readHead(name, text) }
    }),
  )
}

function readHead(name: string, text: string): Pick<MigrationFile, 'oldestServer' | 'phase' | 'transaction'> {
  const head: ReturnType<typeof readHead> = { oldestServer: null, phase: 'expand', transaction: 'one' }
  for (const line of text.split('\n')) {
    const [, word, value = ''] = /^-- (oldest server|phase|transaction): *(.*?) *$/.exec(line) ?? []
    if (word === undefined) break
    if (word === 'oldest server' && /^\d+(\.\d+){1,2}$/.test(value)) head.oldestServer = value
    else if (word === 'phase' && value === 'contract') head.phase = value
    else if (word === 'transaction' && (value === 'none' || value === 'batches')) head.transaction = value
    else throw new StartError(`the migration ${name} begins with a line that means nothing: ${line}`)
  }
  const isBuild = head.transaction !== 'none' || builtIndex(text) !== null
  if (!isBuild)
    throw new StartError(`the migration ${name} without a transaction is not one create index concurrently`)
  if (head.transaction === 'batches' && statementsOf(text).length !== 1)
    throw new StartError(`the migration ${name} in batches is not one statement`)
  return head
}

/** The index that a file without a transaction builds, and its table; null = the file does something else. */
export function builtIndex(text: string): { index: string; table: string } | null {
  const [statement = '', ...others] = statementsOf(text)
  const [, index, table] =
    /^create (?:unique )?index concurrently ([a-z0-9_]+) on ([a-z0-9_]+)\b/i.exec(statement) ?? []
  return index === undefined || table === undefined || others.length > 0 ? null : { index, table }
}

/** The statements of a file, without comments, with single spaces outside of texts and bodies of functions. */
export function statementsOf(text: string): string[] {
  const parts = text.matchAll(
    /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"[^"]*"|(\$[a-z_]*\$)[\s\S]*?\1|;|\s+|[^\s;'"$/-]+|[\s\S]/gi,
  )
  const statements: string[] = []
  let statement = ''
  for (const [part] of parts) {
    if (part === ';') {
      statements.push(statement)
      statement = ''
    } else statement += /^(\s|--|\/\*)/.test(part) ? ' ' : part
  }
  return [...statements, statement].map((each) => spaced(each)).filter((each) => each !== '')
}

/** Comments may have left several spaces. Texts keep theirs. */
const spaced = (statement: string) =>
  statement
    .replaceAll(/('(?:[^']|'')*'|(\$[a-z_]*\$)[\s\S]*?\2)| +/gi, (part, kept) =>
      kept === undefined ? ' ' : part,
    )
    .trim()

/** A lock of a statement on a table that was there before the file. */
export type TableLock = { table: string; mode: string }

/** What the statements of a file lock, as far as their first words tell: the body of a `do` block is not read. */
export function locksOf(text: string): TableLock[] {
  const statements = statementsOf(text)
  const made = new Set(
    statements.flatMap((each) => /^create table (?:if not exists )?(\w+)/i.exec(each)?.[1] ?? []),
  )
  const locks = statements.flatMap((statement) =>
    LOCKS.flatMap(({ pattern, mode }) =>
      [...statement.matchAll(pattern)].map(([, table = '']) => ({ table, mode })),
    ),
  )
  const seen = new Set<string>()
  return locks.filter(({ table, mode }) => {
    const key = `${table} ${mode}`
    if (made.has(table) || seen.has(key)) return false
    seen.add(key)
    return true
  })
}

const LOCKS: readonly { pattern: RegExp; mode: string }[] = [
  { pattern: /^alter table (?:if exists )?(?:only )?(\w+)/gi, mode: 'access exclusive' },
  { pattern: /^drop table (?:if exists )?(\w+)/gi, mode: 'access exclusive' },
  { pattern: /^drop trigger (?:if exists )?\w+ on (\w+)/gi, mode: 'access exclusive' },
  { pattern: /^truncate (?:table )?(\w+)/gi, mode: 'access exclusive' },
  {
    pattern: /^create (?:unique )?index (?!concurrently )(?:if not exists )?\w+ on (?:only )?(\w+)/gi,
    mode: 'share',
  },
  { pattern: /^create (?:unique )?index concurrently \w+ on (\w+)/gi, mode: 'share update exclusive' },
  {
    pattern: /^create (?:or replace )?(?:constraint )?trigger \w+ .*? on (\w+)/gi,
    mode: 'share row exclusive',
  },
  { pattern: /^create table .*?\breferences (\w+)/gi, mode: 'share row exclusive' },
  { pattern: /^(?:with .*?)?insert into (\w+)/gi, mode: 'row exclusive' },
  { pattern: /^(?:with .*?)?update (\w+)/gi, mode: 'row exclusive' },
  { pattern: /^(?:with .*?)?delete from (\w+)/gi, mode: 'row exclusive' },
]
