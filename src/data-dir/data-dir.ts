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
 * The folder a server keeps its own things in: generated secrets, the embedded database, what a stop could not send.
 *
 * Each running server holds one slot of it, `node-0`, `node-1`, …: a lock and an id that outlives restarts. The lock is
 * SQLite's write lock on an empty database, held for the life of the process: the kernel lets go of it when the process
 * dies, however it dies, and SQLite also notices a second holder inside one process. A file with a process id in it,
 * the usual way, was refused: after a kill -9 it blocks the next start or has to guess whether that id is still ours.
 */
export type DataDir = Disposable & {
  /** Absolute, as given. */
  path: string
  /** No server had this slot before: an empty folder, or one made now. */
  isNew: boolean
  /** `node_<base58>`: the same for this slot at every start, never the same for two servers at once. */
  nodeId: string
  /**
   * The text of the file `name`, made by `make` and kept (mode 0600) when there is none; two at once agree on one.
   * @throws StartError naming the file when it can neither be read nor made, or is empty.
   */
  secret(name: string, make: () => string): string
  /** The text of that file; null when there is none to read. */
  found(name: string): string | null
  /** Gives the slot back. Harmless when done twice. */
  close(): void
}

/** More servers than this on one folder are a mistake: a loop that starts them, most likely. */
const SLOTS_MAX = 64
/** A server that was killed has its lock until the system has taken its memory away, and may be started again before. */
const DYING_MS = 1_000

/**
 * Makes the folder (mode 0700) when there is none and takes a slot in it. Keep the result: the lock goes with it.
 * @param options.exclusive For the embedded database, which takes one server only: slot 0 or nothing.
 * @throws StartError when the folder cannot be used, or no slot is free.
 */
export function openDataDir(path: string, options: { exclusive: boolean }): DataDir {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
  } catch (cause) {
    throw new StartError(
      `the data directory ${path} cannot be made: ${fileProblem(cause)}; set TOLLGATE_DATA_DIR to another folder`,
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
  throw new StartError(
    options.exclusive
      ? `the data directory ${path} is in use by another server${holder(join(path, 'node-0.pid'))}; stop it, or set TOLLGATE_DATA_DIR to another folder`
      : `the data directory ${path} has ${SLOTS_MAX} servers already; set TOLLGATE_DATA_DIR to another folder`,
  )
}

/** @returns what holds the lock until closed or garbage collected; null when another has it for all of `waitMs`. */
function takeLock(path: string, waitMs: number): Database | null {
  let lock: Database | undefined
  try {
    lock = new Database(path, { create: true, readwrite: true })
    // Nothing is ever stored in it, so a journal would only be left behind by a kill.
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
    return '' // only a help to find it: the lock alone decides
  }
}

function readOrMake(path: string, make: () => string): string {
  try {
    return readText(path) ?? makeText(path, make()) ?? readText(path) ?? ''
  } catch (cause) {
    if (cause instanceof StartError) throw cause
    throw new StartError(`the file ${path} cannot be read or made: ${reason(cause)}`, { cause })
  }
}

function findText(path: string): string | null {
  try {
    return readText(path)
  } catch {
    return null // whoever needs it says what is wrong
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
  throw new StartError(`the file ${path} is empty; put its text back, or remove it to have a new one made`)
}

/**
 * Written aside, synced, then linked into place: never half a file, and unlike a rename a link gives way to a file that
 * another process has put there in the meantime.
 * @returns the text, or null when another was first.
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

/** Makes the new name itself last: without it a power loss can forget a file whose content is on disk. */
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
