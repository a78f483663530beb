import { StartError } from '../db/data-dir.ts'
import type { Deps } from '../deps.ts'
import { createApp } from './app.ts'
import { BODY_BYTES_MAX } from './body.ts'

export type Listener = {
  /** Address in use, without a trailing slash. */
  url: string
  port: number
  /** Takes no more connections, answers what is in flight, then closes. Bounded: what takes longer is cut off. */
  stop(): Promise<void>
}

/**
 * Serves the app of one thread.
 * @param options.isShared Whether other threads listen on the same port; the kernel then spreads connections over them.
 * @throws StartError when the port cannot be had.
 */
export function listen(deps: Deps, options: { host: string; port: number; isShared: boolean }): Listener {
  const { app, hot } = createApp(deps)
  let server: Bun.Server<unknown>
  try {
    server = Bun.serve({
      hostname: options.host,
      port: options.port,
      reusePort: options.isShared,
      routes: hot,
      fetch: app.fetch,
      // The app itself refuses what is larger, with an answer that says so; this is only the end of its patience.
      maxRequestBodySize: 16 * BODY_BYTES_MAX,
    })
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new StartError(`cannot listen on HOST ${options.host}, PORT ${options.port}: ${reason}`, { cause })
  }
  app.server = server
  const port = server.port ?? options.port
  return {
    url: `http://${displayHost(options.host)}:${port}`,
    port,
    stop: async () => {
      const patience = Bun.sleep(STOP_MS).then(() => server.stop(true))
      await Promise.race([server.stop(), patience])
    },
  }
}

/** How long a stop waits for requests in flight. */
const STOP_MS = 2000

/** An address others can use: "any address" is not one. */
function displayHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost'
  return host.includes(':') ? `[${host}]` : host
}
