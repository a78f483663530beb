import type { Socket, SocketHandler } from 'bun'
import { Episode } from '../../episodes.ts'
import { log } from '../../log.ts'
import type { ConnectionCounts } from '../../observe/measures.ts'
import type { Answer } from './answer.ts'
import { Connection } from './connection.ts'
import type { Handler } from './handle.ts'
import { HeadCache } from './head-cache.ts'
import type { HeldMemory } from './held-memory.ts'
import type { Refused } from './request-head.ts'
import type { RequestReader } from './request-reader.ts'
import { ResponseEncoder } from './response-encoder.ts'
import type { Turns } from './turns.ts'
import type { YoungGarbage } from './young-garbage.ts'

/**
 * The HTTP/1 server of one listener. Bytes of a connection (`connection.ts`) become a head (`request-head.ts`) and a body
 * (`request-body.ts`), then an answer by a handler of `fastRoutes`, or by `cold` for all else.
 *
 * | refused, and closed after the answer | status |
 * |---|---|
 * | a head, Host, length, target or chunk that is malformed or ambiguous | 400 |
 * | a body over 1 MiB | 400, by the endpoint |
 * | too slow to send; memory of the thread full | 408; 503 |
 * | request line, head or trailers over 16 KiB; unknown `Expect` | 414, 431; 417 |
 * | CONNECT, a coding other than chunked; another version than 1.0 and 1.1 | 501; 505 |
 *
 * Bun.serve takes 1.6 × the CPU and cannot bound connections, memory or slow senders: docs/decisions/0001.
 */
export class HttpServer {
  private readonly connections = new Set<Connection>()
  private readonly listener: Bun.TCPSocketListener<Connection> | Bun.UnixSocketListener<Connection>
  private readonly sweeper: Timer
  private isStopping = false
  private isDraining = false
  readonly heads = new HeadCache()
  readonly writer = new ResponseEncoder()

  constructor(readonly options: HttpServerOptions) {
    const { where, garbage } = options
    const socket: SocketHandler<Connection> = {
      open: (socket) => this.open(socket),
      data: (socket, chunk) => {
        garbage.received(chunk.length)
        socket.data.receive(chunk)
      },
      drain: (socket) => socket.data.drained(),
      end: (socket) => socket.data.ended(),
      close: (socket) => this.forget(socket.data),
      error: (socket) => socket.terminate(),
    }
    // The types of listeners lack `reusePort`. That several threads can share a port shows that it works.
    this.listener =
      'unix' in where
        ? Bun.listen<Connection>({ unix: where.unix, socket, allowHalfOpen: true })
        : Bun.listen<Connection>({ ...where, socket, allowHalfOpen: true })
    this.sweeper = setInterval(() => this.sweep(), 1000)
    this.sweeper.unref()
  }

  /** The port in use; null on a Unix socket. */
  get port(): number | null {
    return 'hostname' in this.options.where && 'port' in this.listener ? this.listener.port : null
  }

  /**
   * Runs once a second: cuts off connections that were idle, or slow to send or to receive, for too long. One pass over all
   * connections costs less than a timer each.
   */
  sweep(): void {
    for (const connection of this.connections) connection.age()
    this.options.turns.retry()
    if (!refusing.isOn || Date.now() - refusing.lastAt < CALM_MS) return
    const ended = refusing.end()
    if (ended !== null)
      log(
        'info',
        'connections_accepted',
        'client connections are accepted again: none was refused for ten seconds',
        {
          refused: ended.counted,
          lastedMs: ended.lastedMs,
        },
      )
  }

  /** From now on every answer is the last of its connection. New connections are accepted. */
  drain(): void {
    this.isDraining = true
  }

  /**
   * Answers received requests and those still arriving, the last of each connection with `Connection: close`. Idle
   * connections are closed after {@link QUIET_MS}, as a request may be on its way; after {@link DRAINED_QUIET_MS} when the
   * server drained, as a proxy sends requests until it is refused. The rest is cut off after `patienceMs`.
   */
  async stop(patienceMs: number): Promise<void> {
    const { where } = this.options
    // The kernel resets accepted connections when it stops listening, so take those first. A Unix socket stops at once: its
    // path disappears with it, and in the next turn may belong to the next server.
    if (patienceMs > 0 && !('unix' in where))
      for (let turn = 0; turn < 2; turn++) await new Promise(setImmediate)
    this.listener.stop()
    // A client whose connection ends opens another. Wait until no thread listens any more, or that one would be reset too.
    if (patienceMs > 0 && 'reusePort' in where && where.reusePort) await Bun.sleep(OTHER_THREADS_MS)
    this.isStopping = true
    const startedMs = performance.now()
    const quietMs = this.isDraining ? DRAINED_QUIET_MS : QUIET_MS
    for (;;) {
      const waitedMs = performance.now() - startedMs
      if (this.connections.size === 0 || waitedMs >= patienceMs) break
      if (waitedMs >= quietMs) for (const connection of this.connections) connection.finish()
      await Bun.sleep(5)
    }
    for (const connection of this.connections) connection.terminate()
    clearInterval(this.sweeper)
  }

  private open(socket: Socket<Connection>): void {
    const { connectionsMax, counts } = this.options
    socket.data = new Connection(socket, this)
    if (this.connections.size >= connectionsMax) {
      counts.refused++
      if (!refusing.isOn && refusing.begin())
        log(
          'warn',
          'connections_refused',
          'client connections are refused: TOLLGATE_CONNECTIONS_MAX are open',
          { connectionsMax },
        )
      refusing.count()
      socket.terminate()
      return
    }
    this.connections.add(socket.data)
    counts.open++
  }

  private forget(connection: Connection): void {
    if (this.connections.delete(connection)) this.options.counts.open--
    connection.closed()
  }

  get isClosing(): boolean {
    return this.isStopping || this.isDraining
  }
}

/** Shared by all threads. */
const refusing = new Episode('connections')
const CALM_MS = 10_000

/** The functions that answer requests. */
export type HttpApp = {
  /** Handlers by method and path, such as `POST /v1/ratelimits.limit`. */
  fastRoutes: ReadonlyMap<string, Handler>
  /** Answers every other request. */
  cold: (request: RequestReader) => Answer | Response | Promise<Answer | Response>
  /** The answer to bytes that are not a valid request. */
  refuse: (refused: Refused) => Answer
}

export type HttpServerOptions = HttpApp & {
  where: { hostname: string; port: number; reusePort: boolean } | { unix: string }
  /** Further connections are refused at once. */
  connectionsMax: number
  /** Counts connections. */
  counts: ConnectionCounts
  /** Counts received bytes. */
  garbage: Pick<YoungGarbage, 'received'>
  /** Shared by all listeners of the thread, as are the next ones. */
  memory: HeldMemory
  turns: Turns
}

/** Longer than a request takes from a client nearby, ms. */
const QUIET_MS = 150
const DRAINED_QUIET_MS = 500
/** Time for the other threads to stop listening, ms. */
const OTHER_THREADS_MS = 50
