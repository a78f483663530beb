import { release } from '../../lib/release.ts'
import { BODY_BYTES_MAX } from './body.ts'
import { isTokenCode, isValueCode, type Refused } from './request-head.ts'

/**
 * The body of one request while it is received. `read` takes the body's share of the bytes. However small the pieces are,
 * no byte is parsed twice, and each is copied a bounded number of times.
 */
export type RequestBody = {
  /** @returns the position in `bytes` where the body, or the piece of it, ends. */
  read(bytes: Buffer, from: number): number
  /** Memory it holds, in bytes. */
  readonly capacity: number
  /** Largest memory it may hold, in bytes. */
  readonly capacityMax: number
  /** Bytes of the body received so far. */
  readonly length: number
  /** Allocates all the memory that it may need. */
  reserve(): void
  /** True when the end has been read. */
  readonly isWhole: boolean
  /** It is larger than {@link BODY_BYTES_MAX}, and its bytes were dropped. */
  readonly isTooLarge: boolean
  /** Why reading stopped; null = it can go on. */
  readonly refused: Refused | null
  /** The whole text. Call it once: it releases the memory. */
  take(): string
  /** Releases the memory. */
  drop(): void
}

/** A body whose length the head gives, at most {@link BODY_BYTES_MAX}. */
export class MeasuredBody implements RequestBody {
  readonly isTooLarge = false
  readonly refused = null
  private readonly kept: GrowingBytes

  constructor(readonly capacityMax: number) {
    this.kept = new GrowingBytes(capacityMax)
  }

  read(bytes: Buffer, from: number): number {
    const to = Math.min(bytes.length, from + this.capacityMax - this.kept.length)
    this.kept.append(bytes, from, to)
    return to
  }
  get capacity() {
    return this.kept.capacity
  }
  get length() {
    return this.kept.length
  }
  reserve() {
    this.kept.grow(this.capacityMax)
  }
  get isWhole() {
    return this.kept.length === this.capacityMax
  }
  take() {
    return this.kept.take()
  }
  drop() {
    this.kept.drop()
  }
}

/**
 * A chunked body, RFC 9112 7.1. Extensions and trailers are parsed as strictly as a head, bounded, and dropped. A chunk's
 * length consists of hexadecimal digits only; its data ends after that length, with CR LF.
 */
export class ChunkedBody implements RequestBody {
  isWhole = false
  isTooLarge = false
  refused: Refused | null = null
  readonly capacityMax = BODY_BYTES_MAX
  private readonly kept = new GrowingBytes(BODY_BYTES_MAX)
  private state: ChunkState = STATE.length
  private digits = 0
  /** Remaining bytes of the current chunk's data. */
  private left = 0
  /** Bytes of extensions and trailers so far; one bound for both. */
  private asideBytes = 0

  read(bytes: Buffer, from: number): number {
    let at = from
    while (at < bytes.length && !this.isWhole && !this.isTooLarge && this.refused === null) {
      if (this.state === STATE.data) {
        const to = Math.min(bytes.length, at + this.left)
        this.kept.append(bytes, at, to)
        this.left -= to - at
        at = to
        if (this.left === 0) this.state = STATE.dataReturn
      } else this.step(bytes[at++] ?? 0)
    }
    return at
  }

