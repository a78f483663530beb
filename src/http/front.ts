import { STATUS_CODES } from 'node:http'
import type { Socket, SocketHandler } from 'bun'
import type { YoungGarbage } from '../lib/young-garbage.ts'
import { log } from '../log.ts'
import { type Answer, httpDate } from './answer.ts'
import { AnswerWriter } from './answer-writer.ts'
import { BODY_BYTES_MAX } from './body.ts'
import type { Handler } from './handle.ts'
import type { Incoming } from './incoming.ts'
import type { ConnectionCounts } from './measures.ts'
import { HEAD_BYTES_MAX, type RequestHead, readHead } from './request-head.ts'
import { type Behind, Tunnel } from './tunnel.ts'

/**
 * The sockets of one listener. The path of a request:
 *
 * 1. Its bytes come, perhaps in parts; they are kept until head and body are whole.
 * 2. `readHead` reads the head, strictly. What it leaves alone goes, with all that follows on the connection, through a
 *    tunnel to Bun's own server, which has the same routes.
 * 3. A hot endpoint's handler is called with it. Any other request becomes a `Request` for Elysia.
 * 4. The answer is written; then comes the connection's next request. Answers keep the order of the requests since
 *    there is only ever one in work; what a client sends meanwhile waits, and beyond a bound is not read.
 *
 * Why not Bun's server alone: it cannot bound connections or cut off slow senders, and its Request, Response and Headers
 * cost more than all else a `ratelimits.limit` does in JavaScript. CPU of a call as a multiple of bare Bun.serve's
 * (bench/http): 1.75 through Bun's server, 1.45 here with 32 connections, 1.2 with 64: the more callers, the more of them
 * share a message to the shard. Of the 1.45 a socket alone, JSON in and out, takes 0.8, the way to the shard and back 0.2.
 * That was with a thread for the shard. On one core without, and with answers written as bytes, 64 connections take 0.75 to 0.9.
 */
export class Front {
  private readonly connections = new Set<Connection>()
  private readonly listener: Bun.TCPSocketListener<Connection> | Bun.UnixSocketListener<Connection>
  private readonly sweeper: Timer
  private isStopping = false
  readonly heads = new KnownHeads()
  readonly writer = new AnswerWriter()

  constructor(readonly options: FrontOptions) {
    const { where, garbage } = options
    const socket: SocketHandler<Connection> = {
      open: (socket) => this.open(socket),
      data: (socket, chunk) => {
        garbage.received(chunk.length)
        socket.data.receive(chunk)
      },
      drain: (socket) => socket.data.drained(),
      close: (socket) => this.forget(socket.data),
      error: (socket) => socket.terminate(),
    }
    // `reusePort` is missing in the types of listeners; several threads sharing a port show that it works.
    this.listener =
      'unix' in where
        ? Bun.listen<Connection>({ unix: where.unix, socket })
        : Bun.listen<Connection>({ ...where, socket })
    this.sweeper = setInterval(() => this.sweep(), 1000)
    this.sweeper.unref()
  }

  /** The port in use; null on a Unix socket. */
  get port(): number | null {
    return 'port' in this.listener ? this.listener.port : null
  }

  /**
   * A second has passed: cuts off who has been idle, or slow to send or to take, for too long. One walk over all
   * connections instead of a timer each.
   */
  sweep(): void {
    for (const connection of this.connections) connection.age()
  }

  /** Takes no more connections, answers what is in work, then closes; what is left after `patienceMs` is cut off. */
  async stop(patienceMs: number): Promise<void> {
    this.isStopping = true
    this.listener.stop()
    for (const connection of this.connections) connection.finish()
    const endMs = performance.now() + patienceMs
    while (this.connections.size > 0 && performance.now() < endMs) await Bun.sleep(5)
    for (const connection of this.connections) connection.terminate()
    clearInterval(this.sweeper)
  }

