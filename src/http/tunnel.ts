import type { Socket } from 'bun'

/** Where Bun's own server listens, behind `front.ts`. */
export type Behind = { readonly hostname: string; readonly port: number }

/**
 * Passes the bytes of one connection to Bun's own server and back, for requests written in a way that `request-head.ts`
 * leaves alone: chunked bodies, HTTP/1.0, `Expect`. What one side does not take in time stops the other from sending.
 */
export class Tunnel {
  /** Bytes that came since {@link isQuiet} last asked. */
  private hasMoved = true
  private behind: Socket<undefined> | null = null
  private readonly toBehind = new Pipe()
  private readonly toClient = new Pipe()

  /**
   * @param client Its data goes to {@link push}, its drain to {@link drained}, its close to {@link close}.
   * @param onOpen Told the local port of the connection to the server behind, before it can see a request.
   * @param onClose Once, with the same port; the client is closed by then.
   */
  constructor(
    private readonly client: Socket<unknown>,
    where: Behind,
    { onOpen, onClose }: { onOpen(port: number): void; onClose(port: number): void },
  ) {
    let port = 0
    const socket = {
      open: (behind: Socket<undefined>) => {
        this.behind = behind
        // Read here, as a closed socket has none.
        port = behind.localPort
        onOpen(port)
        this.toBehind.attach(behind, client)
      },
      data: (_: Socket<undefined>, chunk: Buffer) => {
        this.hasMoved = true
        this.toClient.write(chunk)
      },
      drain: () => this.toBehind.flush(),
      close: () => {
        onClose(port)
        this.toClient.end()
      },
      error: () => client.terminate(),
    }
    Bun.connect({ ...where, socket }).then(
      (behind) => this.toClient.attach(client, behind),
      () => client.terminate(),
    )
  }

  push(chunk: Buffer): void {
    this.hasMoved = true
    this.toBehind.write(chunk)
  }

  /** The client takes bytes again. */
  drained(): void {
    this.toClient.flush()
  }

  /** The client is gone. */
  close(): void {
    this.toBehind.end()
  }

  /** Whether nothing came from either side since the last time this was asked. */
  isQuiet(): boolean {
    const isQuiet = !this.hasMoved
    this.hasMoved = false
    return isQuiet
  }

  terminate(): void {
    this.behind?.terminate()
    this.client.terminate()
  }
}

/** One direction of a tunnel. Holds what its end has not taken, and keeps the other end from sending meanwhile. */
class Pipe {
  private to: Socket<unknown> | null = null
  private from: Socket<unknown> | null = null
  private held: Buffer[] = []
  private isEnded = false

  /** From now on there is somebody to write to. */
  attach(to: Socket<unknown>, from: Socket<unknown>): void {
    this.to = to
    this.from = from
    this.flush()
  }

  write(chunk: Buffer): void {
    this.held.push(chunk)
    this.flush()
  }

  /** Ends the other side once it has taken everything. */
  end(): void {
    this.isEnded = true
    this.flush()
  }

  flush(): void {
    if (this.to === null) return
    while (this.held.length > 0) {
      const chunk = this.held[0] as Buffer // there is one
      const written = this.to.write(chunk)
      if (written < 0) {
        this.held = [] // it is closed: nobody will take it
        break
      }
      if (written < chunk.length) {
        this.held[0] = chunk.subarray(written)
        this.from?.pause()
        return
      }
      this.held.shift()
    }
    this.from?.resume()
    if (this.isEnded) this.to.end()
  }
}
