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
import { join } from 'node:path'
import { pack, unpack } from 'msgpackr'
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
  /** @see readSpills */
  read(kind: string): Iterable<Spill>
}
export type Spill = { value: unknown; done(): void }

export const openSpills = (dataDir: string): Spills => ({
  write: (kind, value) => writeSpill(dataDir, kind, value),
  read: (kind) => readSpills(dataDir, kind),
})

/**
 * Writes `value` as one file of that kind, all of it or nothing: written aside, synced, then renamed into place. On the disk
 * when it returns, name and all.
 */
export function writeSpill(dataDir: string, kind: string, value: unknown): void {
  const folder = join(dataDir, 'spill')
  if (mkdirSync(folder, { recursive: true, mode: 0o700 }) !== undefined) syncFolder(dataDir)
  const path = join(folder, `${kind}-${crypto.randomUUID()}.msgpack`)
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
  syncFolder(folder)
}

/**
 * The files of that kind, oldest name first, each read when its turn comes: after a long outage they may be more than fits
 * into memory. Call `done()` once the value is safe in Postgres; until then the file stays. A file that cannot be read is
 * set aside as `.unreadable` and logged, never silently dropped; one that another process was done with first is passed over.
 */
export function* readSpills(dataDir: string, kind: string): Generator<Spill, void> {
  const folder = join(dataDir, 'spill')
  for (const name of namesIn(folder)) {
    if (!name.startsWith(`${kind}-`) || !name.endsWith('.msgpack')) continue
    const path = join(folder, name)
    let value: unknown
    try {
      value = unpack(readFileSync(path))
    } catch (cause) {
      if (isMissing(cause)) continue
      log('error', 'a spill file cannot be read and was set aside', { path, cause })
      renameSync(path, `${path}.unreadable`)
      continue
    }
    yield { value, done: () => rmSync(path, { force: true }) }
  }
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
