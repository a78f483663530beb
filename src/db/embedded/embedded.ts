import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Episode } from '../../episodes.ts'
import { StartError } from '../../errors.ts'
import { workerLink } from '../../lib/link.ts'
import { ManagedThread } from '../../lib/managed-thread.ts'
import { log } from '../../log.ts'
import type { DatabaseAddress } from '../connect.ts'
import { startHousekeeping } from './housekeeping.ts'

/**
 * The Postgres inside a server without DATABASE_URL: PGlite in its own thread (`embedded.worker.ts`), served on a Unix
 * socket (`wire-server.ts`). So the rest of the program uses one driver for both kinds of database.
 *
 * When Postgres panics, on a full disk for example, the thread ends and connections break. It is restarted until it runs, as
 * a real Postgres recovers. The rest of the program sees an outage.
 */
export type EmbeddedDatabase = {
  address: DatabaseAddress
  /** Closes it cleanly. After {@link STOP_MS} the thread is terminated as in a crash, which loses nothing either. */
  stop(): Promise<void>
}

/** What the main thread asks of the database thread. */
export type DatabaseRequests = {
  start(input: { folder: string; socketPath: string }): void
  stop(input: null): void
}

/** The first start creates the database files: seconds, on a slow disk much longer. */
const START_MS = 120_000
const STOP_MS = 5_000
/** Pauses before the attempts to restart a dead database, ms; the last one repeats. */
const RESTART_DELAYS_MS = [100, 1_000, 3_000]
/** The Postgres inside PGlite, whose files no other major version reads. A test compares it with a new database. */
export const EMBEDDED_POSTGRES = 18
/** Longest path of a socket on Linux (108) and macOS (104), less the closing zero, in bytes. */
const SOCKET_PATH_BYTES_MAX = 103

/**
 * Starts the database in `<dataDirPath>/postgres`, created when missing. The caller holds the data directory exclusively: a
 * second Postgres on the same files would destroy them.
 * @param signal Aborts the start: the thread ends as in a crash, and the next start removes half-made files.
 * @throws StartError when it does not start; the signal's reason.
 */
export async function startEmbedded(dataDirPath: string, signal?: AbortSignal): Promise<EmbeddedDatabase> {
  const folder = join(dataDirPath, 'postgres')
  requireSameMajor(folder)
  const socket = socketIn(dataDirPath)
  const isNew = !existsSync(folder)
  const began = performance.now()
  if (isNew)
    log('info', 'database_creating', 'creating the embedded database, which takes some seconds', { folder })
  const thread = new ManagedThread<DatabaseRequests>({
    open: () => workerLink(new Worker(new URL('./embedded.worker.ts', import.meta.url))),
    setUp: (starting) => starting.ask('start', { folder, socketPath: socket.path }, { timeoutMs: START_MS }),
    restartDelaysMs: RESTART_DELAYS_MS,
    onDeath: (cause) =>
      log('error', 'embedded_database_died', 'the embedded database crashed and restarts', { cause }),
    onRestarted: (attempts) => {
      restartFailing.end()
      log('info', 'embedded_database_restarted', 'the embedded database runs again', { attempts })
    },
    onRestartFailing: (cause) => {
      if (restartFailing.begin())
        log(
          'error',
          'embedded_database_restart_failing',
          'the embedded database cannot be restarted; attempts continue',
          { cause },
        )
    },
  })
  const giveUp = () => void thread.end()
  signal?.addEventListener('abort', giveUp)
  try {
    signal?.throwIfAborted()
    await thread.start()
    if (isNew) {
      const tookMs = Math.round(performance.now() - began)
      log('info', 'database_created', 'the embedded database was created', { tookMs })
    }
  } catch (cause) {
    socket.remove()
    signal?.throwIfAborted()
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`the embedded database in ${dataDirPath} cannot be started: ${reason}`, { cause })
  } finally {
    signal?.removeEventListener('abort', giveUp)
  }
  const address: DatabaseAddress = { kind: 'embedded', socketPath: socket.path }
  const housekeeping = startHousekeeping(address)
  return {
    address,
    stop: async () => {
      housekeeping.stop()
      await thread
        .stop(STOP_MS)
        .catch((cause: unknown) =>
          log(
            'warn',
            'embedded_database_unclean',
            'the embedded database did not close in time; its next start recovers it',
            { cause },
          ),
        )
      socket.remove()
    },
  }
}

const restartFailing = new Episode('embedded restart')

/** @throws StartError when another major version of Postgres made the files: this one would not start on them. */
function requireSameMajor(folder: string): void {
  const major = majorOf(folder)
  if (major === null || major === EMBEDDED_POSTGRES) return
  throw new StartError(
    `the embedded database in ${folder} is of Postgres ${major}, and this release reads Postgres ${EMBEDDED_POSTGRES}: make a backup with the release that wrote it (tollgate backup), and restore it with this one into a new data dir (tollgate restore)`,
  )
}

/** The major version of Postgres that made the files; null = there are none. */
function majorOf(folder: string): number | null {
  try {
    return Number(readFileSync(join(folder, 'PG_VERSION'), 'utf8').trim())
  } catch {
    return null // unreadable files end the start with their own message
  }
}

/** Whether a data directory holds an embedded database. */
export const hasEmbedded = (dataDirPath: string): boolean => majorOf(join(dataDirPath, 'postgres')) !== null

/** Where a server that runs on the data directory can be reached; null = its socket is in a folder that only it knows. */
export function runningEmbedded(dataDirPath: string): DatabaseAddress | null {
  const socketPath = join(dataDirPath, 'postgres.sock')
  return existsSync(socketPath) ? { kind: 'embedded', socketPath } : null
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
