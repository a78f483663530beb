import { chmodSync, rmSync } from 'node:fs'
import type { Socket, UnixSocketListener } from 'bun'
import { log } from '../../log.ts'

/**
 * Serves one Postgres session to several connections over the wire protocol (version 3), on a Unix socket. A session runs
 * one thing at a time, so connections take turns. A turn ends with a ReadyForQuery outside a transaction.
 *
 * 1. A connection's bytes are cut into messages. Startup, TLS and cancel requests are answered here.
 * 2. At a Query, Sync or Flush the connection asks for the session, or waits in line for it, first come first served.
 * 3. Its messages run in one call, and the answer goes back. In a transaction, or before the Sync, it keeps the session.
 * 4. A connection that closes, or is idle in a transaction for too long, is rolled back and its turn ends. Its prepared
 *    statements are closed too, as the session would keep them for ever.
 *
 * Why not another server: docs/decisions/0008.
 */
export type WireServer = { stop(): void }

/** The served session, see `pglite-session.ts`. Both functions are synchronous. */
export type Session = {
  /**
   * Runs whole messages and returns the whole answer. A failed statement is an answer; a throw means that the session is
   * dead.
   */
  execProtocolRawSync(messages: Uint8Array): Uint8Array
  isInTransaction(): boolean
}

/** More than two connections for each of 64 HTTP threads and 64 shards, the largest numbers that can be configured. */
const CONNECTIONS_MAX = 300
/** Bytes of messages that one connection may send before a Sync or Flush. A batch of a flush is below 10 MB. */
const UNIT_BYTES_MAX = 64 * 1024 * 1024
/** All connections wait for a transaction, so one whose client is silent for this long is ended. */
const IDLE_IN_TRANSACTION_MS = 30_000

/**
 * @param options.onDeath Called once when the session dies, after every connection was closed.
 * @throws when the path cannot be listened on. A killed server's socket file is removed first.
 */
export function serveWire(
  session: Session,
  options: { socketPath: string; onDeath: (cause: unknown) => void; idleInTransactionMs?: number },
): WireServer {
  const { socketPath, idleInTransactionMs = IDLE_IN_TRANSACTION_MS } = options
  const scheduler = new SessionScheduler(session, (cause) => {
    stop()
    options.onDeath(cause)
  })
  rmSync(socketPath, { force: true })
  const listener: UnixSocketListener<Connection | null> = Bun.listen<Connection | null>({
    unix: socketPath,
    socket: {
      open(socket) {
        socket.data = scheduler.open(socket)
      },
      data(socket, bytes) {
        if (socket.data !== null) scheduler.receive(socket.data, bytes)
      },
      drain(socket) {
        if (socket.data !== null) scheduler.drained(socket.data)
      },
      close(socket) {
        if (socket.data !== null) scheduler.close(socket.data)
      },
      error(_socket, error) {
        log('warn', 'embedded_connection_failed', 'a connection to the embedded database broke', {
          cause: error,
        })
      },
    },
    data: null,
  })
  chmodSync(socketPath, 0o600)
  const quietCheck = setInterval(
    () => scheduler.endQuiet(performance.now() - idleInTransactionMs),
    idleInTransactionMs / 10,
  )
  const stop = () => {
    clearInterval(quietCheck)
    scheduler.closeAll()
    listener.stop(true)
    rmSync(socketPath, { force: true })
  }
  return { stop }
}

type Connection = {
  socket: Socket<Connection | null>
  /** Bytes read but not yet run. Mostly empty: a client sends a unit and waits. */
  received: Uint8Array
  /** Bytes after `received`, not yet joined to it: a long message is joined once, when it is complete. */
  arriving: Uint8Array[]
  arrivingBytes: number
  /** Bytes that `received` needs to complete its next message, as far as known. */
  neededBytes: number
  /** Bytes of `received` up to and including its last Query, Sync or Flush: this part can run. */
  runnable: number
  /** Bytes of `received` already cut into messages. After `runnable` they belong to an incomplete unit. */
  scanned: number
  /** The runnable part ends in a Flush: the unit continues after it. */
  endsInFlush: boolean
  /** Answers that the socket has not taken yet. Until it has, nothing more of this connection runs. */
  unsent: Uint8Array[]
  state: 'starting' | 'started' | 'closed'
  isWaiting: boolean
  /** Names of this connection's prepared statements in the session. */
  prepared: Set<string>
}

/** Gives the session to one connection at a time, in the order in which they ask for it. */
class SessionScheduler {
  /** The connection that has the session: in a transaction, or within a unit. */
  #holder: Connection | null = null
  /** The holder's unit has not ended with a Sync yet. */
  #midUnit = false
  /** When the holder last sent something, ms of `performance.now()`. */
  #holderSeenAt = 0
  /** Connections waiting for the session, each once. Bounded by the number of connections. */
  #waiting: Connection[] = []
  #connections = new Set<Connection>()
  /** The session's answer to a startup message, which is the same for all connections. */
  #greeting: Uint8Array