  private open(socket: Socket<Connection>): void {
    const { connectionsMax, counts } = this.options
    socket.data = new Connection(socket, this)
    if (this.connections.size >= connectionsMax || this.isStopping) {
      counts.refused++
      if (counts.refused === 1 || counts.refused % 10_000 === 0)
        log(
          'warn',
          'connections_refused',
          'connections are refused: TOLLGATE_CONNECTIONS_MAX of them are open',
          { connectionsMax, refused: counts.refused },
        )
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

  /** Bytes of a tunnel that begins. */
  tunnel(socket: Socket<Connection>, peer: string | null): Tunnel {
    return new Tunnel(socket, this.options.behind, {
      onOpen: (port) => this.options.peers.ofTunnel.set(port, peer),
      onClose: (port) => this.options.peers.ofTunnel.delete(port),
    })
  }

  /** What Elysia answers, as an HTTP message. */
  async viaElysia(head: RequestHead, body: string, peer: string | null, isLast: boolean): Promise<Buffer> {
    const headers = new Headers()
    for (let i = 0; i < head.headers.length; i += 2)
      headers.append(head.headers[i] as string, head.headers[i + 1] as string) // they come in pairs
    const base = `http://${headers.get('host') ?? 'localhost'}`
    const url = URL.canParse(head.target, base) ? base + head.target : `http://localhost${head.target}`
    const request = new Request(url, {
      method: head.method,
      headers,
      ...(head.method === 'POST' ? { body } : {}),
    })
    this.options.peers.ofRequest.set(request, peer)
    const response = await this.options.fetch(request)
    const content = Buffer.from(await response.arrayBuffer())
    let lines = `HTTP/1.1 ${response.status} ${STATUS_CODES[response.status] ?? 'Unknown'}\r\n`
    for (const [name, value] of response.headers) {
      if (name !== 'content-length' && name !== 'connection') lines += `${name}: ${value}\r\n`
    }
    if (isLast || this.isStopping) lines += 'Connection: close\r\n'
    if (response.status !== 204) lines += `Content-Length: ${content.length}\r\n`
    lines += `Date: ${httpDate()}\r\n\r\n`
    return Buffer.concat([Buffer.from(lines, 'latin1'), content])
  }

  get isClosing(): boolean {
    return this.isStopping
  }
}

export type FrontOptions = {
  where: { hostname: string; port: number; reusePort: boolean } | { unix: string }
  /** By method and path. */
  hot: ReadonlyMap<string, Handler>
  /** Answers everything else, and never rejects. */
  fetch: (request: Request) => Response | Promise<Response>
  behind: Behind
  peers: Peers
  /** More are refused at once. */
  connectionsMax: number
  /** Told of every connection. */
  counts: ConnectionCounts
  /** Told of all that is received. */
  garbage: Pick<YoungGarbage, 'received'>
}

/** Who is at the other end; null = not known, as on a Unix socket. Shared by the fronts of one server behind. */
export type Peers = {
  /** By the local port through which Bun's server sees a tunnel. */
  readonly ofTunnel: Map<number, string | null>
  /** Of the requests made for Elysia. */
  readonly ofRequest: WeakMap<Request, string | null>
}

/** One client's connection. Its `data` handler runs for every request, so what it does is counted in microseconds. */
class Connection {
  /** Bytes received and not yet used: `held[0 .. heldBytes)`. */
  private held: Buffer = NOTHING
  private heldBytes = 0
  /** How many are needed before looking again makes sense; 0 = not known. */
  private neededBytes = 0
  /** Bytes of an answer that the client has not taken yet. */
  private unsent: Buffer | null = null
  private isBusy = false
  /** Of the request in work, or the last. */
  private head: RequestHead | null = null
  /** What the last head was known as: mostly the next one is the same, and comparing costs the least. */
  private known = UNKNOWN
  /** Nothing is read any more; it closes when `unsent` is sent. */
  private isEnding = false
  private tunnel: Tunnel | null = null
  /** Since it began to do what it does now. */
  private seconds = 0
  /** What a hot handler's promise is given. Of the connection, as functions made for each request would be garbage. */
  private readonly answered: (answer: Answer) => void
  private readonly failed: (cause: unknown) => void

  constructor(
    private readonly socket: Socket<Connection>,
    private readonly front: Front,
  ) {
    this.failed = (cause) => {
      log('error', 'request_failed', 'a request failed', { route: this.head?.route, cause })
      this.refuse(500, 'Internal Server Error')
    }
    this.answered = (answer) => {
      try {
        const isLast = this.head?.isLast === true
        const length = front.writer.write(answer, isLast || front.isClosing)
        this.done(front.writer.bytes, isLast, length)
      } catch (cause) {
        this.failed(cause)
      }
    }
  }

  receive(chunk: Buffer): void {
    if (this.tunnel !== null) {
      this.tunnel.push(chunk)
      return
    }
    if (this.isEnding) return
    if (this.heldBytes === 0 && !this.isBusy && this.unsent === null) {
      this.seconds = 0
      const used = this.begin(chunk)
      if (used < chunk.length) this.hold(chunk, used)
      return
    }
    this.hold(chunk, 0)
    if (!this.isBusy && this.unsent === null && this.heldBytes >= this.neededBytes) this.beginHeld()
    else if (this.heldBytes > HELD_BYTES_MAX) this.socket.pause()
  }

  /** The client takes bytes again. */
  drained(): void {
    if (this.tunnel !== null) this.tunnel.drained()
    else if (this.unsent !== null) this.send(this.unsent)
  }

  /** Starts the request at the beginning of `bytes`, if it is all there. @returns how many bytes it has. */
  private begin(bytes: Buffer): number {
    let { head } = this.known
    let bodyAt = this.known.bytes.length
    if (!beginsWith(bytes, this.known.bytes)) {
      const headEnd = bytes.indexOf(HEAD_END)
      if (headEnd === -1 || headEnd + HEAD_END.length > HEAD_BYTES_MAX) {
        if (bytes.length >= HEAD_BYTES_MAX) this.refuse(431, 'Request Header Fields Too Large')
        return 0
      }
      this.known = this.front.heads.read(bytes, headEnd)
      head = this.known.head
      bodyAt = headEnd + HEAD_END.length
    }
    // Bun's server also has the answer to a body that is too large, and swallows it.
    if (head === null || head.contentLength > BODY_BYTES_MAX) {
      this.tunnel = this.front.tunnel(this.socket, this.peer())
      this.tunnel.push(bytes)
      return bytes.length
    }
    const end = bodyAt + head.contentLength
    if (bytes.length < end) {
      this.neededBytes = end
      return 0
    }
    this.neededBytes = 0
    this.answer(head, bytes.toString('utf8', bodyAt, end))
    return end
  }

  private answer(head: RequestHead, body: string): void {
    this.isBusy = true
    this.head = head
    const handle = this.front.options.hot.get(head.route)
    if (handle === undefined) {
      const answered = this.front.viaElysia(head, body, this.peer(), head.isLast)
      answered.then((message) => this.done(message, head.isLast), this.failed)
    } else handle(new FrontIncoming(head, body, this.socket)).then(this.answered, this.failed)
  }

  private done(message: Buffer, isLast: boolean, length = message.length): void {
    this.isBusy = false
    this.seconds = 0
    if (isLast || this.front.isClosing) this.isEnding = true
    this.send(message, length)
  }

  /** Writes `message[0 .. length)`; goes on with the next request once all is written. */
  private send(message: Buffer, length = message.length): void {
    const written = this.socket.write(message, 0, length)
    if (written < 0) return // it is closed, and soon forgotten
    if (written < length) {
      const rest = message.subarray(written, length)
      // The writer's bytes are the next answer's soon. Others stay, and are not copied each time some are taken.
      this.unsent = message === this.front.writer.bytes ? Buffer.from(rest) : rest
      return
    }
    this.unsent = null
    if (this.isEnding) {
      this.socket.end()
      return
    }
    if (this.heldBytes > 0) this.beginHeld()
  }

  /** Looks at what is held. */
  private beginHeld(): void {
    const bytes = this.held.subarray(0, this.heldBytes)
    const used = this.begin(bytes)
    if (used === 0) return // never with more than HELD_BYTES_MAX: a whole request is shorter
    this.heldBytes -= used
    if (this.heldBytes === 0) this.held = NOTHING
    else this.held = Buffer.from(bytes.subarray(used)) // a copy: `bytes` may be in use by a tunnel
    this.socket.resume()
  }

  private hold(chunk: Buffer, from: number): void {
    const added = chunk.length - from
    if (this.heldBytes + added > this.held.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(1024, 2 * (this.heldBytes + added)))
      this.held.copy(larger, 0, 0, this.heldBytes)
      this.held = larger
    }
    chunk.copy(this.held, this.heldBytes, from)
    this.heldBytes += added
  }

  /** A second older. */
  age(): void {
    this.seconds++
    if (this.tunnel !== null) {
      if (!this.tunnel.isQuiet()) this.seconds = 0
      else if (this.seconds >= TUNNEL_SECONDS) this.tunnel.terminate()
    } else if (this.unsent !== null || this.isEnding) {
      if (this.seconds >= SEND_SECONDS) this.socket.terminate()
    } else if (!this.isBusy && this.heldBytes > 0) {
      if (this.seconds >= RECEIVE_SECONDS) this.refuse(408, 'Request Timeout')
    } else if (!this.isBusy && this.seconds >= IDLE_SECONDS) this.socket.end()
  }

  /** The server stops: close now, or after the request in work. */
  finish(): void {
    if (this.tunnel === null && !this.isBusy && this.unsent === null) this.socket.end()
  }

  terminate(): void {
    if (this.tunnel !== null) this.tunnel.terminate()
    else this.socket.terminate()
  }

  closed(): void {
    this.tunnel?.close()
    this.held = NOTHING
    this.heldBytes = 0
  }

  /** For what is no request: says so and closes. */
  private refuse(status: number, reason: string): void {
    this.isBusy = false
    this.isEnding = true
    this.heldBytes = 0
    const lines = `HTTP/1.1 ${status} ${reason}\r\nConnection: close\r\nContent-Length: 0\r\nDate: ${httpDate()}\r\n\r\n`
    this.send(Buffer.from(lines, 'latin1'))
  }

  private peer(): string | null {
    return peerOf(this.socket)
  }
}

/**
 * The heads read lately. A client repeats its head, so that finding it again by its text (0.15 µs) spares the reading
 * (1 µs); what is found is the same, since the text is. Those of questions come once: what is asked is in them.
 */
class KnownHeads {
  private readonly heads = new Map<string, KnownHead>()

