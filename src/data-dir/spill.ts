import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pack, unpack } from 'msgpackr'
import type { DatabaseAddress } from '../db/connect.ts'
import { log } from '../log.ts'
import { syncFolder } from './data-dir.ts'

/**
 * Data that Postgres has not taken yet, in `<data dir>/spill/`: written in a long outage or at a stop, sent when Postgres is
 * back. Sending a record twice is harmless (absolute counts, batch numbers), so two servers may process the same file.
 */

/** The spill files of one data directory. */
export type Spills = {
  /** @see writeSpill */
  write(kind: string, value: unknown): UnreadSpill
  /** As `write`, without blocking the thread: syncing a disk may take many milliseconds. */
  writeAsync(kind: string, value: unknown): Promise<UnreadSpill>
  /** @see listSpills */
  list(kind: string): UnreadSpill[]
  /** @see readSpills */
  read(kind: string): Iterable<Spill>
}
/** A file that is read when its turn comes: after a long outage the files may not fit into memory together. */
export type UnreadSpill = {
  /** @returns null when another process has finished the file, or when it is unreadable. */
  read(): Spill | null
}
/** Call `done()` once the value is safe in Postgres; the file stays until then. */
export type Spill = { value: unknown; done(): void }
/** A file that can be changed in place. */
export type SpillFile = { value: unknown; rewrite(value: unknown): void }

/** @param of The database of the counts. Only its files are read, and files without a database in their name. */
export const openSpills = (dataDir: string, of: SpillsOf = {}): Spills => ({
  write: (kind, value) => writeSpill(dataDir, kind, value, of),
  writeAsync: (kind, value) => writeSpillAsync(dataDir, kind, value, of),
  list: (kind) => listSpills(dataDir, kind, of),
  read: (kind) => readSpills(dataDir, kind, of),
})
type SpillsOf = Pick<DatabaseAddress, 'databaseId'>

/**
 * Writes `value` as one file, all or nothing: as a temporary file, synced, then renamed. It is durable when this returns.
 */
export function writeSpill(dataDir: string, kind: string, value: unknown, of: SpillsOf = {}): UnreadSpill {
  const folder = join(dataDir, 'spill')
  if (mkdirSync(folder, { recursive: true, mode: 0o700 }) !== undefined) syncFolder(dataDir)
  const path = newPath(folder, kind, of)
  writeWhole(path, value)
  syncFolder(folder)
  return unread(path)
}

