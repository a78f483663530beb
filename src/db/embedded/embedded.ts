import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Episode } from '../../episodes.ts'
import { StartError } from '../../errors.ts'
import { log } from '../../log.ts'
import type { DatabaseAddress } from '../connect.ts'
import { startHousekeeping } from './housekeeping.ts'

/**
 * The Postgres inside a server without DATABASE_URL: PGlite in its own thread (`embedded.worker.ts`), served on a Unix
 * socket (`wire-server.ts`). So the rest of the program uses one driver for both kinds of database.
 *
 * When Postgres panics, on a full disk for example, the thread ends and connections break. It is started again until it
 * runs, as a real Postgres recovers. The rest of the program sees an outage.
 */
export type EmbeddedDatabase = {
  address: DatabaseAddress
  /** Closes it cleanly. After {@link STOP_MS} the thread is terminated as in a crash, which loses nothing either. */
  stop(): Promise<void>
}

/** Main thread → database thread. */
export type ToDatabase = { kind: 'start'; folder: string; socketPath: string } | { kind: 'stop' }
/**
 * Database thread → main thread: `started` or `failed` answer `start`, `stopped` answers `stop`; `failed` may come at any
 * time.
 */
export type FromDatabase = { kind: 'started' } | { kind: 'failed'; reason: string } | { kind: 'stopped' }

/** The first start creates the database files: seconds, on a slow disk much longer. */
const START_MS = 120_000
const STOP_MS = 5_000
/** Wait for a terminated thread, ms. */
const TERMINATE_MS = 2_000
/** Pauses before the attempts to restart a dead database, ms; the last one repeats. */
const RESTART_AFTER_MS = [100, 1_000, 3_000]
/** After running this long, a database that dies gets the shortest pause again. */
const STABLE_AFTER_MS = 60_000
/** Longest path of a socket on Linux (108) and macOS (104), less the closing zero, in bytes. */
const SOCKET_PATH_BYTES_MAX = 103

/**
 * Starts the database in `<dataDirPath>/postgres`, created when missing. The caller holds the data directory exclusively: a
 * second Postgres on the same files would destroy them.
 * @param signal Aborts the start: the thread ends as in a crash, and the next start removes half-made files.
 * @throws StartError when it does not start; the signal's reason.
 */
export async function startEmbedded(dataDirPath: string, signal?: AbortSignal): Promise<EmbeddedDatabase> {
  const socket = socketIn(dataDirPath)
  const folder = join(dataDirPath, 'postgres')
  const open = () => openThread(folder, socket.path)
  const isNew = !existsSync(folder)
  const began = performance.now()
  if (isNew)
    log('info', 'database_creating', 'the embedded database is created, which takes some seconds', { folder })
  let thread: DatabaseThread
  try {
    thread = await openThread(folder, socket.path, signal)
    if (isNew) {
      const tookMs = Math.round(performance.now() - began)
      log('info', 'database_created', 'the embedded database is there', { tookMs })
    }
  } catch (cause) {
    socket.remove()
    signal?.throwIfAborted()
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`the embedded database in ${dataDirPath} does not start: ${reason}`, { cause })
  }
  const address: DatabaseAddress = { kind: 'embedded', socketPath: socket.path }
  const housekeeping = startHousekeeping(address)
  const stopping = Promise.withResolvers<null>()
  const watched = keepAlive(thread, open, stopping.promise)
  const stop = async () => {
    housekeeping.stop()
    stopping.resolve(null)
    await (await watched)?.stop()
    socket.remove()
  }
  let stopped: Promise<void> | undefined
  return {
    address,
    stop: () => {
      stopped ??= stop()
      return stopped
    },
  }
}

