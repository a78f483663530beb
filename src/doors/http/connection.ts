import type { Socket } from 'bun'
import { release } from '../../lib/release.ts'
import type { Answer } from './answer.ts'
import { BODY_BYTES_MAX } from './body.ts'
import { failures } from './failures.ts'
import { type CachedHead, HEAD_END, NO_HEAD } from './head-cache.ts'
import type { Holder } from './held-memory.ts'
import type { HttpServer } from './http-server.ts'
import { messageOf, messageOfResponse } from './message.ts'
import { ChunkedBody, MeasuredBody, type RequestBody } from './request-body.ts'
import { HEAD_BYTES_MAX, isTokenCode, type Refused, type RequestHead } from './request-head.ts'
import { SocketRequest } from './request-reader.ts'
import type { Reading, Waiting } from './turns.ts'

/**
 * One client's connection: receiving → working → sending → receiving …, and at its end sending → lingering → closed.
 *
 * - receiving: bytes make up a head (`held`), then a body (`body`). A request in one piece is answered from that piece.
 * - working (`isBusy`): a handler has the request. Bytes that arrive are held; beyond a bound the socket is paused.
 * - sending: the client has not taken the whole answer (`unsent`). Bytes are held as before.
 * - waiting (`isWaiting`): the next request is held, and other connections go first (`turns.ts`).
 * - ending (`isEnding`): nothing more is read; the connection closes after `unsent`.
 * - lingering (`isLingering`): our side is closed; bytes that still arrive are read and dropped. Closing a socket with
 *   unread bytes resets the connection, and the client may lose the answer.
 *
 * `receive` runs for every request: microseconds count there.
 */
export class Connection implements Holder, Waiting, Reading {
  /** Bytes received and not yet parsed: `held[heldFrom .. heldTo)`. */
  private held: Buffer = NOTHING
  private heldFrom = 0
  private heldTo = 0
  /** Number of bytes after `heldFrom` that are known not to contain the end of a head. */
  private searchedBytes = 0
  /** Head of the current request, or of the last one. */
  private head: RequestHead | null = null
  /** The last head and its bytes. The next head is usually the same, and comparing is the cheapest check. */
  private cached: CachedHead = NO_HEAD
  /** Body of the request being received. */
  private body: RequestBody | null = null
  /** The part of an answer that the client has not taken yet. */
  private unsent: Buffer | null = null
  /** Bytes that the thread's memory budget has counted for this connection. */
  private countedBytes = 0
  private isBusy = false
  private isWaiting = false
  private isEnding = false
  private isLingering = false
  private isClosed = false
  private isPaused = false
  /** Paused, in line to read on in a large body. */
  private isReadingLater = false
  /** The client has closed its sending side. */
  private isHalfClosed = false
  /** The current request is the last: bytes after it are not read. */
  private isCut = false
  private hasSkippedLine = false
  private droppedBytes = 0
  private stopTicks = 0
  /** Seconds in the current state. */
  private seconds = 0
  /** Seconds of lingering without a byte from the client. */
  private silentSeconds = 0
  /** Callback for a handler's promise. One for each connection: a function for each request would be garbage. */
  private readonly answered: (answer: Answer) => void
  private readonly failed: (cause: unknown) => void

  constructor(
    private readonly socket: Socket<Connection>,
    private readonly server: HttpServer,
  ) {
    this.failed = (cause) => {
      const route =
        this.head !== null && server.options.fastRoutes.has(this.head.route) ? this.head.route : 'unknown'
      failures.report(cause, { route })
      this.refuse({ code: 'INTERNAL_SERVER_ERROR', message: 'internal error' })
    }
    this.answered = (answer) => {
      try {
        const isLast = this.isLast()
        const length = server.writer.write(answer, isLast)
        this.done(server.writer.bytes, isLast, length)
      } catch (cause) {
        this.failed(cause)
      }
    }
  }