  /** As {@link readHead}, of a head that ends there. */
  read(bytes: Buffer, end: number): KnownHead {
    const length = end + HEAD_END.length
    // A text of its own: parts of it are kept, and a part of a text keeps the whole of it in memory.
    const text = bytes.toString('latin1', 0, length)
    if (end > KNOWN_HEAD_BYTES_MAX) return { bytes: NOTHING, head: readHead(text, end) }
    const known = this.heads.get(text)
    if (known !== undefined) return known
    const head = readHead(text, end)
    if (head?.method !== 'POST') return { bytes: NOTHING, head }
    if (this.heads.size >= KNOWN_HEADS_MAX) this.heads.clear()
    const read = { bytes: Buffer.from(bytes.subarray(0, length)), head }
    this.heads.set(text, read)
    return read
  }
}

/** A head and what it was read from; of one that is not kept, nothing of that. */
type KnownHead = { readonly bytes: Buffer; readonly head: RequestHead | null }

const beginsWith = (bytes: Buffer, start: Buffer): boolean =>
  start.length > 0 &&
  bytes.length >= start.length &&
  bytes.compare(start, 0, start.length, 0, start.length) === 0

const KNOWN_HEADS_MAX = 1000
const KNOWN_HEAD_BYTES_MAX = 1000

/** A request that was read here. */
class FrontIncoming implements Incoming {
  constructor(
    private readonly head: RequestHead,
    private readonly body: string,
    private readonly socket: Socket<Connection>,
  ) {}

