import { chmodSync } from 'node:fs'
import type { Config } from '../../config.ts'
import { StartError } from '../../errors.ts'
import { systemTimers } from '../../lib/timers.ts'
import type { ConnectionCounts } from '../../observe/measures.ts'
import { HeldMemory } from './held-memory.ts'
import { type HttpApp, HttpServer } from './http-server.ts'
import { removeStaleSocket } from './stale-socket.ts'
import { Turns } from './turns.ts'
import { YoungGarbage } from './young-garbage.ts'

export type Listener = {
  /** Base of links to this server, without a trailing slash. */
  url: string
  /** The TCP port in use; null = none. */
  port: number | null
  /** Where it listens, for people: a URL, the path of a Unix socket, or both. */
  places: string[]
  /**
   * Goes on accepting and answering, each answer the last of its connection, so that a load balancer and clients turn to
   * other servers without a broken call.
   */
  drain(): void
  /** Stops accepting, answers requests in flight, then closes. Cuts off the rest after {@link STOP_MS}. */
  stop(): Promise<void>
}

/**
 * Serves the app of one thread on a TCP port, a Unix socket (mode 0660), or both: one {@link HttpServer} each.
 * @param app The handlers; see `http-server.ts`.
 * @param options.isShared True when other threads listen on the same port. The kernel spreads connections over them.
 * @throws StartError when the port or the socket is not available.
 */
export async function listen(
  { fastRoutes, cold, refuse }: HttpApp,
  options: Config['listen'] & { isShared: boolean; counts: ConnectionCounts },
): Promise<Listener> {
  const { host, port, socketPath, isShared, connectionsMax, memoryBytesMax, counts } = options
  const garbage = new YoungGarbage()
  const turns = new Turns(systemTimers)
  const memory = new HeldMemory(memoryBytesMax, counts, () => turns.retry())
  const common = {
    fastRoutes,
    cold,
    refuse,
    connectionsMax,
    counts,
    garbage,
    memory,
    turns,
  }
  const servers: HttpServer[] = []
  let boundPort: number | null = null
  try {
    if (port !== null) {
      const where = { hostname: host, port, reusePort: isShared }
      const server = start(`HOST ${host}, PORT ${port}`, () => new HttpServer({ ...common, where }))
      servers.push(server)
      boundPort = server.port
    }
    if (socketPath !== null) {
      await removeStaleSocket(socketPath)
      const where = { unix: socketPath }
      servers.push(start(`TOLLGATE_SOCKET ${socketPath}`, () => new HttpServer({ ...common, where })))
      chmodSync(socketPath, 0o660)
    }
  } catch (cause) {
    garbage.stop()
    await Promise.all(servers.map((server) => server.stop(0)))
    throw cause
  }
  const url = boundPort === null ? null : `http://${displayHost(host)}:${boundPort}`
  return {
    url: url ?? 'http://localhost',
    port: boundPort,
    places: [url, socketPath].filter((place) => place !== null),
    drain: () => {
      for (const server of servers) server.drain()
    },
    stop: async () => {
      // Bun removes a Unix socket's path when it stops listening. Later the path may belong to the next server.
      await Promise.all(servers.map((server) => server.stop(STOP_MS)))
      garbage.stop()
    },
  }
}

/**
 * Serves an app on a port of its own, beside the API's: for few clients, with little memory.
 * @throws StartError when the port is not available.
 */
export function listenAside(
  { cold, refuse }: Omit<HttpApp, 'fastRoutes'>,
  { host, port, variable }: { host: string; port: number; variable: string },
): { url: string; stop(): Promise<void> } {
  const counts = { open: 0, refused: 0, heldBytes: 0, givenUp: 0 }
  const turns = new Turns(systemTimers)
  const server = start(`HOST ${host}, ${variable} ${port}`, () => {
    return new HttpServer({
      where: { hostname: host, port, reusePort: false },
      fastRoutes: new Map(),
      cold,
      refuse,
      connectionsMax: ASIDE_CONNECTIONS_MAX,
      counts,
      garbage: { received: () => {} },
      memory: new HeldMemory(ASIDE_MEMORY_BYTES, counts, () => turns.retry()),
      turns,
    })
  })
  return {
    url: `http://${displayHost(host)}:${server.port}`,
    stop: () => server.stop(STOP_MS),
  }
}

const ASIDE_CONNECTIONS_MAX = 100
const ASIDE_MEMORY_BYTES = 4 * 2 ** 20

/** How long a stop waits for requests in flight, ms. */
const STOP_MS = 2000

function start<T>(where: string, serve: () => T): T {
  try {
    return serve()
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`cannot listen on ${where}: ${reason}`, { cause })
  }
}

/** An address that clients can use instead of "any address". */
function displayHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost'
  return host.includes(':') ? `[${host}]` : host
}