/** Writes a temporary file, syncs and renames it. */
function writeWhole(path: string, value: unknown): void {
  const part = `${path}.part`
  try {
    const file = openSync(part, 'wx', 0o600)
    try {
      const bytes = pack(value)
      for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    renameSync(part, path)
  } catch (cause) {
    rmSync(part, { force: true }) // a partial file would only use up space
    throw cause
  }
}

/** As {@link writeSpill}, without blocking the thread. */
async function writeSpillAsync(
  dataDir: string,
  kind: string,
  value: unknown,
  of: SpillsOf,
): Promise<UnreadSpill> {
  const folder = join(dataDir, 'spill')
  if ((await mkdir(folder, { recursive: true, mode: 0o700 })) !== undefined) syncFolder(dataDir)
  const path = newPath(folder, kind, of)
  const part = `${path}.part`
  try {
    const file = await open(part, 'wx', 0o600)
    try {
      await file.writeFile(pack(value))
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(part, path)
  } catch (cause) {
    await rm(part, { force: true })
    throw cause
  }
  const named = await open(folder, 'r')
  await named.sync().finally(() => named.close())
  return unread(path)
}

/** The database's id is in the name, so that files of other databases need not be read. */
function newPath(folder: string, kind: string, { databaseId }: SpillsOf): string {
  const of = databaseId === undefined ? '' : `${OF}${databaseId}`
  return join(folder, `${kind}-${crypto.randomUUID()}${of}.msgpack`)
}

/**
 * The files of one kind that are there now, by name. Files of another database stay for a start on that: sent to this one,
 * they would add counts that never happened here.
 */
export function listSpills(dataDir: string, kind: string, of: SpillsOf = {}): UnreadSpill[] {
  const folder = join(dataDir, 'spill')
  const { own, others } = namesOf(folder, kind, of)
  if (others > 0)
    log(
      'warn',
      'spill_of_other_database',
      'the data dir has spill files of another database; they stay there',
      {
        folder,
        kind,
        files: others,
      },
    )
  return own.map((name) => unread(join(folder, name)))
}

/** Reads {@link listSpills}, one file at a time. */
export function* readSpills(dataDir: string, kind: string, of: SpillsOf = {}): Generator<Spill, void> {
  for (const file of listSpills(dataDir, kind, of)) {
    const spill = file.read()
    if (spill !== null) yield spill
  }
}

/** An unreadable file is renamed to `.unreadable` and logged. */
const unread = (path: string): UnreadSpill => ({
  read: () => {
    try {
      return { value: unpack(readFileSync(path)), done: () => rmSync(path, { force: true }) }
    } catch (cause) {
      if (isMissing(cause)) return null
      log('error', 'spill_unreadable', 'a spill file cannot be read; it was renamed to .unreadable', {
        path,
        cause,
      })
      renameSync(path, `${path}.unreadable`)
      return null
    }
  },
})

/** Spill files by what becomes of them. */
export type SpillCounts = {
  /** Postgres takes them as soon as it can. */
  waiting: number
  /** Postgres refused them. */
  rejected: number
  /** Damaged. */
  unreadable: number
  /** Of another database. */
  otherDatabase: number
}

/** Counts the files without blocking the thread. */
export async function countSpills(dataDir: string, of: SpillsOf = {}): Promise<SpillCounts> {
  const names = await readdir(join(dataDir, 'spill')).catch((cause) => {
    if (isMissing(cause)) return []
    throw cause
  })
  const files = names.filter((name) => name.endsWith('.msgpack'))
  const own = files.filter((name) => isOf(name, of))
  const rejected = own.filter((name) => name.startsWith(REJECTED)).length
  return {
    waiting: own.length - rejected,
    rejected,
    unreadable: names.filter((name) => name.endsWith('.unreadable')).length,
    otherDatabase: files.length - own.length,
  }
}

/** Begins the kinds of files that are kept for people to look at. */
export const REJECTED = 'rejected-'

/**
 * Reads every readable file of every kind. If a file is sent while it is rewritten, it reappears and is sent again, which
 * counts once.
 */
export function* readAllSpills(dataDir: string, of: SpillsOf = {}): Generator<SpillFile, void> {
  const folder = join(dataDir, 'spill')
  for (const name of namesOf(folder, null, of).own) {
    const path = join(folder, name)
    let value: unknown
    try {
      value = unpack(readFileSync(path))
    } catch {
      continue
    }
    yield {
      value,
      rewrite: (changed) => {
        writeWhole(path, changed)
        syncFolder(folder)
      },
    }
  }
}

/** Names of a kind's files: `own` = of this database or of an unknown one; `others` = the number of the rest. */
function namesOf(folder: string, kind: string | null, of: SpillsOf): { own: string[]; others: number } {
  const names = namesIn(folder).filter(
    (name) => (kind === null || name.startsWith(`${kind}-`)) && name.endsWith('.msgpack'),
  )
  const own = names.filter((name) => isOf(name, of))
  return { own, others: names.length - own.length }
}

function isOf(name: string, { databaseId }: SpillsOf): boolean {
  const of = databaseOf(name)
  return of === null || databaseId === undefined || of === databaseId
}

/** Precedes the database's id in a file's name. Files of earlier releases have none. */
const OF = '.of-'

function databaseOf(name: string): string | null {
  const at = name.indexOf(OF)
  return at === -1 ? null : name.slice(at + OF.length, -'.msgpack'.length)
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort()
  } catch (cause) {
    if (isMissing(cause)) return []
    throw cause
  }
}

const isMissing = (cause: unknown) => cause instanceof Error && 'code' in cause && cause.code === 'ENOENT'