  get method() {
    return this.head.method
  }
  get target() {
    return this.head.target
  }
  header(name: string): string | null {
    return this.head.values.get(name) ?? null
  }
  text() {
    // As `Request.text` does.
    return this.body.charCodeAt(0) === BYTE_ORDER_MARK ? this.body.slice(1) : this.body
  }
  peerAddress() {
    return peerOf(this.socket)
  }
}

const peerOf = (socket: Socket<unknown>): string | null => {
  const address = socket.remoteAddress as string | undefined // undefined on a Unix socket, whatever its type says
  return address === undefined || address === '' ? null : address
}

const NOTHING: Buffer = Buffer.alloc(0)
const HEAD_END: Buffer = Buffer.from('\r\n\r\n')
const UNKNOWN: KnownHead = { bytes: NOTHING, head: null }
const BYTE_ORDER_MARK = 0xfeff
/** A client may send the next request or two before it has an answer; more is left in the kernel. */
const HELD_BYTES_MAX = BODY_BYTES_MAX + HEAD_BYTES_MAX
/** A client may keep its connection without using it. */
const IDLE_SECONDS = 75
/** From the first byte of a request to its last: 1 MiB in that time is a slow modem. */
const RECEIVE_SECONDS = 30
/** For taking an answer. */
const SEND_SECONDS = 30
/** Without a byte either way: deleting all keys of a large API may take about a minute to answer. */
const TUNNEL_SECONDS = 90
