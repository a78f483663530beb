import { createConnection, createServer, type Socket } from 'node:net'

/** What lies between a program and a port of this machine: a test makes it slow, silent or cut. */
export type TcpLink = AsyncDisposable & {
  port: number
  /** All bytes come so much later in each direction, in their order; 0 = at once. */
  delay(ms: number): void
  /** Connections stay open, and nothing arrives until {@link open}; then all of it does. */
  hold(): void
  /** Connections break, and new ones are refused. */
  cut(): Promise<void>
  open(): Promise<void>
}

export async function openTcpLink(to: number): Promise<TcpLink> {
  const sockets = new Set<Socket>()
  let delayMs = 0
  let isHeld = false
  let held: (() => void)[] = []
  const pass = (from: Socket, target: Socket) => {
    // One timer a chunk would not keep the order, because two for about the same time may fire in the wrong one.
    const chunks: Buffer[] = []
    const arrive = () => {
      const chunk = chunks.shift()
      if (chunk !== undefined && !target.destroyed) target.write(chunk)
    }
    from.on('data', (chunk) => {
      chunks.push(Buffer.from(chunk))
      if (isHeld) held.push(arrive)
      else if (delayMs === 0 && chunks.length === 1) arrive()
      else setTimeout(() => (isHeld ? held.push(arrive) : arrive()), delayMs)
    })
  }
  const server = createServer((client) => {
    const target = createConnection({ host: '127.0.0.1', port: to })
    for (const socket of [client, target]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        target.destroy()
      })
    }
    pass(client, target)
    pass(target, client)
  })
  let port = 0
  const open = async () => {
    isHeld = false
    for (const arrive of held.splice(0)) arrive()
    if (server.listening) return
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
    const bound = server.address()
    if (typeof bound === 'object' && bound !== null) port = bound.port
  }
  const cut = async () => {
    held = []
    if (!server.listening) return
    const closed = new Promise((resolve) => server.close(resolve))
    for (const socket of sockets) socket.destroy()
    await closed
  }
  await open()
  return {
    port,
    delay: (ms) => {
      delayMs = ms
    },
    hold: () => {
      isHeld = true
    },
    cut,
    open,
    [Symbol.asyncDispose]: cut,
  }
}
