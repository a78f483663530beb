import { SmallCache } from '../../lib/small-cache.ts'
import { type Refused, type RequestHead, readHead } from './request-head.ts'

/**
 * The heads of POSTs read lately, by their bytes. A client repeats its head, and finding it costs a tenth of reading it; what
 * is found is the same, since the bytes are. Heads of GETs come once: what is asked is in them.
 */
export class HeadCache {
  private readonly heads = new SmallCache<string, CachedHead>(HEADS_MAX)

  /** As {@link readHead}, of the head whose empty line is at `end`. */
  read(bytes: Buffer, end: number): CachedHead {
    const length = end + HEAD_END.length
    // A text of its own: parts of it are kept, and a part of a text keeps the whole of it in memory.
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

/** A head and what it was read from; of one that is not kept, nothing of that. */
export type CachedHead = {
  readonly bytes: Buffer
  readonly head: RequestHead | null
  /** Not null where `head` is. */
  readonly refused: Refused | null
}

export const HEAD_END: Buffer = Buffer.from('\r\n\r\n')
const NOTHING: Buffer = Buffer.alloc(0)
export const NO_HEAD: CachedHead = { bytes: NOTHING, head: null, refused: null }
const HEADS_MAX = 1000
const CACHED_HEAD_BYTES_MAX = 1000
