import { chmodSync, rmSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import type { Config } from '../config.ts'
import { StartError } from '../db/data-dir.ts'
import type { Deps } from '../deps.ts'
import { EXPOSITION_TYPE } from '../lib/exposition.ts'
import { YoungGarbage } from '../lib/young-garbage.ts'
import { createApp } from './app.ts'
import { BODY_BYTES_MAX } from './body.ts'
import { Front, type Peers } from './front.ts'

export type Listener = {
  /** Base of links to this server, without a trailing slash. */
  url: string
  /** The TCP port in use; null = none. */
  port: number | null
  /** Where it listens, for people: a URL, the path of a Unix socket, or both. */
  places: string[]
  /** Takes no more connections, answers what is in flight, then closes. Bounded: what takes longer is cut off. */
  stop(): Promise<void>
}

/**
 * Serves the app of one thread on a TCP port, a Unix socket (mode 0660), or both: a {@link Front} on each, and behind
 * them Bun's own server for what they leave alone. That one listens on a loopback port and answers nobody but tunnels.
 * @param options.isShared Whether other threads listen on the same port; the kernel then spreads connections over them.
 * @throws StartError when the port or the socket cannot be had.
 */
export async function listen(
  deps: Deps,
  options: Config['listen'] & { isShared: boolean },
): Promise<Listener> {
  const { host, port, socketPath, isShared, connectionsMax } = options
  const peers: Peers = { ofTunnel: new Map(), ofRequest: new WeakMap() }
  const tunnelOf = (request: Request): string | null | undefined =>
    peers.ofTunnel.get(behind.requestIP(request)?.port ?? 0)
  const { app, hot } = createApp(deps, {
    requestIP: (request) => {
      const address = peers.ofRequest.has(request) ? peers.ofRequest.get(request) : tunnelOf(request)
      return address == null ? null : { address }
    },
  })
  const behind: Bun.Server<undefined> = start('a port of its own', () =>
    Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: (request) =>
        tunnelOf(request) === undefined ? new Response(null, { status: 403 }) : app.fetch(request),
      // Bun's default goes by NODE_ENV, which nobody need set: no pages of its own for errors.
      development: false,
      // The app itself refuses what is larger, with an answer that says so; this is only the end of its patience.
      maxRequestBodySize: 16 * BODY_BYTES_MAX,
      idleTimeout: IDLE_SECONDS,
    }),
  )
  const garbage = new YoungGarbage()
  const common = {
    hot,
    fetch: app.fetch,
    behind: { hostname: '127.0.0.1', port: behind.port ?? 0 },
    peers,
    connectionsMax,
    counts: deps.measures.connections,
    garbage,
  }
  const fronts: Front[] = []
  let boundPort: number | null = null
  try {
    if (port !== null) {
      const where = { hostname: host, port, reusePort: isShared }
      const front = start(`HOST ${host}, PORT ${port}`, () => new Front({ ...common, where }))
      fronts.push(front)
      boundPort = front.port
    }
    if (socketPath !== null) {
      await removeStaleSocket(socketPath)
      const where = { unix: socketPath }
      fronts.push(start(`TOLLGATE_SOCKET ${socketPath}`, () => new Front({ ...common, where })))
      chmodSync(socketPath, 0o660)
    }
  } catch (cause) {
    garbage.stop()
    await Promise.all([...fronts.map((front) => front.stop(0)), behind.stop(true)])
    throw cause
  }
  const url = boundPort === null ? null : `http://${displayHost(host)}:${boundPort}`
  return {
    url: url ?? 'http://localhost',
    port: boundPort,
    places: [url, socketPath].filter((place) => place !== null),
    stop: async () => {
      // A Unix socket's path goes as soon as it takes no more (Bun does that). Not later: it may be a successor's by then.
      await Promise.all(fronts.map((front) => front.stop(STOP_MS)))
      garbage.stop()
      await behind.stop(true)
    },
  }
}

/**
 * `/metrics` alone, on a port of its own.
 * @throws StartError when the port cannot be had.
 */
export function listenForMetrics(
  text: () => Promise<string>,
  { host, port }: { host: string; port: number },
): { url: string; stop(): Promise<void> } {
  const server = start(`HOST ${host}, TOLLGATE_METRICS_PORT ${port}`, () =>
    Bun.serve({
      hostname: host,
      port,
      routes: {
        '/metrics': {
          GET: async () => new Response(await text(), { headers: { 'Content-Type': EXPOSITION_TYPE } }),
        },
      },
      fetch: () => new Response('only /metrics is here\n', { status: 404 }),
    }),
  )
  return {
    url: `http://${displayHost(host)}:${server.port}/metrics`,
    stop: () => server.stop(true),
  }
}

/** Without a byte either way: deleting all keys of a large API may take about that long to answer. */
const IDLE_SECONDS = 75

/** How long a stop waits for requests in flight. */
const STOP_MS = 2000

function start<T>(where: string, serve: () => T): T {
  try {
    return serve()
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`cannot listen on ${where}: ${reason}`, { cause })
  }
}

/** A killed server leaves its socket file; one that answers belongs to somebody. @throws StartError */
async function removeStaleSocket(path: string): Promise<void> {
  const file = statSync(path, { throwIfNoEntry: false })
  if (file === undefined) return
  if (!file.isSocket()) throw new StartError(`TOLLGATE_SOCKET ${path} is a file that is no socket`)
  const answers = await new Promise<boolean>((resolve) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
  if (answers) throw new StartError(`another server listens on TOLLGATE_SOCKET ${path}`)
  rmSync(path, { force: true })
}

/** An address others can use: "any address" is not one. */
function displayHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost'
  return host.includes(':') ? `[${host}]` : host
}
