import { Database, SQLiteError } from 'bun:sqlite'
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { StartError } from '../errors.ts'
import { encodeBase58 } from '../lib/base58.ts'
import { fileProblem } from '../lib/file-problem.ts'

/**
 * The data directory of a server: generated secrets, the embedded database, spill files.
 *
 * Each running server holds one slot, `node-0`, `node-1`, …: a lock, and an id that outlives restarts. The lock is SQLite's
 * write lock on an empty database, held for the life of the process. The kernel releases it when the process dies, and
 * SQLite also detects a second holder inside one process. A file with a process id would not do: after a kill -9 it blocks
 * the next start, or that has to guess whether the process still runs.
 */
export type DataDir = Disposable & {
  /** The path as given. */
  path: string
  /** The slot is new: no server has used it before. */
  isNew: boolean
  /** `node_<base58>`: the same for this slot at every start, different for every running server. */
  nodeId: string
  /**
   * The text of the file `name`. If there is none, it is created from `make` (mode 0600). Two callers at once get the same
   * text.
   * @throws StartError naming the file when it cannot be read or created, or is empty.
   */
  secret(name: string, make: () => string): string
  /** The text of the file; null when it cannot be read. */
  found(name: string): string | null
  /** Releases the slot. A second call does nothing. */
  close(): void
}

/** Another server has the data directory for itself. */
export class DataDirInUse extends StartError {
  override name = 'DataDirInUse'
}

/** More servers on one folder are a mistake, most likely a loop that starts them. */
const SLOTS_MAX = 64
/** A killed server keeps its lock until the system has freed its memory. Its successor may start before. */
const DYING_MS = 1_000

/**
 * Creates the folder if needed (mode 0700) and takes a slot in it. Keep the result referenced: it holds the lock.
 * @param options.exclusive Take slot 0 or fail, for the embedded database, which allows one server only.
 * @throws DataDirInUse when slot 0 is taken; StartError when the folder cannot be used, or no slot is free.
 */
export function openDataDir(path: string, options: { exclusive: boolean }): DataDir {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
  } catch (cause) {
    throw new StartError(
      `the data directory ${path} cannot be created: ${fileProblem(cause)}; set TOLLGATE_DATA_DIR to another folder`,
      { cause },
    )
  }
  for (let slot = 0; slot < (options.exclusive ? 1 : SLOTS_MAX); slot++) {
    const base = join(path, `node-${slot}`)
    const lock = takeLock(`${base}.lock`, options.exclusive ? DYING_MS : 0)
    if (lock === null) continue
    try {
      const isNew = !existsSync(`${base}.id`)
      writeFileSync(`${base}.pid`, `${process.pid}\n`, { mode: 0o600 })
      return {
        path,
        isNew,
        nodeId: readOrMake(
          `${base}.id`,
          () => `node_${encodeBase58(crypto.getRandomValues(new Uint8Array(12)))}`,
        ),
        secret: (name, make) => readOrMake(join(path, name), make),
        found: (name) => findText(join(path, name)),
        close: () => lock.close(),
        [Symbol.dispose]: () => lock.close(),
      }
    } catch (cause) {
      lock.close()
      if (cause instanceof StartError) throw cause
      throw new StartError(`the data directory ${path} cannot be written: ${fileProblem(cause)}`, { cause })
    }
  }
  if (options.exclusive)
    throw new DataDirInUse(
      `the data directory ${path} is in use by another server${holder(join(path, 'node-0.pid'))}; stop it, or set TOLLGATE_DATA_DIR to another folder`,
    )
  throw new StartError(
    `the data directory ${path} is already used by ${SLOTS_MAX} servers; set TOLLGATE_DATA_DIR to another folder`,
  )
}

/** @returns the holder of the lock, until closed or garbage collected; null when another holds it for all of `waitMs`. */
function takeLock(path: string, waitMs: number): Database | null {
  let lock: Database | undefined
  try {
    lock = new Database(path, { create: true, readwrite: true })
    // Nothing is ever stored, so a journal would only be left behind by a kill.
    lock.run('pragma journal_mode = off')
    lock.run(`pragma busy_timeout = ${waitMs}`)
    lock.run('begin immediate')
    return lock
  } catch (cause) {
    lock?.close()
    if (cause instanceof SQLiteError && cause.code === 'SQLITE_BUSY') return null
    throw new StartError(`the lock ${path} cannot be taken: ${reason(cause)}`, { cause })
  }
}

/** ` (process 123)`, when it is known. */
function holder(path: string): string {
  try {
    const text = readFileSync(path, 'utf8').trim()
    return /^\d+$/.test(text) ? ` (process ${text})` : ''
  } catch {
    return '' // only a hint for people; the lock decides
  }
}

function readOrMake(path: string, make: () => string): string {
  try {
    return readText(path) ?? makeText(path, make()) ?? readText(path) ?? ''
  } catch (cause) {
    if (cause instanceof StartError) throw cause
    throw new StartError(`the file ${path} cannot be read or created: ${reason(cause)}`, { cause })
  }
}

function findText(path: string): string | null {
  try {
    return readText(path)
  } catch {
    return null // callers that need the file report the problem
  }
}

function readText(path: string): string | null {
  try {
    const text = readFileSync(path, 'utf8').trim()
    if (text !== '') return text
  } catch (cause) {
    if (hasCode(cause, 'ENOENT')) return null
    throw cause
  }
  throw new StartError(
    `the file ${path} is empty; restore its content, or delete the file to generate a new one`,
  )
}

/**
 * Writes a temporary file, syncs it and links it into place. So the file is never partial, and unlike a rename, a link does
 * not replace a file that another process created meanwhile.
 * @returns the text, or null when another process was first.
 */
function makeText(path: string, text: string): string | null {
  const part = `${path}.${crypto.randomUUID()}.part`
  try {
    const file = openSync(part, 'wx', 0o600)
    try {
      const bytes = Buffer.from(`${text}\n`)
      for (let written = 0; written < bytes.length; ) written += writeSync(file, bytes, written)
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    linkSync(part, path)
    syncFolder(dirname(path))
    return text
  } catch (cause) {
    if (hasCode(cause, 'EEXIST')) return null
    throw cause
  } finally {
    rmSync(part, { force: true })
  }
}

/** Makes a new name durable: without this, a power loss can lose the name of a file whose content is on disk. */
export function syncFolder(path: string): void {
  const folder = openSync(path, 'r')
  try {
    fsyncSync(folder)
  } finally {
    closeSync(folder)
  }
}

const hasCode = (cause: unknown, code: string) =>
  cause instanceof Error && 'code' in cause && cause.code === code

const reason = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))
