import { readFileSync } from 'node:fs'
import type { Config } from '../config.ts'
import { log } from '../log.ts'

/**
 * Each connection is an open file, and a process that has as many as it may can neither take a connection nor refuse it, and
 * its database looks away. So fewer connections are taken where the system allows fewer files, and the log says so.
 * @param filesMax What the system allows this process; null = not known.
 */
export function withinOpenFiles(config: Config, filesMax: number | null = openFilesMax()): Config {
  const { listen } = config
  const { listeners, ownFiles, all } = filesNeeded(config)
  if (filesMax === null || all <= filesMax) return config
  const connectionsMax = Math.max(1, Math.floor((filesMax - ownFiles) / listeners))
  log(
    'warn',
    'connections_lowered',
    'fewer connections are taken than TOLLGATE_CONNECTIONS_MAX: the limit of open files (ulimit -n) allows no more',
    { openFilesMax: filesMax, ownFiles, asked: listen.connectionsMax, connectionsMax },
  )
  return { ...config, listen: { ...listen, connectionsMax } }
}

/** What a server opens: for itself, and for as many connections as each listener may have. */
export function filesNeeded({ threads, listen, databaseUrl }: Config) {
  const listeners = (listen.port === null ? 0 : threads.http) + (listen.socketPath === null ? 0 : 1)
  const ownFiles =
    OWN_FILES +
    OF_HTTP_THREAD * threads.http +
    OF_SHARD * threads.shards +
    (databaseUrl === null ? OF_EMBEDDED_DATABASE : 0)
  return { listeners, ownFiles, all: listeners * listen.connectionsMax + ownFiles }
}

/** The limit that holds now; Bun raises it at start as far as it may. Linux tells it. */
export function openFilesMax(): number | null {
  try {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? null : Number(soft)
  } catch {
    return null
  }
}

// Counted on a running server (/proc/<pid>/fd), with room: 12 connections to Postgres in each HTTP thread, one in each shard.
const OWN_FILES = 64
const OF_HTTP_THREAD = 16
const OF_SHARD = 4
/** It keeps its tables open. */
const OF_EMBEDDED_DATABASE = 320
