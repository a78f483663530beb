import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { DatabaseAddress, Sql } from '../../src/db/connect.ts'
import type { Outcome } from '../../src/usage/recorder.ts'

/** A wire between a pool and the database that a test can cut. */
export type Wire = AsyncDisposable & {
  address: DatabaseAddress
  open(): Promise<void>
  /** What is sent arrives, the answer does not, and the connection breaks: a commit whose answer is lost. */
  deafen(): void
  /** Connections stay, and nothing arrives any more. */
  freeze(): void
  /** Connections break, and further ones are refused. */
  cut(): Promise<void>
}

export async function openWire(to: DatabaseAddress): Promise<Wire> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-wire-'))
  const sockets = new Set<Socket>()
  let isDeaf = false
  let isFrozen = false
  const server = createServer((client) => {
    const database = connectTo(to)
    for (const socket of [client, database]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        database.destroy()
      })
    }
    client.on('data', (bytes) => isFrozen || database.write(bytes))
    database.on('data', (bytes) => {
      if (isDeaf) client.destroy()
      else if (!isFrozen) client.write(bytes)
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
    cut,
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

/** A data dir of its own, gone afterwards. */
export function makeDataDir(): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-usage-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

export const AT = Date.UTC(2026, 10, 21, 13, 37)
export const HOUR = AT - (AT % 3_600_000)

/** One verification of `key_1` unless told otherwise. */
export const verification = (
  changes: Partial<{
    keyId: string
    identityId: string | null
    outcome: Outcome
    tags: readonly string[] | null
    atMs: number
  }> = {},
) => ({
  workspaceId: 'ws_1',
  keyspaceId: 'ks_1',
  keyId: 'key_1',
  identityId: null,
  outcome: 'VALID' as const,
  tags: null,
  atMs: AT,
  ...changes,
})

export const ratelimit = (
  changes: Partial<{ namespaceId: string; identifier: string; passed: boolean; atMs: number }> = {},
) => ({
  workspaceId: 'ws_1',
  namespaceId: 'rlns_1',
  identifier: 'user_1',
  passed: true,
  atMs: AT,
  ...changes,
})

/** What the database holds for a key: valid verifications by hour. */
export async function validByHour(sql: Sql, keyId: string): Promise<Record<number, number>> {
  const rows = await sql<{ hour: number; valid: number }[]>`
    select hour, sum(valid)::bigint as valid from usage_verifications where key_id = ${keyId} group by hour`
  return Object.fromEntries(rows.map(({ hour, valid }) => [hour, valid]))
}