/** Restarts the database whenever it dies, until `stopping`. @returns the thread that runs then, if any. */
async function keepAlive(
  first: DatabaseThread,
  open: () => Promise<DatabaseThread>,
  stopping: Promise<null>,
): Promise<DatabaseThread | null> {
  let thread: DatabaseThread | null = first
  let attempts = 0
  for (;;) {
    if (thread !== null) {
      const startedAt = performance.now()
      const death = await Promise.race([thread.died, stopping])
      if (death === null) return thread
      log('error', 'embedded_database_died', 'the embedded database died and is started again', {
        cause: death,
      })
      if (performance.now() - startedAt > STABLE_AFTER_MS) attempts = 0
    }
    const waitMs = RESTART_AFTER_MS[Math.min(attempts++, RESTART_AFTER_MS.length - 1)]
    if (await Promise.race([Bun.sleep(waitMs ?? 0).then(() => false), stopping.then(() => true)])) return null
    thread = await open().catch((cause: unknown) => {
      if (restartFailing.begin())
        log(
          'error',
          'embedded_database_restart_failing',
          'the embedded database does not start again; the attempts go on',
          { cause },
        )
      return null
    })
    if (thread === null) continue
    restartFailing.end()
    log('info', 'embedded_database_restarted', 'the embedded database runs again', { attempts })
  }
}

const restartFailing = new Episode('embedded restart')

type DatabaseThread = {
  /** Resolves when the thread dies without having been told to. */
  died: Promise<Error>
  stop(): Promise<void>
}

/** @throws when it answers with a failure, dies, is aborted, or takes longer than `START_MS`. */
async function openThread(folder: string, socketPath: string, signal?: AbortSignal): Promise<DatabaseThread> {
  const worker = new Worker(new URL('./embedded.worker.ts', import.meta.url))
  const death = Promise.withResolvers<Error>()
  let onAnswer: (kind: 'started' | 'stopped') => void = () => {}
  worker.addEventListener('message', ({ data }: MessageEvent<FromDatabase>) => {
    if (data.kind !== 'failed') onAnswer(data.kind)
    else {
      death.resolve(new Error(data.reason))
      worker.terminate()
    }
  })
  worker.addEventListener('error', ({ error, message }) => {
    death.resolve(error instanceof Error ? error : new Error(message))
  })
  const ended = Promise.withResolvers<void>()
  worker.addEventListener('close', () => {
    death.resolve(new Error('the database thread has ended'))
    ended.resolve()
  })
  const giveUp = () => death.resolve(new Error('given up'))
  signal?.addEventListener('abort', giveUp)
  if (signal?.aborted === true) giveUp()

  /** Sends a message and waits for its answer. */
  const ask = async (message: ToDatabase, answer: 'started' | 'stopped', timeoutMs: number) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    onAnswer = (kind) => (kind === answer ? resolve() : undefined)
    death.promise.then(reject)
    worker.postMessage(message)
    await promise.finally(() => clearTimeout(timer))
  }

  try {
    await ask({ kind: 'start', folder, socketPath }, 'started', START_MS)
  } catch (cause) {
    worker.terminate()
    // The thread must have closed the files before another may use the folder.
    await Promise.race([ended.promise, Bun.sleep(TERMINATE_MS)])
    throw cause
  } finally {
    signal?.removeEventListener('abort', giveUp)
  }
  return {
    died: death.promise,
    stop: async () => {
      try {
        await ask({ kind: 'stop' }, 'stopped', STOP_MS)
      } catch (cause) {
        log(
          'warn',
          'embedded_database_unclean',
          'the embedded database did not close cleanly; its next start recovers it',
          { cause },
        )
      }
      worker.terminate()
    },
  }
}

/** The socket's path: in the data directory, or in a private temporary folder when that path is too long. */
function socketIn(dataDirPath: string): { path: string; remove(): void } {
  const path = join(dataDirPath, 'postgres.sock')
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) {
    return { path, remove: () => rmSync(path, { force: true }) }
  }
  const elsewhere = join(mkdtempSync(join(tmpdir(), 'tollgate-')), 'postgres.sock')
  return { path: elsewhere, remove: () => rmSync(dirname(elsewhere), { recursive: true, force: true }) }
}
