import type { Socket } from 'bun'
import type { RequestHead } from './request-head.ts'

/** A request as the endpoints see it. */
export type RequestReader = {
  readonly method: string
  /** As sent, without the query. */
  readonly path: string
  /** Path and query, or an absolute URL. Only the query is read from it. */
  readonly target: string
  /** @param name In lower case. @returns all values, joined by commas; null when absent. */
  header(name: string): string | null
  /** The whole body as UTF-8. @throws the error of `tooLarge` when it exceeds `bytesMax`. */
  text(bytesMax: number, tooLarge: () => Error): string | Promise<string>
  /** The other end of the socket; null on a Unix socket. */
  peerAddress(): string | null
  /** Hash of the root key of a session. Only the dashboard sets it. */
  readonly sessionHash?: string
}

/** A request read by `http-server.ts`. */
export class SocketRequest implements RequestReader {
  /** @param body Null = it was larger than {@link BODY_BYTES_MAX}. */
  constructor(
    private readonly head: RequestHead,
    private readonly body: string | null,
    private readonly socket: Socket<unknown>,
  ) {}

  get method() {
    return this.head.method
  }
  get path() {
    return this.head.path
  }
  get target() {
    return this.head.target
  }
  header(name: string): string | null {
    return this.head.values.get(name) ?? null
  }
  text(_bytesMax: number, tooLarge: () => Error): string {
    if (this.body === null) throw tooLarge()
    return this.body
  }
  peerAddress() {
    const address = this.socket.remoteAddress as string | undefined // undefined on a Unix socket, despite its type
    return address === undefined || address === '' ? null : address
  }
}

/** A request made in this process, without a socket. */
export class CopiedRequest implements RequestReader {
  constructor(
    private readonly request: Request,
    private readonly connection: { requestIP(request: Request): { address: string } | null } | null = null,
  ) {}

  get method() {
    return this.request.method
  }
  get path() {
    return new URL(this.request.url).pathname
  }
  get target() {
    return this.request.url
  }
  header(name: string) {
    return this.request.headers.get(name)
  }
  async text(bytesMax: number, tooLarge: () => Error) {
    const bytes = await this.request.arrayBuffer()
    if (bytes.byteLength > bytesMax) throw tooLarge()
    return Buffer.from(bytes).toString('utf8')
  }
  peerAddress() {
    return this.connection?.requestIP(this.request)?.address ?? null
  }
}
