import type { Socket } from 'bun'

type Ends = { peer: Socket<Ends> | null; early: Buffer[]; isEnded: boolean }

export type Balancer = AsyncDisposable & {
  url: string
  /** No more new connections go there; those that are open stay. */
  remove(port: number): void
}

/** A balancer of TCP connections, in turn: it knows nothing of HTTP, like a Service of Kubernetes. */
export function startBalancer(ports: readonly number[]): Balancer {
  const targets = [...ports]
  let next = 0
  const pass = (from: Socket<Ends>, chunk: Buffer) => {
    const { peer } = from.data
    if (peer === null || from.data.early.length > 0) from.data.early.push(Buffer.from(chunk))
    else {
      const written = peer.write(chunk)
      if (written < chunk.length) {
        from.data.early.push(Buffer.from(chunk.subarray(Math.max(0, written))))
        from.pause()
      }
    }
  }
  const drain = (to: Socket<Ends>) => {
    const from = to.data.peer
    if (from === null) return
    while (from.data.early.length > 0) {
      const [first = Buffer.alloc(0)] = from.data.early
      const written = to.write(first)
      if (written < first.length) {
        from.data.early[0] = first.subarray(Math.max(0, written))
        return
      }
      from.data.early.shift()
    }
    from.resume()
    if (from.data.isEnded) to.shutdown()
  }
  const end = (from: Socket<Ends>) => {
    from.data.isEnded = true
    if (from.data.early.length === 0) from.data.peer?.shutdown()
  }
  const server = Bun.listen<Ends>({
    hostname: '127.0.0.1',
    port: 0,
    allowHalfOpen: true,
    socket: {
      open: (client) => {
        client.data = { peer: null, early: [], isEnded: false }
        const port = targets[next++ % targets.length] ?? 0
        Bun.connect<Ends>({
          hostname: '127.0.0.1',
          port,
          allowHalfOpen: true,
          data: { peer: client, early: [], isEnded: false },
          socket: {
            open: (upstream) => {
              client.data.peer = upstream
              drain(upstream)
            },
            data: pass,
            drain,
            end,
            close: () => client.terminate(),
            error: () => client.terminate(),
          },
        }).catch(() => client.terminate())
      },
      data: pass,
      drain,
      end,
      close: (client) => client.data.peer?.terminate(),
      error: (client) => client.data.peer?.terminate(),
    },
  })
  return {
    url: `http://127.0.0.1:${server.port}`,
    remove: (port) => {
      targets.splice(targets.indexOf(port), 1)
    },
    [Symbol.asyncDispose]: async () => server.stop(true),
  }
}
