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
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pack, unpack } from 'msgpackr'
import type { DatabaseAddress } from '../db/connect.ts'
import { log } from '../log.ts'
import { syncFolder } from './data-dir.ts'

/**
 * What could not reach Postgres before a stop, kept in `<data dir>/spill/` until the next start sends it. Records carry
 * what makes sending them twice harmless (absolute counts, batch numbers), so two servers may take up the same file.
 */

/** The spill files of one data dir. */
export type Spills = {
  /** @see writeSpill */
  write(kind: string, value: unknown): void
  /** The same, while the thread goes on: a disk may take many milliseconds to say that it has something. */
  writeAsync(kind: string, value: unknown): Promise<void>
  /** @see readSpills */
  read(kind: string): Iterable<Spill>
  /** How many of them there are now. */
  count(kind: string): number
}
export type Spill = { value: unknown; done(): void }
/** A file to be changed where it lies. */
export type SpillFile = { value: unknown; rewrite(value: unknown): void }

/** @param of Whose counts they are; read are only its own, and those of before files told. */
export const openSpills = (dataDir: string, of: SpillsOf = {}): Spills => ({
  write: (kind, value) => writeSpill(dataDir, kind, value, of),
  writeAsync: (kind, value) => writeSpillAsync(dataDir, kind, value, of),
  read: (kind) => readSpills(dataDir, kind, of),
  count: (kind) => namesOf(join(dataDir, 'spill'), kind, of).own.length,
})
type SpillsOf = Pick<DatabaseAddress, 'databaseId'>

/**
 * Writes `value` as one file of that kind, all of it or nothing: written aside, synced, then renamed into place. On the disk
 * when it returns, name and all.
 */
export function writeSpill(dataDir: string, kind: string, value: unknown, of: SpillsOf = {}): void {
  const folder = join(dataDir, 'spill')
  if (mkdirSync(folder, { recursive: true, mode: 0o700 }) !== undefined) syncFolder(dataDir)
  writeWhole(newPath(folder, kind, of), value)
  syncFolder(folder)
}

/** Written aside, synced, then renamed into place. */
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
    rmSync(part, { force: true }) // half a file on a full disk only takes room
    throw cause
  }
}

/** {@link writeSpill} for a thread that answers requests meanwhile. */
async function writeSpillAsync(dataDir: string, kind: string, value: unknown, of: SpillsOf): Promise<void> {
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
}

/** The database's id is in the name, so that nobody has to read what is not for them. */
function newPath(folder: string, kind: string, { databaseId }: SpillsOf): string {
  const of = databaseId === undefined ? '' : `${OF}${databaseId}`
  return join(folder, `${kind}-${crypto.randomUUID()}${of}.msgpack`)
}

/**
 * The files of that kind, oldest name first, each read when its turn comes: after a long outage they may be more than fits
 * into memory. Call `done()` once the value is safe in Postgres; until then the file stays. A file that cannot be read is
 * set aside as `.unreadable` and logged, never silently dropped; one that another process was done with first is passed over.
 * One of another database waits for a start on that: sent to this one, it would count what never happened here.
 */
export function* readSpills(dataDir: string, kind: string, of: SpillsOf = {}): Generator<Spill, void> {
  const folder = join(dataDir, 'spill')
  const { own, others } = namesOf(folder, kind, of)
  if (others > 0)
    log('warn', 'spill_of_other_database', 'spill files of another database stay in the data dir', {
      folder,
      kind,
      files: others,
    })
  for (const name of own) {
    const path = join(folder, name)
    let value: unknown
    try {
      value = unpack(readFileSync(path))
    } catch (cause) {
      if (isMissing(cause)) continue
      log('error', 'spill_unreadable', 'a spill file cannot be read and was set aside', { path, cause })
      renameSync(path, `${path}.unreadable`)
      continue
    }
    yield { value, done: () => rmSync(path, { force: true }) }
  }
}

/**
 * Every file of every kind that can be read. One that is sent while it is rewritten comes back and is sent again, which
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

/** The names of a kind's files that are of this database, or may be; and how many are not. */
function namesOf(
  folder: string,
  kind: string | null,
  { databaseId }: SpillsOf,
): { own: string[]; others: number } {
  const names = namesIn(folder).filter(
    (name) => (kind === null || name.startsWith(`${kind}-`)) && name.endsWith('.msgpack'),
  )
  const own = names.filter((name) => {
    const of = databaseOf(name)
    return of === null || databaseId === undefined || of === databaseId
  })
  return { own, others: names.length - own.length }
}

/** Before the database's id in the name of a file; one of before it was there has none. */
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
