import { readFileSync } from 'node:fs'
import type { Config } from '../config.ts'
import { log } from '../log.ts'

/**
 * Lowers the number of connections where the system allows too few open files, and logs it. Each connection is an open
 * file. A process at its limit can neither accept nor refuse a connection, and cannot open one to its database.
 * @param filesMax Limit of open files of this process; null = unknown.
 */
export function withinOpenFiles(config: Config, filesMax: number | null = openFilesMax()): Config {
  const { listen } = config
  const { listeners, ownFiles, all } = filesNeeded(config)
  if (filesMax === null || all <= filesMax) return config
  const connectionsMax = Math.max(1, Math.floor((filesMax - ownFiles) / listeners))
  log(
    'warn',
    'connections_lowered',
    'the server accepts fewer connections than TOLLGATE_CONNECTIONS_MAX: the limit of open files (ulimit -n) is too low',
    { openFilesMax: filesMax, ownFiles, asked: listen.connectionsMax, connectionsMax },
  )
  return { ...config, listen: { ...listen, connectionsMax } }
}

/** Files that a server opens: its own, and one for each connection that its listeners may have. */
export function filesNeeded({ threads, listen, databaseUrl }: Config) {
  const listeners = (listen.port === null ? 0 : threads.http) + (listen.socketPath === null ? 0 : 1)
  const ownFiles =
    OWN_FILES +
    OF_HTTP_THREAD * threads.http +
    OF_SHARD * threads.shards +
    (databaseUrl === null ? OF_EMBEDDED_DATABASE : 0)
  return { listeners, ownFiles, all: listeners * listen.connectionsMax + ownFiles }
}

/** The current soft limit, which Bun raises at start as far as possible. Known on Linux only. */
export function openFilesMax(): number | null {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? null : Number(soft)
  } catch {
    return null
  }
}

// Counted on a running server (/proc/<pid>/fd), with room: 12 connections to Postgres in each HTTP thread, one in each
// shard.
const OWN_FILES = 64
const OF_HTTP_THREAD = 16
const OF_SHARD = 4
/** The embedded database keeps its tables open. */
const OF_EMBEDDED_DATABASE = 320