  receive(chunk: Buffer): void {
    if (this.isEnding || this.isCut) this.drop(chunk.length)
    else if (this.heldTo === 0 && this.isReceiving()) {
      if (this.body === null) this.seconds = 0
      const used = this.read(chunk)
      if (used < chunk.length && !this.isEnding) this.hold(chunk, used)
    } else {
      this.hold(chunk, 0)
      if (this.isReceiving()) this.readHeld()
    }
    release(chunk) // nothing refers to it: unused bytes were copied
  }

  /** The socket can take bytes again. */
  drained(): void {
    if (this.unsent !== null) this.send(this.unsent)
  }

  /** The client has closed its sending side. It can still receive answers. */
  ended(): void {
    this.isHalfClosed = true
    if (this.isReceiving() && !this.isEnding) this.socket.end()
  }

  /** This connection's turn has come. */
  goOn(): void {
    this.isWaiting = false
    if (this.isReceiving() && !this.isEnding) this.readHeld()
  }

  private isReceiving(): boolean {
    return !this.isBusy && this.unsent === null && !this.isWaiting && !this.isClosed
  }

  /**
   * Reads on in a body, or begins the request at the start of `bytes`; at most one request.
   * @returns how many bytes were used. The rest belongs to an incomplete head or to the next request.
   */
  private read(bytes: Buffer): number {
    if (this.body !== null) return this.readBody(this.body, bytes, 0)
    let { head } = this.cached
    let bodyAt = this.cached.bytes.length
    if (!beginsWith(bytes, this.cached.bytes)) {
      // RFC 9112 2.2: skip an empty line before a request. Only one: a client that sends nothing else must not stay for
      // ever.
      if (!this.hasSkippedLine && bytes[0] === CARRIAGE_RETURN && bytes[1] === LINE_FEED) {
        this.hasSkippedLine = true
        return 2 + this.read(bytes.subarray(2))
      }
      const headEnd = this.findHeadEnd(bytes)
      if (headEnd === -1) return 0
      this.cached = this.server.heads.read(bytes, headEnd)
      head = this.cached.head
      bodyAt = headEnd + HEAD_END.length
    }
    this.hasSkippedLine = false
    if (head === null) {
      if (this.cached.refused !== null) this.refuse(this.cached.refused, bytes)
      return bytes.length
    }
    this.head = head
    if (!head.isChunked) {
      const end = bodyAt + head.contentLength
      if (bytes.length >= end) {
        this.work(head, bytes.toString('utf8', bodyAt, end))
        return end
      }
      if (head.contentLength > BODY_BYTES_MAX) {
        this.work(head, null)
        return bytes.length
      }
      this.body = new MeasuredBody(head.contentLength)
    } else this.body = new ChunkedBody()
    if (head.expectsContinue && bytes.length === bodyAt) this.sendContinue()
    return this.readBody(this.body, bytes, bodyAt)
  }

  private sendContinue(): void {
    const written = this.socket.write(CONTINUE)
    if (written < 0) this.socket.terminate()
    else if (written < CONTINUE.length) this.unsent = CONTINUE.subarray(written)
  }

  private readBody(body: RequestBody, bytes: Buffer, from: number): number {
    const used = body.read(bytes, from)
    const { head } = this
    if (bytes.length > PIECE_BYTES_MAX || (body.length > PIECE_BYTES_MAX && body.capacity < body.capacityMax))
      this.readLater(body)
    if (body.refused !== null) this.refuse(body.refused)
    else if (head !== null && (body.isWhole || body.isTooLarge)) {
      const text = body.isTooLarge ? null : body.take()
      this.body = null
      this.work(head, text)
    }
    this.account()
    return used
  }

