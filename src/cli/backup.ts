import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Config, readConfig } from '../config.ts'
import { type Backup, openBackup } from '../db/backup/backup-file.ts'
import { type BackupMade, dump } from '../db/backup/dump.ts'
import { load, requireKnown } from '../db/backup/load.ts'
import { connect } from '../db/connect.ts'
import { copyRunning } from '../db/embedded/copy.ts'
import { hasEmbedded, startEmbedded } from '../db/embedded/embedded.ts'
import { ensureSchema } from '../db/inspect.ts'
import { planMigrations } from '../db/migrate.ts'
import { StartError } from '../errors.ts'
import { configureLog } from '../log.ts'
import type { Command } from './arguments.ts'
import { type DatabaseHere, withDatabase } from './database-here.ts'

export const backupCommand: Command = {
  name: 'backup',
  isLocal: true,
  about:
    'write everything in the database to one file, while servers run; tollgate restore reads it into an embedded database or a Postgres',
  arguments: { file: 'file to write; it must not exist' },
  example: 'backup tollgate.backup',
  async run(given) {
    configureLog({ level: 'warn', isPretty: false })
    const config = readConfig(given.terminal.environment)
    const path = given.argument('file')
    if (existsSync(path)) throw new StartError(`${path} exists already; give another name`)
    const { bytes, rows } = await withDatabase(config, { mayShare: true, mayCreate: false }, (here) =>
      here.isShared ? backUpRunning(config, here, path) : backUp(here, path),
    )
    given.print(`wrote ${path}: ${sumOf(rows)}, ${sizeOf(bytes)}`, { file: path, bytes, rows })
  },
}

export const restoreCommand: Command = {
  name: 'restore',
  isLocal: true,
  about: 'restore a file of tollgate backup into a new database or data dir, all of it or nothing',
  arguments: { file: 'file of tollgate backup' },
  options: {
    check: { value: null, about: 'only read the file and check that it is whole; change nothing' },
  },
  example: 'restore tollgate.backup',
  async run(given) {
    configureLog({ level: 'warn', isPretty: false })
    const path = given.argument('file')
    const backup = await openBackup(path)
    const { version, madeAt, source } = backup.head
    const from = `of ${madeAt}, from ${source}, Tollgate ${version}`
    if (given.has('check')) {
      await requireKnown(backup.head.migrations, version)
      const { rows } = await countsOf(backup)
      return given.print(`${path} is whole: ${sumOf(rows)}, ${from}`, { ...backup.head, rows })
    }
    const config = readConfig(given.terminal.environment)
    // It would be started, and perhaps migrated, before it is found not to be empty.
    if (config.databaseUrl === null && hasEmbedded(config.dataDir))
      throw new StartError(
        `there is an embedded database in ${config.dataDir} already; restore into a new data dir: set TOLLGATE_DATA_DIR, or move that folder away`,
      )
    const { rows } = await withDatabase(config, { mayShare: false, mayCreate: true }, async (here) => {
      const { sql, address } = here
      if (address.kind === 'url') await ensureSchema(sql, address)
      return await load(sql, backup, {
        isPooled: address.kind === 'url' && address.isPooled === true,
        isEmbedded: address.kind === 'embedded',
      })
    })
    const vault = (rows.vault_data_keys ?? 0) + (rows.vault_check ?? 0) > 0
    const hint = vault ? '\nrecoverable keys need the vault key that servers of the backup had' : ''
    given.print(`restored ${sumOf(rows)}, ${from}${hint}`, { ...backup.head, rows, needsVaultKey: vault })
  },
}

async function backUp({ sql, address }: DatabaseHere, path: string): Promise<BackupMade> {
  if ((await planMigrations(sql)).some(({ name }) => name.startsWith('0001_')))
    throw new StartError('the database has no tables of Tollgate; set DATABASE_URL as the server has it')
  return await dump(sql, path, { source: address.kind === 'url' ? 'Postgres' : 'embedded Postgres' })
}

/**
 * Of a server that runs on the embedded database. That has one session: reading all of it would hold up the server for as long as
 * that takes. So its files are copied, and the copy is read by a database of this process.
 */
async function backUpRunning(config: Config, { address }: DatabaseHere, path: string): Promise<BackupMade> {
  const { dataDir } = config
  removeLeftCopies(dataDir)
  const copy = resolve(dataDir, `${COPY}${process.pid}`)
  mkdirSync(copy, { mode: 0o700 })
  try {
    await copyRunning(address, { from: join(dataDir, 'postgres'), to: join(copy, 'postgres') })
    const embedded = await startEmbedded(copy)
    const sql = connect(embedded.address, { connectionsMax: 1 })
    try {
      return await dump(sql, path, { source: 'embedded Postgres' })
    } finally {
      await sql.end({ timeout: 2 })
      await embedded.stop()
    }
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

const COPY = 'backup-'

/** Copies of backups that were killed. */
function removeLeftCopies(dataDir: string): void {
  for (const name of readdirSync(dataDir)) {
    const [, pid] = /^backup-(\d+)$/.exec(name) ?? []
    if (pid !== undefined && !isRunning(Number(pid)))
      rmSync(join(dataDir, name), { recursive: true, force: true })
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (cause) {
    return cause instanceof Error && 'code' in cause && cause.code === 'EPERM'
  }
}

async function countsOf(backup: Backup): Promise<{ rows: Record<string, number> }> {
  let last = ''
  for await (const line of backup.lines()) last = line
  return JSON.parse(last) as { rows: Record<string, number> } // the last line of a file whose checksum is right
}

/** What people know of it, of many tables. */
function sumOf(rows: Record<string, number>): string {
  const all = Object.values(rows).reduce((sum, each) => sum + each, 0)
  // Its own workspace and keyspace hold the root keys.
  const workspaces = Math.max(0, (rows.workspaces ?? 0) - 1)
  return `${all} rows (workspaces ${workspaces}, keys ${rows.keys ?? 0}, audit events ${rows.audit_events ?? 0}, and others)`
}

const sizeOf = (bytes: number) =>
  bytes < 2 ** 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`
