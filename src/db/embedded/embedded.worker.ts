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
import type { FromDatabase, ToDatabase } from './embedded.ts'
import { sessionOf } from './pglite-session.ts'
import { serveWire, type WireServer } from './wire-server.ts'

/**
 * The database thread: opens PGlite on its folder, serves it on the socket, closes both when told. Six things that PGlite 0.5.14
 * leaves out, or does too much of, are put right here; look at them again with each new version.
 *
 * 1. Durability: fsync is on and reaches the disk.   2. Memory: 32 MB of shared buffers instead of 128.
 * 3. Lock: an empty `postmaster.pid`, as a loss of power leaves it, does not keep Postgres from starting.
 * 4. Privacy: its files are the owner's alone.   5. Answers: they are not all kept in memory (`pglite-session.ts`).
 * 6. Panic: when Postgres ends itself, on a full disk for example, the thread ends instead of calling it again for ever.
 *
 * Why and what each costs: docs/decisions/0008.
 */

declare const self: Worker

const say = (message: FromDatabase) => self.postMessage(message)
const fail = (cause: unknown) =>
  say({ kind: 'failed', reason: cause instanceof Error ? cause.message : String(cause) })

/** The last lines that Postgres wrote about itself: why it ended, if it did. */
const complaints: string[] = []
let database: PGlite | undefined
let server: WireServer | undefined

self.onmessage = async ({ data }: MessageEvent<ToDatabase>) => {
  switch (data.kind) {
    case 'start':
      try {
        database = await openDatabase(data.folder)
        server = serveWire(await sessionOf(database), {
          socketPath: data.socketPath,
          onDeath: () => fail(`Postgres has ended itself: ${complaints.join(' | ')}`),
        })
        say({ kind: 'started' })
      } catch (cause) {
        fail(cause)
      }
      return
    case 'stop':
      server?.stop()
      await database?.close()
      say({ kind: 'stopped' })
      return
    default:
      data satisfies never
  }
}

async function openDatabase(folder: string): Promise<PGlite> {
  const isFirst = !existsSync(join(folder, 'PG_VERSION'))
  if (isFirst) {
    await makeFiles(folder)
    await collected() // else what made them is still in memory when the database itself comes
  }
  rmSync(join(folder, 'postmaster.pid'), { force: true })
  takeFromOthers(folder)
  const opened = await PGlite.create({
    fs: new SyncedFiles(folder),
    startParams: START_PARAMS,
    onStderr: (line) => {
      if (/ (PANIC|FATAL|LOG): /.test(line)) complaints.push(line) // the others can hold what a caller sent
      if (complaints.length > 5) complaints.shift()
      return false
    },
  })
  endWithPostgres(opened)
  if (isFirst) await collected() // what was still in use then, by the last of its work, would stay for good
  return opened
}

/** What the turn that asks has used can only be collected after it. */
async function collected(): Promise<void> {
  await Bun.sleep(1)
  Bun.gc(true)
}

/** Made aside and moved into place whole: a first start that is killed leaves nothing half made. */
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
  ...PGlite.defaultStartParams.filter((param) => param !== '-F'), // that would be: fsync off
  ...['wal_sync_method=fsync', 'shared_buffers=32MB', 'min_wal_size=32MB'].flatMap((setting) => [
    '-c',
    setting,
  ]),
]

/** What Emscripten's file layer lacks. `nfd` is the real file; a folder has none and is opened for it. */
type FileLayer = {
  realPath(node: unknown): string
  node_ops: { setattr: (node: unknown, attributes: { mode?: number | null }) => void }
  stream_ops: { fsync?: (stream: { nfd?: number; node: unknown }) => void }
}

/**
 * PGlite's files, for their owner alone, and with each fsync of Postgres passed to the disk: from the first instruction on, for one of the first things
 * it does is to write down that it runs. If the disk still said that it was shut down, the next start would not look for
 * what it had logged since, and all of that would be gone.
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

/** The files that were made without {@link keepToOwner}: by PGlite's initdb, or by a version before it. */
function takeFromOthers(folder: string): void {
  const inside = readdirSync(folder, { withFileTypes: true, recursive: true })
  for (const path of [folder, ...inside.map(({ parentPath, name }) => join(parentPath, name))]) {
    const { mode } = statSync(path)
    if ((mode & OTHERS) !== 0) chmodSync(path, mode & ~OTHERS)
  }
}
const OTHERS = 0o077

/** Makes a panic of Postgres an exception, where PGlite would swallow it and go on. */
function endWithPostgres(opened: PGlite): void {
  const module = opened.Module
  const loopOnce = module._PostgresMainLoopOnce
  module._PostgresMainLoopOnce = () => {
    try {
      loopOnce()
    } catch (cause) {
      if (isStatementError(cause)) throw cause
      // PGlite catches this too, but calls these before it goes round again.
      module.stackRestore = () => {
        throw new Error('Postgres has ended itself', { cause })
      }
      module._PostgresSendReadyForQueryIfNecessary = () => {}
      module._pgl_pq_flush = () => {}
      throw cause
    }
  }
}

/** The jump of Postgres to its error handler, which PGlite carries out; its number is PGlite's POSTGRES_MAIN_LONGJMP. */
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
