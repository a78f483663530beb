import { SmallCache } from '../../lib/small-cache.ts'
import { type Refused, type RequestHead, readHead } from './request-head.ts'

/**
 * Recently parsed heads of POST requests, by their bytes. A client repeats its head, and a look-up costs a tenth of
 * parsing. Heads of GET requests are not cached: their query makes each one different.
 */
export class HeadCache {
  private readonly heads = new SmallCache<string, CachedHead>(HEADS_MAX)

  /** As {@link readHead}, for the head whose empty line is at `end`. */
  read(bytes: Buffer, end: number): CachedHead {
    const length = end + HEAD_END.length
    // A new string: parts of it are stored, and a substring would keep the whole original in memory.
    const text = bytes.toString('latin1', 0, length)
    if (end > CACHED_HEAD_BYTES_MAX) return uncached(readHead(text, end))
    const cached = this.heads.get(text)
    if (cached !== undefined) return cached
    const read = readHead(text, end)
    if ('code' in read || read.method !== 'POST') return uncached(read)
    const kept = { bytes: Buffer.from(bytes.subarray(0, length)), head: read, refused: null }
    this.heads.set(text, kept)
    return kept
  }
}

const uncached = (read: RequestHead | Refused): CachedHead =>
  'code' in read
    ? { bytes: NOTHING, head: null, refused: read }
    : { bytes: NOTHING, head: read, refused: null }

/** A head with the bytes that it was parsed from. Without the bytes when it is not cached. */
export type CachedHead = {
  readonly bytes: Buffer
  readonly head: RequestHead | null
  /** Not null when `head` is null. */
  readonly refused: Refused | null
}

export const HEAD_END: Buffer = Buffer.from('\r\n\r\n')
const NOTHING: Buffer = Buffer.alloc(0)
export const NO_HEAD: CachedHead = { bytes: NOTHING, head: null, refused: null }
const HEADS_MAX = 1000
const CACHED_HEAD_BYTES_MAX = 1000