  /** @returns the end of the head; -1 = not there yet, or the request was refused because it can never come. */
  private findHeadEnd(bytes: Buffer): number {
    const end = bytes.indexOf(HEAD_END, Math.max(0, this.searchedBytes - HEAD_END.length + 1))
    if (end !== -1 && end + HEAD_END.length <= HEAD_BYTES_MAX) {
      this.searchedBytes = 0
      return end
    }
    const [first = 0] = bytes
    if (end !== -1 || bytes.length >= HEAD_BYTES_MAX) {
      const lineEnd = bytes.indexOf(LINE_FEED)
      this.refuse(lineEnd === -1 || lineEnd >= HEAD_BYTES_MAX ? TARGET_TOO_LONG : HEAD_TOO_LARGE, bytes)
    } else if (bytes.length > 0 && !isTokenCode(first) && !CRLF.subarray(0, bytes.length).equals(bytes)) {
      this.refuse(NOT_HTTP)
    } else {
      for (let at = this.searchedBytes; ; at++) {
        at = bytes.indexOf(LINE_FEED, at)
        if (at === -1) break
        if (bytes[at - 1] !== CARRIAGE_RETURN) {
          this.refuse(BARE_LINE_FEED, bytes)
          break
        }
      }
      this.searchedBytes = bytes.length
    }
    return -1
  }

  /** @param body Null = it is too large. */
  private work(head: RequestHead, body: string | null): void {
    this.isBusy = true
    if (body === null) this.isCut = true
    const request = new SocketRequest(head, body, this.socket)
    const handle = this.server.options.fastRoutes.get(head.route)
    if (handle === undefined) void this.workCold(request)
    else handle(request).then(this.answered, this.failed)
  }

  private async workCold(request: SocketRequest): Promise<void> {
    try {
      const answer = await this.server.options.cold(request)
      const isLast = this.isLast()
      const form = { isLast, isHead: request.method === 'HEAD' }
      const message =
        answer instanceof Response ? await messageOfResponse(answer, form) : messageOf(answer, form)
      this.done(message, isLast)
    } catch (cause) {
      this.failed(cause)
    }
  }

  /** Whether the connection closes after the current request's answer, which then says so. */
  private isLast(): boolean {
    if (this.head?.isLast === true || this.isCut) return true
    return (this.server.isClosing || this.isHalfClosed) && this.heldTo === 0
  }

  private done(message: Buffer, isLast: boolean, length = message.length): void {
    if (this.isClosed) return
    this.isBusy = false
    this.seconds = 0
    if (isLast) this.end()
    this.send(message, length)
  }

  /** Stops reading for good. */
  private end(): void {
    this.isEnding = true
    this.body?.drop()
    this.body = null
    this.letGo()
    this.account()
  }

  private letGo(): void {
    release(this.held)
    this.held = NOTHING
    this.heldFrom = 0
    this.heldTo = 0
    this.searchedBytes = 0
  }

  /** Writes `message[0 .. length)`, and starts the next request once everything is written. */
  private send(message: Buffer, length = message.length): void {
    const written = this.socket.write(message, 0, length)
    if (written < 0) {
      this.socket.terminate() // the client is gone; nothing else would notice while reading is paused
      return
    }
    if (written < length) {
      const rest = message.subarray(written, length)
      // The writer reuses its bytes for the next answer, so copy those. Other messages need no copy.
      this.unsent = message === this.server.writer.bytes ? Buffer.from(rest) : rest
      this.account()
      return
    }
    if (message !== this.server.writer.bytes && message !== CONTINUE) release(message)
    if (this.unsent !== null) {
      this.unsent = null
      this.account()
    }
    if (this.isEnding) this.linger()
    else if (this.heldTo > 0) this.next()
    else if (this.isHalfClosed) this.socket.end()
  }

  /** Starts the held request, now or in its turn. */
  private next(): void {
    if (this.isBusy || this.isWaiting) return
    this.isWaiting = true
    if (!this.server.options.turns.mayGoOn(this)) return
    this.isWaiting = false
    this.readHeld()
  }

  private readHeld(): void {
    const used = this.read(this.held.subarray(this.heldFrom, this.heldTo))
    if (this.isEnding || this.heldTo === 0) return // memory pressure took the held bytes
    this.heldFrom += used
    if (this.heldFrom === this.heldTo) this.letGo()
    else if (used > 0 && this.held.length > HELD_BYTES_MAX && 4 * this.heldBytes < this.held.length) {
      const rest = Buffer.from(this.held.subarray(this.heldFrom, this.heldTo))
      release(this.held)
      this.held = rest
      this.heldTo -= this.heldFrom
      this.heldFrom = 0
    }
    this.account()
    if (this.isEnding) return
    if (this.isHalfClosed && this.isReceiving()) this.socket.end()
    else if (this.isPaused && !this.isReadingLater && this.heldBytes <= HELD_BYTES_MAX) this.resume()
  }

