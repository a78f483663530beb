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
 * - working (`isBusy`): a handler has the request. What comes meanwhile is held, and beyond a bound not read.
 * - sending: the client has not taken all of the answer (`unsent`). Bytes are held as before.
 * - waiting (`isWaiting`): the next request is held, and other connections go first (`turns.ts`).
 * - ending (`isEnding`): nothing is read any more; it closes after `unsent`.
 * - lingering (`isLingering`): our side is closed, and what the client still sends is read and dropped. A socket that is closed
 *   with bytes unread resets the connection, and the client may lose the answer.
 *
 * Its `receive` runs for every request, so what it does is counted in microseconds.
 */
export class Connection implements Holder, Waiting, Reading {
  /** Bytes received and not yet read: `held[heldFrom .. heldTo)`. */
  private held: Buffer = NOTHING
  private heldFrom = 0
  private heldTo = 0
  /** How many of the next bytes to read are known not to end a head. */
  private searchedBytes = 0
  /** Of the request that comes, is in work, or was the last. */
  private head: RequestHead | null = null
  /** What the last head was read from: mostly the next one is the same, and comparing costs the least. */
  private cached: CachedHead = NO_HEAD
  /** Of the request that comes. */
  private body: RequestBody | null = null
  /** Of an answer, what the client has not taken yet. */
  private unsent: Buffer | null = null
  /** What of all this the thread's budget knows. */
  private countedBytes = 0
  private isBusy = false
  private isWaiting = false
  private isEnding = false
  private isLingering = false
  private isClosed = false
  private isPaused = false
  /** In line for its turn to read on in a large body; paused until then. */
  private isReadingLater = false
  /** The client has sent its last byte. */
  private isHalfClosed = false
  /** The request in work is the last: what comes after it is not read. */
  private isCut = false
  private hasSkippedLine = false
  private droppedBytes = 0
  private stopTicks = 0
  /** Since it began to do what it does now. */
  private seconds = 0
  /** Of lingering, since a byte came. */
  private silentSeconds = 0
  /** What a handler's promise is given. Of the connection, as functions made for each request would be garbage. */
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
      this.refuse({ code: 'INTERNAL_SERVER_ERROR', message: 'something went wrong' })
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
    release(chunk) // nothing keeps it: what was not used is held as a copy
  }

  /** The client takes bytes again. */
  drained(): void {
    if (this.unsent !== null) this.send(this.unsent)
  }

  /** The client has sent its last byte. It still takes answers. */
  ended(): void {
    this.isHalfClosed = true
    if (this.isReceiving() && !this.isEnding) this.socket.end()
  }

  /** Its turn has come. */
  goOn(): void {
    this.isWaiting = false
    if (this.isReceiving() && !this.isEnding) this.readHeld()
  }

  private isReceiving(): boolean {
    return !this.isBusy && this.unsent === null && !this.isWaiting && !this.isClosed
  }

  /**
   * Reads on in a body, or begins the request at the start of `bytes`; at most one request.
   * @returns how many bytes were used. What is left belongs to a head that is not whole, or to the next request.
   */
  private read(bytes: Buffer): number {
    if (this.body !== null) return this.readBody(this.body, bytes, 0)
    let { head } = this.cached
    let bodyAt = this.cached.bytes.length
    if (!beginsWith(bytes, this.cached.bytes)) {
      // RFC 9112 2.2: an empty line before a request is skipped. One, or a client could stay for ever with nothing else.
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

  /** @returns where a head ends; -1 = not yet, or never: then it is refused. */
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

  /** Whether the answer to the request in work is the last: then it says so. */
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

  /** Nothing more is read. */
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

  /** Writes `message[0 .. length)`; goes on with the next request once all is written. */
  private send(message: Buffer, length = message.length): void {
    const written = this.socket.write(message, 0, length)
    if (written < 0) {
      this.socket.terminate() // the client is gone, which nothing else may tell while reading is paused
      return
    }
    if (written < length) {
      const rest = message.subarray(written, length)
      // The writer's bytes are the next answer's soon. Others stay, and are not copied each time some are taken.
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

  /** Begins what is held, now or when it is its turn. */
  private next(): void {
    if (this.isBusy || this.isWaiting) return
    this.isWaiting = true
    if (!this.server.options.turns.mayGoOn(this)) return
    this.isWaiting = false
    this.readHeld()
  }

  private readHeld(): void {
    const used = this.read(this.held.subarray(this.heldFrom, this.heldTo))
    if (this.isEnding || this.heldTo === 0) return // it gave way
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
      // Moved to the front when that makes room for as many again, else to a piece twice as large: each byte moves a bounded
      // number of times. Beyond what is held of one client it has the size that is needed: no more comes before it shrinks.
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

  /** Tells the thread's budget what is held. It may take this connection's turn to give way. */
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
      this.socket.terminate() // it does not take what it has
    } else if (this.isBusy) {
      // The request in work is answered; those behind it are not.
      this.isCut = true
      this.letGo()
      this.account()
    } else this.refuse(OUT_OF_MEMORY)
  }

  /** Who sends a large body waits for its turn, and until all of it has room. */
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
      // It may have been the oldest itself.
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
   * For what cannot be answered otherwise: says so, and closes.
   * @param bytes What begins with the request, where its head was not read.
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

  /** Closes our side, and waits for the client to close its own. */
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

  /** A second older. */
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

  /** The server stops, asked every few milliseconds: who has asked nothing is let go. */
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
  message: `the head of the request has more than ${HEAD_BYTES_MAX} bytes`,
}
const TARGET_TOO_LONG: Refused = {
  code: 'URI_TOO_LONG',
  message: `the request line has more than ${HEAD_BYTES_MAX} bytes`,
}
const NOT_HTTP: Refused = {
  code: 'BAD_REQUEST',
  message: 'this is not HTTP, which is spoken here without TLS',
}
const BARE_LINE_FEED: Refused = { code: 'BAD_REQUEST', message: 'a line ends without a carriage return' }
const TOO_SLOW: Refused = { code: 'REQUEST_TIMEOUT', message: 'the request did not arrive within 30 seconds' }
const OUT_OF_MEMORY: Refused = {
  code: 'SERVICE_UNAVAILABLE',
  message: 'too many unfinished requests: this one was given up and not carried out',
}

const NOTHING: Buffer = Buffer.alloc(0)
const CONTINUE: Buffer = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n')
const CRLF: Buffer = Buffer.from('\r\n')
const METHOD_HEAD: Buffer = Buffer.from('HEAD ')
const CARRIAGE_RETURN = 0x0d
const LINE_FEED = 0x0a
/** A client may send the next request or two before it has an answer; more is left in the kernel. */
const HELD_BYTES_MAX = 65_536
const HELD_BYTES_FIRST = 1024
/** Of a body: who sends more waits for its turn to send on. */
const PIECE_BYTES_MAX = 65_536
/** What may come after the last request that is answered: the rest of a body that is too large. */
const DROPPED_BYTES_MAX = 64 * BODY_BYTES_MAX
/** A client may keep its connection without using it. */
const IDLE_SECONDS = 75
/** From the first byte of a request to its last: 1 MiB in that time is a slow modem. */
const RECEIVE_SECONDS = 30
/** For taking an answer. */
const SEND_SECONDS = 30
/** For closing the other side, without a byte: who still sends has as long as for a request, and may read only then. */
const LINGER_SECONDS = 10
/** The same during a stop, in calls of `finish`: half a second. */
const LINGER_STOP_TICKS = 100