  /** Parses one byte outside the data of chunks. */
  private step(byte: number): void {
    switch (this.state) {
      case STATE.length: {
        const digit = HEX_DIGITS[byte] ?? NO_DIGIT
        if (digit !== NO_DIGIT) {
          this.left = 16 * this.left + digit
          // Leading zeros count too.
          if (++this.digits > LENGTH_DIGITS_MAX) this.refuse('a chunk’s length has too many digits')
          else if (this.left + this.kept.length > BODY_BYTES_MAX) this.isTooLarge = true
        } else if (this.digits === 0) this.refuse('a chunk has no length')
        else if (byte === CARRIAGE_RETURN) this.state = STATE.lengthFeed
        else if (byte === SEMICOLON) this.state = STATE.extension
        else this.refuse('a chunk’s length is not hexadecimal digits')
        break
      }
      case STATE.extension:
        if (byte === CARRIAGE_RETURN) this.state = STATE.lengthFeed
        else if (isValueCode(byte)) this.countAside()
        else this.refuse('a chunk’s extension holds a control character')
        break
      case STATE.lengthFeed:
        this.expectLineFeed(byte, this.left === 0 ? STATE.trailer : STATE.data)
        this.digits = 0
        break
      case STATE.dataReturn:
        if (byte === CARRIAGE_RETURN) this.state = STATE.dataFeed
        else this.refuse('a chunk does not end where its length says')
        break
      case STATE.dataFeed:
        this.expectLineFeed(byte, STATE.length)
        break
      case STATE.trailer:
        if (byte === CARRIAGE_RETURN) this.state = STATE.endFeed
        else if (isTokenCode(byte)) this.state = STATE.trailerName
        else this.refuse('a trailer is malformed')
        this.countAside()
        break
      case STATE.trailerName:
        if (byte === COLON) this.state = STATE.trailerValue
        else if (!isTokenCode(byte)) this.refuse('a trailer is malformed')
        this.countAside()
        break
      case STATE.trailerValue:
        if (byte === CARRIAGE_RETURN) this.state = STATE.trailerFeed
        else if (!isValueCode(byte)) this.refuse('a trailer holds a control character')
        this.countAside()
        break
      case STATE.trailerFeed:
        this.expectLineFeed(byte, STATE.trailer)
        break
      case STATE.endFeed:
        this.expectLineFeed(byte, STATE.end)
        this.isWhole = this.refused === null
        break
      default:
        throw new Error('a body is read past its end')
    }
  }

  private expectLineFeed(byte: number, next: ChunkState): void {
    if (byte === LINE_FEED) this.state = next
    else this.refuse('a chunked body holds a bare carriage return')
  }

  private countAside(): void {
    if (++this.asideBytes > ASIDE_BYTES_MAX)
      this.refused ??= {
        code: 'HEADERS_TOO_LARGE',
        message: `extensions and trailers of the chunked body have more than ${ASIDE_BYTES_MAX} bytes`,
      }
  }

  private refuse(message: string): void {
    this.refused = { code: 'BAD_REQUEST', message }
  }

  get capacity() {
    return this.kept.capacity
  }
  get length() {
    return this.kept.length
  }
  reserve() {
    this.kept.grow(this.capacityMax)
  }
  take() {
    return this.kept.take()
  }
  drop() {
    this.kept.drop()
  }
}

const STATE = {
  length: 0,
  extension: 1,
  lengthFeed: 2,
  data: 3,
  dataReturn: 4,
  dataFeed: 5,
  trailer: 6,
  trailerName: 7,
  trailerValue: 8,
  trailerFeed: 9,
  endFeed: 10,
  end: 11,
} as const
type ChunkState = (typeof STATE)[keyof typeof STATE]

const LENGTH_DIGITS_MAX = 16
const ASIDE_BYTES_MAX = 16_384
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const COLON = 0x3a
const SEMICOLON = 0x3b
const NO_DIGIT = 255
const HEX_DIGITS = new Uint8Array(256).fill(NO_DIGIT)
for (let digit = 0; digit < 16; digit++) {
  const text = digit.toString(16)
  HEX_DIGITS[text.charCodeAt(0)] = digit
  HEX_DIGITS[text.toUpperCase().charCodeAt(0)] = digit
}

/** Bytes received in pieces, in one buffer that doubles when it is full: on average each byte is copied twice. */
class GrowingBytes {
  length = 0
  private bytes: Buffer = NOTHING

  constructor(private readonly bytesMax: number) {}

  /** The caller makes sure that no more than `bytesMax` arrive. */
  append(from: Buffer, start: number, end: number): void {
    const length = this.length + end - start
    if (length > this.bytes.length)
      this.grow(Math.min(this.bytesMax, Math.max(BYTES_FIRST, length, 2 * this.bytes.length)))
    // For a few bytes a loop costs less than calling `copy`.
    if (end - start < 32) for (let i = start, at = this.length; i < end; i++) this.bytes[at++] = from[i] ?? 0
    else from.copy(this.bytes, this.length, start, end)
    this.length = length
  }

  grow(capacity: number): void {
    const larger = Buffer.allocUnsafeSlow(capacity)
    this.bytes.copy(larger, 0, 0, this.length)
    release(this.bytes)
    this.bytes = larger
  }

  get capacity() {
    return this.bytes.length
  }
  take() {
    const text = this.bytes.toString('utf8', 0, this.length)
    this.drop()
    return text
  }
  drop() {
    release(this.bytes)
    this.bytes = NOTHING
    this.length = 0
  }
}

const BYTES_FIRST = 1024
const NOTHING: Buffer = Buffer.alloc(0)
