import { connect, type Socket } from 'node:net'

export type Received = { status: number; headers: Record<string, string>; body: string }

/** A connection for raw bytes. */
export class RawClient {
  private text = ''
  private readonly socket: Socket
  /** True: answers have no content, whatever their length says. */
  answersHead = false
  /** True: the client's side stays open when the server closes. */
  keepsOpen = false
  private isClosed = false
  /** ECONNRESET or EPIPE when the connection broke. */
  errorCode: string | null = null
  private waiting: (() => void)[] = []

  constructor(where: number | string) {
    this.socket =
      typeof where === 'number'
        ? connect({ port: where, host: '127.0.0.1', allowHalfOpen: true })
        : connect({ path: where, allowHalfOpen: true })
    this.socket.setNoDelay(true)
    this.socket.setEncoding('latin1')
    this.socket.on('data', (chunk: string) => {
      this.text += chunk
      this.wake()
    })
    // A server that has finished sends a FIN; a reset comes without one.
    for (const event of ['end', 'close'])
      this.socket.on(event, () => {
        this.isClosed = true
        if (!this.keepsOpen) this.socket.end()
        this.wake()
      })
    this.socket.on('error', (cause: NodeJS.ErrnoException) => {
      this.errorCode = cause.code ?? 'unknown'
    })
  }

  private wake() {
    for (const wake of this.waiting.splice(0)) wake()
  }

  send(text: string | Uint8Array): Promise<void> {
    return new Promise((resolve) =>
      this.socket.write(typeof text === 'string' ? Buffer.from(text, 'utf8') : text, () => resolve()),
    )
  }

  /** Closes the sending side. */
  end(): void {
    this.socket.end()
  }

  pause() {
    this.socket.pause()
  }

  resume() {
    this.socket.resume()
  }

  /** Received bytes that are not part of a complete answer. */
  get rest(): string {
    return this.text
  }

  /** The next answer; null when the connection closes before it is complete. */
  async answer(): Promise<Received | null> {
    for (;;) {
      const headEnd = this.text.indexOf('\r\n\r\n')
      if (headEnd !== -1) {
        const [statusLine = '', ...lines] = this.text.slice(0, headEnd).split('\r\n')
        const headers = Object.fromEntries(
          lines.map((line) => [
            line.slice(0, line.indexOf(':')).toLowerCase(),
            line.slice(line.indexOf(':') + 1).trim(),
          ]),
        )
        const hasContent = !this.answersHead
        const end = headEnd + 4 + (hasContent ? Number(headers['content-length'] ?? 0) : 0)
        if (this.text.length >= end) {
          const body = Buffer.from(this.text.slice(headEnd + 4, end), 'latin1').toString('utf8')
          this.text = this.text.slice(end)
          return { status: Number(statusLine.split(' ')[1]), headers, body }
        }
      }
      if (this.isClosed) return null
      await new Promise<void>((resolve) => this.waiting.push(resolve))
    }
  }

  /** All answers until the server closes. */
  async answers(): Promise<Received[]> {
    const all: Received[] = []
    for (;;) {
      const answer = await this.answer()
      if (answer === null) return all
      all.push(answer)
    }
  }

  async closed(): Promise<void> {
    while (!this.isClosed) await new Promise<void>((resolve) => this.waiting.push(resolve))
  }

  [Symbol.dispose]() {
    this.socket.destroy()
  }
}
