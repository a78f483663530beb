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

/**
 * What could not reach Postgres before a stop, kept in `<data dir>/spill/` until the next start sends it. Records carry
 * what makes sending them twice harmless (absolute counts, batch numbers), so two servers may take up the same file.
 */

/** Writes `value` as one file of that kind, all of it or nothing: written aside, synced, then renamed into place. */
export function writeSpill(dataDir: string, kind: string, value: unknown): void {
  const folder = join(dataDir, 'spill')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const path = join(folder, `${kind}-${crypto.randomUUID()}.msgpack`)
  const file = openSync(`${path}.part`, 'wx', 0o600)
  try {
    const bytes = pack(value)
    for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(`${path}.part`, path)
}

/**
 * The files of that kind, oldest name first. Call `done()` once the value is safe in Postgres; until then the file stays.
 * A file that cannot be read is set aside as `.unreadable` and logged, never silently dropped.
 */
export function readSpills(dataDir: string, kind: string): { value: unknown; done(): void }[] {
  const folder = join(dataDir, 'spill')
  let names: string[]
  try {
    names = readdirSync(folder)
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return []
    throw cause
  }
  return names
    .filter((name) => name.startsWith(`${kind}-`) && name.endsWith('.msgpack'))
    .sort()
    .flatMap((name) => {
      const path = join(folder, name)
      try {
        const value: unknown = unpack(readFileSync(path))
        return [{ value, done: () => rmSync(path, { force: true }) }]
      } catch (cause) {
        log('error', 'a spill file cannot be read and was set aside', { path, cause })
        renameSync(path, `${path}.unreadable`)
        return []
      }
    })
}
