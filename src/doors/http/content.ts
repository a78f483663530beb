import type { RequestReader } from './request-reader.ts'

/** A text that is served as it is: compressed once, and with an `ETag`, so that a browser asks only whether it changed. */
export class Content {
  private readonly bytes: Buffer
  private zipped: Uint8Array<ArrayBuffer> | null = null
  readonly etag: string

  constructor(
    readonly type: string,
    text: string,
  ) {
    this.bytes = Buffer.from(text)
    this.etag = new Bun.CryptoHasher('sha256').update(this.bytes).digest('base64url').slice(0, 22)
  }

  /** Compressed, bytes. */
  get zippedBytes(): number {
    return this.gzip().length
  }

  private gzip(): Uint8Array<ArrayBuffer> {
    this.zipped ??= Bun.gzipSync(new Uint8Array(this.bytes), { level: 9 })
    return this.zipped
  }

  /** @param headers Those of the answer besides the ones about its content. */
  answer(incoming: RequestReader, headers: Record<string, string>, status = 200): Response {
    const isZipped = acceptsGzip(incoming.header('accept-encoding'))
    // Two forms of one content need two tags, because each is compared byte by byte.
    const etag = `"${this.etag}${isZipped ? '-gzip' : ''}"`
    const all = { ...headers, 'Content-Type': this.type, ETag: etag, Vary: 'Accept-Encoding' }
    if (status === 200 && isListed(etag, incoming.header('if-none-match')))
      return new Response(null, { status: 304, headers: all })
    return isZipped
      ? new Response(this.gzip(), { status, headers: { ...all, 'Content-Encoding': 'gzip' } })
      : new Response(new Uint8Array(this.bytes), { status, headers: all })
  }
}

/** RFC 9110 12.5.3: `gzip`, `x-gzip` or `*`, unless with weight 0. */
function acceptsGzip(header: string | null): boolean {
  let any = false
  for (const part of (header ?? '').toLowerCase().split(',')) {
    const [coding = '', ...parameters] = part.split(';').map((each) => each.trim())
    const isRefused = parameters.some((each) => /^q=0(\.0*)?$/.test(each))
    if (coding === 'gzip' || coding === 'x-gzip') return !isRefused
    if (coding === '*') any = !isRefused
  }
  return any
}

/** RFC 9110 13.1.2. Proxies that compress may have made the tag a weak one. */
const isListed = (etag: string, header: string | null): boolean =>
  header !== null &&
  (header.trim() === '*' || header.split(',').some((each) => each.trim().replace(/^W\//, '') === etag))
