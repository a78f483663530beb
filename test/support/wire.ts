import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { DatabaseAddress } from '../../src/db/connect.ts'

/** A connection between a pool and the database that a test can disturb. */
export type Wire = AsyncDisposable & {
  address: DatabaseAddress
  open(): Promise<void>
  /** Requests arrive, answers do not, and the connection breaks: a commit whose answer is lost. */
  deafen(): void
  /** Connections stay open, and nothing arrives any more. */
  freeze(): void
  /** Existing connections stay open and nothing arrives on them; new ones work: a firewall forgot the old ones. */
  forget(): void
  /** Connections break, and new ones are refused. */
  cut(): Promise<void>
  /** Delays each message to the database, except a connection's first, one after the other; 0 = no delay. */
  slow(delayMs: number): void
  /** Connections break, and new ones lead to another Postgres, as after a failover. */
  pointTo(url: string): void
}

export async function openWire(to: DatabaseAddress): Promise<Wire> {
  let target = to
  let delayMs = 0
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-wire-'))
  const sockets = new Set<Socket>()
  let isDeaf = false
  let isFrozen = false
  const forgotten = new WeakSet<Socket>()
  const server = createServer((client) => {
    const database = connectTo(target)
    let lastAtMs = Number.NaN
    /** A queue, because two timers for about the same time may fire in the wrong order. */
    const waiting: (Buffer | string)[] = []
    const sendFirst = () => {
      const bytes = waiting.shift()
      if (bytes !== undefined && !isFrozen) database.write(bytes)
    }
    for (const socket of [client, database]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        database.destroy()
      })
    }
    client.on('data', (bytes) => {
      if (isFrozen || forgotten.has(client)) return
      const now = performance.now()
      lastAtMs = Number.isNaN(lastAtMs) ? now : Math.max(now, lastAtMs) + delayMs
      waiting.push(bytes)
      if (waiting.length === 1 && lastAtMs <= now) sendFirst()
      else setTimeout(sendFirst, lastAtMs - now)
    })
    database.on('data', (bytes) => {
      if (isDeaf) client.destroy()
      else if (!isFrozen && !forgotten.has(client)) client.write(bytes)
    })
  })
  const path = join(folder, 'wire.sock')
  let port = 0
  const open = async () => {
    isDeaf = false
    isFrozen = false
    if (server.listening) return
    await new Promise<void>((resolve) =>
      to.kind === 'url' ? server.listen(port, '127.0.0.1', resolve) : server.listen(path, resolve),
    )
    const bound = server.address()
    if (typeof bound === 'object' && bound !== null) port = bound.port
  }
  const cut = async () => {
    const closed = new Promise((resolve) => server.close(resolve))
    for (const socket of sockets) socket.destroy()
    await closed
  }
  await open()
  return {
    address: to.kind === 'url' ? through(to.url, port) : { kind: 'embedded', socketPath: path },
    open,
    deafen: () => {
      isDeaf = true
    },
    freeze: () => {
      isFrozen = true
    },
    forget: () => {
      for (const socket of sockets) forgotten.add(socket)
    },
    cut,
    slow: (ms) => {
      delayMs = ms
    },
    pointTo: (url) => {
      target = { kind: 'url', url }
      for (const socket of sockets) socket.destroy()
    },
    [Symbol.asyncDispose]: async () => {
      await cut()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function connectTo(address: DatabaseAddress): Socket {
  if (address.kind === 'embedded') return createConnection(address.socketPath)
  const { hostname, port } = new URL(address.url)
  return createConnection({ host: hostname, port: Number(port || 5432) })
}

function through(url: string, port: number): DatabaseAddress {
  const wired = new URL(url)
  wired.hostname = '127.0.0.1'
  wired.port = String(port)
  return { kind: 'url', url: wired.href }
}
