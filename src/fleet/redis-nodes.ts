import type { Redis, RedisOptions } from 'ioredis'
import type { Host, RedisAddress } from '../lib/fleet-url.ts'
import { slotOf, TAGS } from './buckets.ts'

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
  return address.mode === 'cluster'
    ? new ClusterNodes(client.Redis, address, setup)
    : new OneNode(client.Redis, address, setup)
}

/** A single server, or the master that Sentinels name. */
class OneNode implements RedisNodes {
  private readonly node: Redis
  private becomingReady: Promise<void> | null = null
  private cause: Error | null = null
  private isClosed = false

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
    // The client gives up for good when a failover is announced while it asks a Sentinel.
    this.node.on('end', () => {
      setTimeout(() => {
        if (!this.isClosed && this.node.status === 'end') this.node.connect().catch(() => {}) // the event of the error says it
      }, RETRY_MS)
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
    // One for all who wait: whoever gives up waiting leaves nothing behind.
    this.becomingReady ??= new Promise((resolve) =>
      this.node.once('ready', () => {
        this.becomingReady = null
        resolve()
      }),
    )
    return this.becomingReady
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
    this.isClosed = true
    this.node.disconnect()
    return Promise.resolve()
  }
}

/**
 * The masters of a cluster. Sixteen slots matter, one for each bucket, so who has them is asked here, of one node each second
 * and after each sign that it has changed. A client for clusters would send again by itself.
 */
class ClusterNodes implements RedisNodes {
  /** By `host:port`. */
  private readonly nodes = new Map<string, Redis>()
  /** The node that has the slot of each bucket; null = nobody says so. */
  private owners: (string | null)[] = TAGS.map(() => null)
  /** All that were ever named, the configured ones first: whom to ask when no connection is left. */
  private hosts: readonly Host[]
  private asking: Promise<void> | null = null
  private cause: Error | null = null
  private isClosed = false
  private readonly timer: ReturnType<typeof setInterval>

  constructor(
    private readonly Client: typeof Redis,
    private readonly address: RedisAddress,
    private readonly setup: NodesSetup,
  ) {
    this.hosts = address.hosts
    this.timer = setInterval(() => this.refresh(), REFRESH_MS)
    this.refresh()
  }

  of(bucket: number): Redis | null {
    const node = this.nodes.get(this.owners[bucket] ?? '')
    return node?.status === 'ready' ? node : null
  }

  all(): Redis[] {
    return [...this.nodes.values()].filter(({ status }) => status === 'ready')
  }

  async ready(): Promise<void> {
    while (!this.isClosed && TAGS.some((_, bucket) => this.of(bucket) === null)) await Bun.sleep(POLL_MS)
  }

  async moved(bucket: number, message: string): Promise<Redis | null> {
    const [, host = '', port = ''] = /^MOVED \d+ (.*):(\d+)$/.exec(message) ?? []
    this.refresh()
    if (host === '' || host === '?') return null
    this.owners[bucket] = `${host}:${port}`
    const node = this.nodeAt({ host, port: Number(port) })
    const untilMs = performance.now() + this.setup.timeoutMs
    while (node.status !== 'ready' && !this.isClosed && performance.now() < untilMs) await Bun.sleep(1)
    return node.status === 'ready' ? node : null
  }

  isReplica(): void {
    this.refresh()
  }

  problem(): Error | null {
    return this.cause
  }

  close(): Promise<void> {
    this.isClosed = true
    clearInterval(this.timer)
    for (const node of this.nodes.values()) node.disconnect()
    return Promise.resolve()
  }

  /** Asks who has the slots, unless somebody is being asked already. */
  private refresh(): void {
    if (this.isClosed) return
    this.asking ??= this.ask().finally(() => {
      this.asking = null
    })
  }

  private async ask(): Promise<void> {
    // Another one each time, so that one with an old view is not believed for long.
    for (const node of this.all().sort(() => Math.random() - 0.5)) if (await this.askNode(node)) return
    for (const host of this.hosts) {
      if (this.isClosed) return
      const node = this.connect(host, { lazyConnect: true, retryStrategy: () => null })
      const isConnected = await node.connect().then(
        () => true,
        () => false,
      )
      const isAnswered = isConnected && (await this.askNode(node))
      node.disconnect()
      if (isAnswered) return
    }
  }

  /** @returns whether it has answered. */
  private async askNode(node: Redis): Promise<boolean> {
    try {
      this.learn(readSlots(await node.cluster('SLOTS'), node.options.host ?? ''))
      return true
    } catch (cause) {
      this.cause = new Error(cause instanceof Error ? cause.message : String(cause))
      return false
    }
  }

  private learn(ranges: SlotRange[]): void {
    if (this.isClosed) return
    this.owners = TAGS.map((_, bucket) => {
      const slot = slotOf(bucket)
      const owner = ranges.find(({ first, last }) => first <= slot && slot <= last)?.hosts[0]
      if (owner === undefined) return null
      this.nodeAt(owner)
      return keyOf(owner)
    })
    for (const [key, node] of this.nodes) {
      if (this.owners.includes(key)) continue
      this.nodes.delete(key)
      node.disconnect()
    }
    const named = new Map(
      [...this.address.hosts, ...ranges.flatMap(({ hosts }) => hosts)].map((host) => [keyOf(host), host]),
    )
    this.hosts = [...named.values()]
  }

  private nodeAt(host: Host): Redis {
    const key = keyOf(host)
    const there = this.nodes.get(key)
    if (there !== undefined) return there
    const node = this.connect(host, {})
    node.on('ready', () => {
      this.cause = null
      this.setup.onConnection()
    })
    node.on('close', () => this.refresh())
    this.nodes.set(key, node)
    return node
  }

  private connect(host: Host, options: RedisOptions): Redis {
    const node = new this.Client({
      ...optionsFor(this.address, this.setup),
      ...host,
      ...options,
      replyMapping: 'legacy',
    })
    node.on('error', (cause: Error) => {
      this.cause = new Error(cause.message)
    })
    return node
  }
}

/** Slots, and who has them: the master first, then its replicas. */
type SlotRange = { first: number; last: number; hosts: Host[] }

/**
 * @param asked The host that answers: a node without a host has the same one. `?` is a node that is to be named and has no
 *   name; its address is among what follows.
 * @throws Error when the answer makes no sense.
 */
function readSlots(answer: unknown, asked: string): SlotRange[] {
  if (!Array.isArray(answer) || answer.length === 0) throw new Error('the cluster has no slots')
  return answer.map((range: unknown) => {
    const [first, last, ...hosts] = Array.isArray(range) ? range : []
    return {
      first: Number(first),
      last: Number(last),
      hosts: hosts.map((node: unknown) => {
        const [host, port, , more] = Array.isArray(node) ? node : []
        return { host: String((host === '?' ? addressOf(more) : host) || asked), port: Number(port) }
      }),
    }
  })
}

/** @param more Names and values in turn. */
function addressOf(more: unknown): unknown {
  return Array.isArray(more) ? more[more.indexOf('ip') + 1] : undefined
}

const keyOf = ({ host, port }: Host) => `${host}:${port}`

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
const REFRESH_MS = 1_000
const POLL_MS = 5
