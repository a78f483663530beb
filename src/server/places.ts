import type { Config } from '../config.ts'
import { removeStaleSocket } from '../doors/http/stale-socket.ts'
import { StartError } from '../errors.ts'

/** A place to listen, and the variable that sets it. */
type Place = {
  where: { hostname: string; port: number } | { unix: string }
  /** The variable that sets it. */
  variable: 'PORT' | 'TOLLGATE_METRICS_PORT' | 'TOLLGATE_DASHBOARD_PORT' | 'TOLLGATE_SOCKET'
}

/**
 * Listens briefly at every configured place, so that an unavailable one is reported at once. Not shared, although threads
 * may share the port later: with a second server on the port, each would get half of the connections.
 * @throws StartError: one line that names the variable to change.
 */
export async function tryPlaces({
  listen,
  metricsPort,
  dashboard,
}: Pick<Config, 'listen' | 'metricsPort' | 'dashboard'>) {
  const { host: hostname, port, socketPath } = listen
  const places: Place[] = []
  if (port !== null && port !== 0) places.push({ where: { hostname, port }, variable: 'PORT' })
  if (metricsPort !== null && metricsPort !== 0)
    places.push({ where: { hostname, port: metricsPort }, variable: 'TOLLGATE_METRICS_PORT' })
  const dashboardPort = dashboard?.port ?? 0
  if (dashboardPort !== 0)
    places.push({ where: { hostname, port: dashboardPort }, variable: 'TOLLGATE_DASHBOARD_PORT' })
  if (socketPath !== null) {
    await removeStaleSocket(socketPath)
    places.push({ where: { unix: socketPath }, variable: 'TOLLGATE_SOCKET' })
  }
  const held: { stop(closeActive?: boolean): void }[] = []
  try {
    for (const place of places) held.push(await tryPlace(place))
  } finally {
    for (const each of held) each.stop(true)
  }
}

/** A killed server keeps its port until the system has cleaned up. Its successor may start before. */
const DYING_MS = 1_000

async function tryPlace({ where, variable }: Place): Promise<{ stop(closeActive?: boolean): void }> {
  const endMs = performance.now() + DYING_MS
  for (;;) {
    try {
      const socket = { data() {} }
      return 'unix' in where ? Bun.listen({ ...where, socket }) : Bun.listen({ ...where, socket })
    } catch (cause) {
      const isInUse = codeOf(cause) === 'EADDRINUSE'
      if (!isInUse || 'unix' in where || performance.now() >= endMs)
        throw listenError(cause, {
          variable,
          ...('unix' in where ? { path: where.unix } : { host: where.hostname, port: where.port }),
        })
      await Bun.sleep(50)
    }
  }
}

/** Why a place is not available, in one line with what to change. */
export function listenError(
  cause: unknown,
  place: { variable: string; path?: string; host?: string; port?: number },
): StartError {
  const { variable, path, host, port } = place
  const what = `${variable} ${path ?? port}`
  const code = codeOf(cause)
  return new StartError(lineOf(), { cause })

  function lineOf(): string {
    switch (code) {
      case 'EADDRINUSE':
        return `${what} is in use by another program on ${host ?? 'this machine'}; stop that program, or set ${variable} to another ${path === undefined ? 'port' : 'path'}`
      case 'EADDRNOTAVAIL':
        return `HOST ${host} is not an address of this machine; set HOST to one of its addresses, or to 0.0.0.0 for all`
      case 'EACCES':
        return path === undefined
          ? `${what} cannot be used by this user (ports below 1024 mostly need root); set ${variable} to another port`
          : `${what} cannot be created: permission denied; set ${variable} to another path`
      case 'ENOENT':
        return `${what} cannot be created: its folder does not exist`
      default: {
        if (host !== undefined && cause instanceof Error && cause.message === `Failed to listen at ${host}`)
          return `HOST ${host} is not an address of this machine; set HOST to one of its addresses, or to 0.0.0.0 for all`
        const reason = cause instanceof Error ? cause.message : String(cause)
        return `cannot listen on ${host === undefined ? '' : `HOST ${host}, `}${what}: ${reason}`
      }
    }
  }
}

const codeOf = (cause: unknown): unknown =>
  cause instanceof Error && 'code' in cause ? cause.code : undefined