  private get heldBytes(): number {
    return this.heldTo - this.heldFrom
  }

  private hold(chunk: Buffer, from: number): void {
    if (this.isCut) return
    const added = chunk.length - from
    if (this.heldTo + added > this.held.length) {
      const bytes = this.heldBytes + added
      // Move the bytes to the front when at least half of the buffer becomes free; otherwise copy them to one twice as
      // large. So each byte is copied a bounded number of times. Beyond the bound for one client the buffer gets exactly
      // the needed size: reading is paused then.
      const target =
        2 * bytes <= this.held.length
          ? this.held
          : Buffer.allocUnsafeSlow(
              this.heldBytes === 0
                ? Math.max(HELD_BYTES_FIRST, bytes)
                : Math.min(bytes + HELD_BYTES_MAX, 2 * bytes),
            )
      this.held.copy(target, 0, this.heldFrom, this.heldTo)
      if (target !== this.held) release(this.held)
      this.held = target
      this.heldTo = this.heldBytes
      this.heldFrom = 0
    }
    chunk.copy(this.held, this.heldTo, from)
    this.heldTo += added
    this.account()
    if (!this.isEnding && !this.isReceiving() && this.heldBytes > HELD_BYTES_MAX) this.pause()
  }

  /**
   * Tells the thread's memory budget how much is held. The budget may then ask connections to give way, this one included.
   */
  private account(): void {
    const bytes = this.held.length + (this.body?.capacity ?? 0) + (this.unsent?.buffer.byteLength ?? 0)
    if (bytes === this.countedBytes) return
    const before = this.countedBytes
    this.countedBytes = bytes
    this.server.options.memory.change(this, before, bytes)
  }

  giveWay(): void {
    if (this.isClosed) return
    if (this.unsent !== null) {
      this.socket.terminate() // the client does not read its answer
    } else if (this.isBusy) {
      // The current request is answered, held ones are not.
      this.isCut = true
      this.letGo()
      this.account()
    } else this.refuse(OUT_OF_MEMORY)
  }

  /** A large body is read in turns, and only when the whole of it has room. */
  private readLater(body: RequestBody): void {
    if (body.isWhole || this.isReadingLater || this.isHalfClosed) return
    this.isReadingLater = true
    this.pause()
    this.server.options.turns.readLater(this)
  }

  readOn(): boolean {
    const { body } = this
    if (body !== null && body.capacity < body.capacityMax) {
      if (!this.server.options.memory.hasRoomFor(body.capacityMax - body.capacity)) return false
      // `hasRoomFor` may have made this connection give way.
      if (this.body === body) {
        body.reserve()
        this.account()
      }
    }
    this.isReadingLater = false
    if (this.isPaused && !this.isClosed && this.heldBytes <= HELD_BYTES_MAX) this.resume()
    return true
  }

  private pause(): void {
    if (this.isPaused || this.isHalfClosed) return
    this.isPaused = true
    this.socket.pause()
  }

  private resume(): void {
    this.isPaused = false
    if (!this.isHalfClosed) this.socket.resume()
  }

  /**
   * Answers with an error of the wire and closes.
   * @param bytes The beginning of the request, when its head was not parsed.
   */
  private refuse(refused: Refused, bytes: Buffer | null = null): void {
    if (this.isClosed || this.isEnding) return
    const isHead =
      bytes === null
        ? (this.isBusy || this.body !== null) && this.head?.method === 'HEAD'
        : beginsWith(bytes, METHOD_HEAD)
    this.isBusy = false
    this.end()
    const form = { isLast: true, isHead }
    this.send(messageOf(this.server.options.refuse(refused), form))
  }