  readonly #session: Session
  readonly #onDeath: (cause: unknown) => void
  #isDead = false

  constructor(session: Session, onDeath: (cause: unknown) => void) {
    this.#session = session
    this.#onDeath = onDeath
    this.#greeting = session.execProtocolRawSync(STARTUP).slice()
  }

  /** @returns null when there are too many connections: this one got an error and was closed. */
  open(socket: Socket<Connection | null>): Connection | null {
    if (this.#connections.size >= CONNECTIONS_MAX) {
      socket.end(fatal('53300', 'too many connections to the embedded database'))
      return null
    }
    const connection: Connection = {
      socket,
      received: EMPTY,
      arriving: [],
      arrivingBytes: 0,
      neededBytes: 0,
      runnable: 0,
      scanned: 0,
      endsInFlush: false,
      unsent: [],
      state: 'starting',
      isWaiting: false,
      prepared: new Set(),
    }
    this.#connections.add(connection)
    return connection
  }

  receive(connection: Connection, bytes: Uint8Array): void {
    if (connection.state === 'closed') return
    if (connection === this.#holder) this.#holderSeenAt = performance.now()
    connection.arriving.push(bytes.slice()) // the socket reuses its buffer
    connection.arrivingBytes += bytes.length
    const bytesNow = connection.received.length + connection.arrivingBytes
    if (bytesNow - connection.runnable > UNIT_BYTES_MAX) {
      this.#refuse(connection, '54000', `a statement has more than ${UNIT_BYTES_MAX} bytes`)
      return
    }
    if (bytesNow < connection.neededBytes) return
    connection.received = joined(connection.received, connection.arriving)
    connection.arriving = []
    connection.arrivingBytes = 0
    if (connection.state === 'starting' && !this.#greet(connection)) return
    this.#scan(connection)
    this.#ask(connection)
  }

  drained(connection: Connection): void {
    const unsent = connection.unsent
    connection.unsent = []
    for (const bytes of unsent) this.#send(connection, bytes)
    this.#ask(connection)
  }

  close(connection: Connection): void {
    if (connection.state === 'closed') return
    connection.state = 'closed'
    this.#connections.delete(connection)
    connection.received = EMPTY
    connection.arriving = []
    connection.unsent = []
    connection.runnable = 0
    if (connection !== this.#holder && connection.prepared.size === 0) return
    // Cleaning up waits for its turn, so that it does not disturb another connection's transaction.
    connection.runnable = 1
    this.#ask(connection)
  }

  closeAll(): void {
    for (const connection of [...this.#connections]) {
      this.close(connection)
      connection.socket.end()
    }
  }

  /** Ends the turn of a holder that sent nothing since `since`, ms of `performance.now()`. */
  endQuiet(since: number): void {
    const holder = this.#holder
    if (holder === null || this.#holderSeenAt > since) return
    log('warn', 'embedded_transaction_ended', 'an idle transaction on the embedded database was rolled back')
    this.#refuse(holder, '25P03', 'terminating connection due to idle-in-transaction timeout')
  }

  #refuse(connection: Connection, code: string, message: string): void {
    this.#send(connection, fatal(code, message))
    connection.socket.end()
    this.close(connection)
  }

  /** Handles everything before the first regular message. @returns whether that part is complete. */
  #greet(connection: Connection): boolean {
    for (;;) {
      const bytes = connection.received
      if (bytes.length < 8) return false
      const length = readInt32(bytes, 0)
      if (length < 8 || length > 10_000) {
        this.#refuse(connection, '08P01', 'invalid startup message')
        return false
      }
      if (bytes.length < length) return false
      const request = readInt32(bytes, 4)
      connection.received = bytes.subarray(length)
      if (request === SSL_REQUEST || request === GSS_REQUEST) {
        this.#send(connection, NO)
      } else if (request === PROTOCOL_3) {
        connection.state = 'started'
        this.#send(connection, this.#greeting)
        return true
      } else {
        // A cancel request: the session cannot be interrupted, and the protocol has no answer to it.
        connection.socket.end()
        this.close(connection)
        return false
      }
    }
  }

  #scan(connection: Connection): void {
    const bytes = connection.received
    let at = connection.scanned
    connection.neededBytes = 0
    while (bytes.length - at >= 5) {
      const length = readInt32(bytes, at + 1)
      if (length < 4) {
        this.#refuse(connection, '08P01', 'invalid message length')
        return
      }
      const end = at + 1 + length
      if (end > bytes.length) {
        connection.neededBytes = end
        break
      }
      const type = bytes[at]
      if (type === TERMINATE) {
        connection.socket.end()
        this.close(connection)
        return
      }
      if (type === PARSE) {
        const name = readText(bytes, at + 5)
        if (name !== '') connection.prepared.add(name)
      } else if (type === CLOSE && bytes[at + 5] === STATEMENT) {
        connection.prepared.delete(readText(bytes, at + 6))
      } else if (type === QUERY || type === SYNC || type === FLUSH) {
        connection.runnable = end
        connection.endsInFlush = type === FLUSH
      }
      at = end
    }
    connection.scanned = at
  }

  /** Runs the runnable part, or waits in line; then serves the connections in line. */
  #ask(connection: Connection): void {
    if (connection.runnable === 0 || connection.unsent.length > 0) return
    if (this.#holder !== null && this.#holder !== connection) {
      if (!connection.isWaiting) this.#waiting.push(connection)
      connection.isWaiting = true
      return
    }
    this.#run(connection)
    while (this.#holder === null) {
      const next = this.#waiting.shift()
      if (next === undefined) return
      next.isWaiting = false
      if (next.runnable > 0 && next.unsent.length === 0) this.#run(next)
    }
  }

  #run(connection: Connection): void {
    if (connection.state === 'closed') {
      this.#cleanUp(connection)
      return
    }
    if (this.#isDead) return
    const messages = connection.received.subarray(0, connection.runnable)
    connection.received = connection.received.subarray(connection.runnable)
    connection.scanned -= connection.runnable
    connection.neededBytes -= connection.runnable
    connection.runnable = 0
    this.#midUnit = connection.endsInFlush
    this.#send(connection, this.#execute(messages))
    const keeps = !this.#isDead && (this.#midUnit || this.#session.isInTransaction())
    this.#holder = keeps ? connection : null
    if (keeps) this.#holderSeenAt = performance.now()
  }

  #cleanUp(connection: Connection): void {
    connection.runnable = 0
    if (this.#holder === connection) {
      if (this.#midUnit) this.#execute(message(SYNC))
      if (!this.#isDead && this.#session.isInTransaction()) this.#execute(message(QUERY, 'rollback\0'))
    }
    this.#holder = null
    this.#midUnit = false
    if (connection.prepared.size === 0) return
    const closes = [...connection.prepared].map((name) => message(CLOSE, `S${name}\0`))
    this.#execute(Buffer.concat([...closes, message(SYNC)]))
  }

  #execute(messages: Uint8Array): Uint8Array {
    if (this.#isDead) return EMPTY
    try {
      return this.#session.execProtocolRawSync(messages)
    } catch (cause) {
      this.#isDead = true
      this.#onDeath(cause)
      return EMPTY
    }
  }

  #send(connection: Connection, bytes: Uint8Array): void {
    if (connection.state === 'closed' || bytes.length === 0) return
    const sent = connection.unsent.length > 0 ? 0 : connection.socket.write(bytes)
    // Below zero: the socket is closing, and `close` follows.
    if (sent >= 0 && sent < bytes.length) connection.unsent.push(bytes.slice(sent))
  }
}

const EMPTY = new Uint8Array(0)
const NO = new Uint8Array([0x4e])
const PROTOCOL_3 = 196_608
const SSL_REQUEST = 80_877_103
const GSS_REQUEST = 80_877_104
const [QUERY, SYNC, FLUSH, PARSE, CLOSE, TERMINATE] = [0x51, 0x53, 0x48, 0x50, 0x43, 0x58]
const STATEMENT = 0x53

const readInt32 = (bytes: Uint8Array, at: number) =>
  ((bytes[at] ?? 0) << 24) | ((bytes[at + 1] ?? 0) << 16) | ((bytes[at + 2] ?? 0) << 8) | (bytes[at + 3] ?? 0)

function readText(bytes: Uint8Array, at: number): string {
  const end = bytes.indexOf(0, at)
  return Buffer.from(bytes.subarray(at, end)).toString()
}

/** A message: its type, its length (which counts itself), its body. */
function message(type: number, body = ''): Uint8Array {
  const bytes = Buffer.alloc(5 + Buffer.byteLength(body))
  bytes[0] = type
  bytes.writeInt32BE(bytes.length - 1, 1)
  bytes.write(body, 5)
  return bytes
}

const fatal = (code: string, text: string) => message(0x45, `SFATAL\0VFATAL\0C${code}\0M${text}\0\0`)

/** The startup message, the only one without a type: length, protocol, then names and values. */
const STARTUP = (() => {
  const bytes = Buffer.from('\0\0\0\0\0\0\0\0user\0postgres\0database\0postgres\0\0')
  bytes.writeInt32BE(bytes.length, 0)
  bytes.writeInt32BE(PROTOCOL_3, 4)
  return new Uint8Array(bytes)
})()

function joined(first: Uint8Array, rest: Uint8Array[]): Uint8Array {
  const [only] = rest
  if (first.length === 0 && rest.length === 1 && only !== undefined) return only
  return Buffer.concat([first, ...rest])
}
