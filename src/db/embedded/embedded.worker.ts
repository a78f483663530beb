import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import { NodeFS } from '@electric-sql/pglite/nodefs'
import { serveOwner } from '../../lib/managed-thread.ts'
import type { DatabaseRequests } from './embedded.ts'
import { sessionOf } from './pglite-session.ts'
import { serveWire, type WireServer } from './wire-server.ts'

/**
 * The database thread: opens PGlite on its folder, serves it on the socket, and closes both when told. It makes up for six
 * shortcomings of PGlite 0.5.14; check them with each new version.
 *
 * 1. Durability: fsync is on and reaches the disk.
 * 2. Memory: 32 MB of shared buffers instead of 128.
 * 3. Lock: an empty `postmaster.pid`, which a power loss leaves, does not keep Postgres from starting.
 * 4. Privacy: only the owner can read its files.
 * 5. Answers are not kept in memory (`pglite-session.ts`).
 * 6. Panic: when Postgres ends itself, the thread ends, instead of calling it again for ever.
 *
 * Why, and the cost of each: docs/decisions/0008.
 */

declare const self: Worker

/** The last lines of Postgres' log: if it ends, they say why. */
const complaints: string[] = []
let database: PGlite | undefined
let server: WireServer | undefined

const { die } = serveOwner<DatabaseRequests>(self, {
  async start({ folder, socketPath }) {
    database = await openDatabase(folder)
    server = serveWire(await sessionOf(database), {
      socketPath,
      onDeath: () => die(`Postgres has ended itself: ${complaints.join(' | ')}`),
    })
  },
  async stop() {
    server?.stop()
    await database?.close()
  },
})

async function openDatabase(folder: string): Promise<PGlite> {
  const isFirst = !existsSync(join(folder, 'PG_VERSION'))
  if (isFirst) {
    await makeFiles(folder)
    await collected() // else the garbage of starting stays in memory while the database loads
  }
  rmSync(join(folder, 'postmaster.pid'), { force: true })
  takeFromOthers(folder)
  const opened = await PGlite.create({
    fs: new SyncedFiles(folder),
    startParams: START_PARAMS,
    onStderr: (line) => {
      if (/ (PANIC|FATAL|LOG): /.test(line)) complaints.push(line) // other lines may contain callers' data
      if (complaints.length > 5) complaints.shift()
      return false
    },
  })
  endWithPostgres(opened)
  if (isFirst) await collected() // else memory in use at the end of the start would never be freed
  return opened
}

/** Collects garbage in a later turn: the current turn's garbage is still referenced. */
async function collected(): Promise<void> {
  await Bun.sleep(1)
  Bun.gc(true)
}

/** Creates the database files in a temporary folder and renames it: a killed first start leaves no half-made database. */
async function makeFiles(folder: string): Promise<void> {
  const part = `${folder}.part`
  rmSync(part, { recursive: true, force: true })
  const fresh = await PGlite.create(part, { startParams: START_PARAMS })
  await fresh.close()
  syncAll(part)
  renameSync(part, folder)
  syncFile(dirname(folder))
}

const START_PARAMS = [
  ...PGlite.defaultStartParams.filter((param) => param !== '-F'), // "-F" turns fsync off
  ...['wal_sync_method=fsync', 'shared_buffers=32MB', 'min_wal_size=32MB'].flatMap((setting) => [
    '-c',
    setting,
  ]),
]

/** What Emscripten's file layer lacks. `nfd` is the real file descriptor; a folder has none and is opened for the sync. */
type FileLayer = {
  realPath(node: unknown): string
  node_ops: { setattr: (node: unknown, attributes: { mode?: number | null }) => void }
  stream_ops: { fsync?: (stream: { nfd?: number; node: unknown }) => void }
}

/**
 * PGlite's files: readable by the owner only, and with each fsync of Postgres passed to the disk. Also during startup:
 * Postgres first records that it runs. If the disk still said "shut down" after a crash, the next start would skip recovery
 * and lose everything logged since.
 */
class SyncedFiles extends NodeFS {
  override async init(...args: Parameters<NodeFS['init']>): ReturnType<NodeFS['init']> {
    const { emscriptenOpts } = await super.init(...args)
    return {
      emscriptenOpts: {
        ...emscriptenOpts,
        preRun: [...(emscriptenOpts.preRun ?? []), passFsyncToDisk, keepToOwner],
      },
    }
  }
}

function fileLayerOf(module: PGlite['Module']): FileLayer {
  const layers: Record<string, FileLayer> = module.FS.filesystems
  const layer = layers.NODEFS
  if (layer === undefined)
    throw new Error('PGlite has changed its file layer: fsync cannot be passed to the disk, nor modes be set')
  return layer
}

function passFsyncToDisk(module: PGlite['Module']): void {
  const layer = fileLayerOf(module)
  layer.stream_ops.fsync = (stream) => {
    if (stream.nfd === undefined) syncFile(layer.realPath(stream.node))
    else fsyncSync(stream.nfd)
  }
}

function keepToOwner(module: PGlite['Module']): void {
  const { node_ops } = fileLayerOf(module)
  const { setattr } = node_ops
  node_ops.setattr = (node, attributes) =>
    setattr(
      node,
      typeof attributes.mode === 'number' ? { ...attributes, mode: attributes.mode & ~OTHERS } : attributes,
    )
}

/** Restricts files made without {@link keepToOwner}: by PGlite's initdb, or by an earlier release. */
function takeFromOthers(folder: string): void {
  const inside = readdirSync(folder, { withFileTypes: true, recursive: true })
  for (const path of [folder, ...inside.map(({ parentPath, name }) => join(parentPath, name))]) {
    const { mode } = statSync(path)
    if ((mode & OTHERS) !== 0) chmodSync(path, mode & ~OTHERS)
  }
}
const OTHERS = 0o077

/** Turns a panic of Postgres into an exception. PGlite would catch it and go on. */
function endWithPostgres(opened: PGlite): void {
  const module = opened.Module
  const loopOnce = module._PostgresMainLoopOnce
  module._PostgresMainLoopOnce = () => {
    try {
      loopOnce()
    } catch (cause) {
      if (isStatementError(cause)) throw cause
      // PGlite catches this too, but calls these functions before it continues.
      module.stackRestore = () => {
        throw new Error('Postgres has ended itself', { cause })
      }
      module._PostgresSendReadyForQueryIfNecessary = () => {}
      module._pgl_pq_flush = () => {}
      throw cause
    }
  }
}

/** Postgres' jump to its error handler, which PGlite performs. The number is PGlite's POSTGRES_MAIN_LONGJMP. */
const isStatementError = (cause: unknown) =>
  typeof cause === 'object' && cause !== null && 'status' in cause && cause.status === 100

function syncAll(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    syncFile(join(entry.parentPath, entry.name))
  }
  syncFile(folder)
}

function syncFile(path: string): void {
  const file = openSync(path, 'r')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}