  /** Closes our side and waits for the client to close its own. */
  private linger(): void {
    if (this.isHalfClosed) {
      this.socket.end()
      return
    }
    this.isLingering = true
    this.seconds = 0
    this.socket.shutdown()
    if (this.isPaused) this.resume()
  }

  private drop(bytes: number): void {
    this.silentSeconds = 0
    this.droppedBytes += bytes
    if (this.droppedBytes > DROPPED_BYTES_MAX) this.socket.terminate()
  }

  /** Called once a second. */
  age(): void {
    this.seconds++
    if (this.isLingering) {
      if (++this.silentSeconds >= LINGER_SECONDS || this.seconds >= RECEIVE_SECONDS) this.socket.end()
    } else if (this.unsent !== null || this.isEnding) {
      if (this.seconds >= SEND_SECONDS) this.socket.terminate()
    } else if (!this.isBusy && (this.heldTo > 0 || this.body !== null)) {
      if (this.seconds >= RECEIVE_SECONDS) this.refuse(TOO_SLOW)
    } else if (!this.isBusy && this.seconds >= IDLE_SECONDS) this.close()
  }

  /** Called every few milliseconds during a stop: closes the connection when it has no request. */
  finish(): void {
    if (this.isLingering && ++this.stopTicks > LINGER_STOP_TICKS) this.socket.end()
    if (this.isReceiving() && !this.isEnding && this.heldTo === 0 && this.body === null) this.close()
  }

  private close(): void {
    this.end()
    this.linger()
  }

  terminate(): void {
    this.socket.terminate()
  }

  closed(): void {
    this.isClosed = true
    this.unsent = null
    this.end()
  }
}

const beginsWith = (bytes: Buffer, start: Buffer): boolean =>
  start.length > 0 &&
  bytes.length >= start.length &&
  bytes.compare(start, 0, start.length, 0, start.length) === 0

const HEAD_TOO_LARGE: Refused = {
  code: 'HEADERS_TOO_LARGE',
  message: `the request headers have more than ${HEAD_BYTES_MAX} bytes`,
}
const TARGET_TOO_LONG: Refused = {
  code: 'URI_TOO_LONG',
  message: `the request line has more than ${HEAD_BYTES_MAX} bytes`,
}
const NOT_HTTP: Refused = {
  code: 'BAD_REQUEST',
  message: 'this is not an HTTP request; this port speaks HTTP without TLS',
}
const BARE_LINE_FEED: Refused = {
  code: 'BAD_REQUEST',
  message: 'a header line must end with CR LF, not LF alone',
}
const TOO_SLOW: Refused = {
  code: 'REQUEST_TIMEOUT',
  message: 'the request did not arrive completely within 30 seconds',
}
const OUT_OF_MEMORY: Refused = {
  code: 'SERVICE_UNAVAILABLE',
  message: 'too many unfinished requests: this request was dropped and not carried out',
}

const NOTHING: Buffer = Buffer.alloc(0)
const CONTINUE: Buffer = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n')
const CRLF: Buffer = Buffer.from('\r\n')
const METHOD_HEAD: Buffer = Buffer.from('HEAD ')
const CARRIAGE_RETURN = 0x0d
const LINE_FEED = 0x0a
/** Room for the next few pipelined requests. Further bytes wait in the kernel. */
const HELD_BYTES_MAX = 65_536
const HELD_BYTES_FIRST = 1024
/** After this many bytes of a body the sender waits for its next turn. */
const PIECE_BYTES_MAX = 65_536
/** Bytes that are read and dropped after the last answered request, such as the rest of a body that is too large. */
const DROPPED_BYTES_MAX = 64 * BODY_BYTES_MAX
/** How long a connection may be idle. */
const IDLE_SECONDS = 75
/** Time from the first byte of a request to its last. 1 MiB in that time is the speed of a slow modem. */
const RECEIVE_SECONDS = 30
/** Time for receiving an answer. */
const SEND_SECONDS = 30
/** Time without a byte before lingering ends. A client that still sends has {@link RECEIVE_SECONDS}. */
const LINGER_SECONDS = 10
/** The same during a stop, in calls of `finish`: half a second. */
const LINGER_STOP_TICKS = 100
