import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { log } from '../log.ts'
import type { DatabaseAddress } from './connect.ts'
import { StartError } from './data-dir.ts'

/**
 * The private Postgres of a server without DATABASE_URL: PGlite in a thread of its own (`embedded.worker.ts`), served
 * on a Unix socket (`wire-server.ts`), so that the rest of the program knows one driver and one way in.
 */
export type EmbeddedDatabase = {
  address: DatabaseAddress
  /** Closes it cleanly, within `STOP_MS`; later than that it is ended like a crash, which loses nothing either. */
  stop(): Promise<void>
}

/** Main thread → database thread. */
export type ToDatabase = { kind: 'start'; folder: string; socketPath: string } | { kind: 'stop' }
/** Database thread → main thread: one `started` or `failed` after `start`, one `stopped` after `stop`. */
export type FromDatabase = { kind: 'started' } | { kind: 'failed'; reason: string } | { kind: 'stopped' }

/** The very first start makes the database files, which takes seconds; a slow disk many more. */
const START_MS = 120_000
const STOP_MS = 5_000
/** Bytes of a socket's path on Linux (108) and macOS (104), less the closing zero. */
const SOCKET_PATH_BYTES_MAX = 103

/**
 * Starts it on `<dataDirPath>/postgres`, made when there is none. Who calls holds the data dir exclusively: a second
 * Postgres on the same files would destroy them.
 * @param options.onFailure Called once when the thread dies after its start; no query is answered from then on.
 * @throws StartError when it does not start.
 */
export async function startEmbedded(
  dataDirPath: string,
  options: { onFailure?: (error: Error) => void } = {},
): Promise<EmbeddedDatabase> {
  const socket = socketIn(dataDirPath)
  const worker = new Worker(new URL('./embedded.worker.ts', import.meta.url))
  const send = (message: ToDatabase) => worker.postMessage(message)
  try {
    const started = answer(worker, 'started', START_MS)
    send({ kind: 'start', folder: join(dataDirPath, 'postgres'), socketPath: socket.path })
    await started
  } catch (cause) {
    worker.terminate()
    socket.remove()
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`the embedded database in ${dataDirPath} does not start: ${reason}`, { cause })
  }
  const onDeath = (error: Error) => {
    if (options.onFailure === undefined) log('error', 'the embedded database died', { cause: error })
    else options.onFailure(error)
  }
  const died = once(worker, onDeath)
  let stopping: Promise<void> | undefined
  const stop = async () => {
    died.ignore()
    try {
      const stopped = answer(worker, 'stopped', STOP_MS)
      send({ kind: 'stop' })
      await stopped
    } catch (cause) {
      log('warn', 'the embedded database did not close cleanly; its next start will recover it', { cause })
    }
    worker.terminate()
    socket.remove()
  }
  return {
    address: { kind: 'embedded', socketPath: socket.path },
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

/** In the data dir, unless that path is too long for a socket: then in a private folder for temporary files. */
function socketIn(dataDirPath: string): { path: string; remove(): void } {
  const path = join(dataDirPath, 'postgres.sock')
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) {
    return { path, remove: () => rmSync(path, { force: true }) }
  }
  const elsewhere = join(mkdtempSync(join(tmpdir(), 'tollgate-')), 'postgres.sock')
  return { path: elsewhere, remove: () => rmSync(dirname(elsewhere), { recursive: true, force: true }) }
}

/** @returns when that answer comes. @throws when a failure comes instead, the thread dies, or time is up. */
function answer(worker: Worker, kind: FromDatabase['kind'], timeoutMs: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const onMessage = ({ data }: MessageEvent<FromDatabase>) => {
    if (data.kind === kind) resolve()
    else if (data.kind === 'failed') reject(new Error(data.reason))
  }
  const death = once(worker, reject)
  const timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
  worker.addEventListener('message', onMessage)
  return promise.finally(() => {
    clearTimeout(timer)
    death.ignore()
    worker.removeEventListener('message', onMessage)
  })
}

/** Calls `onDeath` the first time the thread throws or ends. */
function once(worker: Worker, onDeath: (error: Error) => void): { ignore(): void } {
  const ignore = () => {
    worker.removeEventListener('error', onError)
    worker.removeEventListener('close', onClose)
  }
  const die = (error: Error) => {
    ignore()
    onDeath(error)
  }
  const onError = (event: ErrorEvent) =>
    die(event.error instanceof Error ? event.error : new Error(event.message))
  const onClose = () => die(new Error('the database thread has ended'))
  worker.addEventListener('error', onError)
  worker.addEventListener('close', onClose)
  return { ignore }
}
