import type { Redis, RedisOptions } from 'ioredis'
import type { RedisAddress } from './fleet-url.ts'

/** The connections of one engine object, and which of them leads to the master of a bucket. */
export type RedisNodes = {
  /** A connection that is ready; null = there is none. */
  of(bucket: number): Redis | null
  /** All masters that are connected. */
  all(): Redis[]
  /** Resolves when every bucket has a connection. */
  ready(): Promise<void>
  /** After MOVED: @returns the connection that it names, ready; null = it has none. */
  moved(bucket: number, message: string): Promise<Redis | null>
  /** After READONLY: it was the master once. */
  isReplica(node: Redis): void
  /** What the last attempt to connect failed with; null = nothing did. */
  problem(): Error | null
  close(): Promise<void>
}

export type NodesSetup = {
  timeoutMs: number
  /** Called each time that a connection is ready. */
  onConnection: () => void
}

/** Connecting goes on behind the caller's back, for ever. */
export async function connectRedis(address: RedisAddress, setup: NodesSetup): Promise<RedisNodes> {
  const client = await import('ioredis') // not before it is needed: most installations have no Redis
  return new OneNode(client.Redis, address, setup)
}

/** A single server, or the master that Sentinels name. */
class OneNode implements RedisNodes {
  private readonly node: Redis
  private cause: Error | null = null

  constructor(Client: typeof Redis, address: RedisAddress, setup: NodesSetup) {
    const [first = { host: 'localhost', port: 6379 }] = address.hosts
    const options: RedisOptions = address.mode === 'sentinel' ? sentinelOptions(address, setup) : first
    this.node = new Client({ ...optionsFor(address, setup), ...options, replyMapping: 'legacy' })
    this.node.on('error', (cause: Error) => {
      this.cause = new Error(cause.message)
    })
    this.node.on('ready', () => {
      this.cause = null
      setup.onConnection()
    })
  }

  of(): Redis | null {
    return this.node.status === 'ready' ? this.node : null
  }

  all(): Redis[] {
    return this.node.status === 'ready' ? [this.node] : []
  }

  ready(): Promise<void> {
    if (this.node.status === 'ready') return Promise.resolve()
    return new Promise((resolve) => this.node.once('ready', () => resolve()))
  }

  moved(): Promise<null> {
    return Promise.resolve(null)
  }

  isReplica(): void {
    this.node.disconnect(true) // the next connection asks again which one is the master
  }

  problem(): Error | null {
    return this.cause
  }

  close(): Promise<void> {
    this.node.disconnect()
    return Promise.resolve()
  }
}

/**
 * The client sends what it is given once, at once, or not at all: it keeps no queue and sends nothing again by itself.
 * A connection on which nothing comes back for {@link SILENT_MS} is given up, as the one behind it may be gone for good.
 */
function optionsFor(address: RedisAddress, { timeoutMs }: NodesSetup): RedisOptions {
  return {
    ...(address.user === undefined ? {} : { username: address.user }),
    ...(address.password === undefined ? {} : { password: address.password }),
    ...(address.hasTls ? { tls: {} } : {}),
    db: address.database,
    protocol: 2,
    connectionName: 'tollgate',
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: timeoutMs,
    connectTimeout: CONNECT_MS,
    socketTimeout: Math.max(SILENT_MS, 2 * timeoutMs),
    retryStrategy: (times) => Math.min(10 * times, RETRY_MS),
  }
}

function sentinelOptions(address: RedisAddress, { timeoutMs }: NodesSetup): RedisOptions {
  return {
    sentinels: address.hosts.map((host) => ({ ...host })),
    name: address.masterName ?? '',
    ...(address.sentinelUser === undefined ? {} : { sentinelUsername: address.sentinelUser }),
    ...(address.sentinelPassword === undefined ? {} : { sentinelPassword: address.sentinelPassword }),
    ...(address.hasTls ? { enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
    sentinelCommandTimeout: timeoutMs,
    sentinelRetryStrategy: (times) => Math.min(10 * times, RETRY_MS),
    failoverDetector: true,
  }
}

const CONNECT_MS = 2_000
const SILENT_MS = 2_000
const RETRY_MS = 100
