/** A request as the endpoints see it, whichever way it came: through Bun's server or through `front.ts`. */
export type Incoming = {
  readonly method: string
  /** A URL, or path and query alone; nothing but the query is read from it. */
  readonly target: string
  /** @param name In lower case. @returns all values, joined by commas; null when absent. */
  header(name: string): string | null
  /** The whole body as UTF-8. @throws whatever `tooLarge` makes, for more than `bytesMax`. */
  text(bytesMax: number, tooLarge: () => Error): string | Promise<string>
  /** The other end of the socket; null on a Unix socket. */
  peerAddress(): string | null
}

/** The part of Bun's server that knows a connection's other end. */
export type ConnectionInfo = { requestIP(request: Request): { address: string } | null }

export class RequestIncoming implements Incoming {
  constructor(
    private readonly request: Request,
    private readonly connection: ConnectionInfo | null,
  ) {}

  get method() {
    return this.request.method
  }
  get target() {
    return this.request.url
  }
  header(name: string) {
    return this.request.headers.get(name)
  }
  text(bytesMax: number, tooLarge: () => Error) {
    const length = this.request.headers.get('content-length')
    if (length === null) return this.#readUnmeasured(bytesMax, tooLarge)
    if (Number(length) > bytesMax) throw tooLarge()
    return this.request.text()
  }
  peerAddress() {
    return this.connection?.requestIP(this.request)?.address ?? null
  }

  /** A chunked body says no length, so it is counted as it comes. */
  async #readUnmeasured(bytesMax: number, tooLarge: () => Error): Promise<string> {
    if (this.request.body === null) return ''
    const chunks: Uint8Array[] = []
    let bytes = 0
    for await (const chunk of this.request.body) {
      bytes += chunk.byteLength
      if (bytes > bytesMax) throw tooLarge()
      chunks.push(chunk)
    }
    return Buffer.concat(chunks).toString('utf8')
  }
}
