import type { Command, Pipeline, Redis } from 'ioredis'
import type { RedisAddress } from '../lib/fleet-url.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { TAGS } from './buckets.ts'
import type { Engine, EngineSetup, Exchange, Failed, Fault, Result } from './engine.ts'
import { wrongWith } from './exchange-check.ts'
import { connectRedis, type RedisNodes } from './redis-nodes.ts'
import { type Speaker, takeMessage } from './take-message.ts'
import { bucketKey, readReply } from './take-script.ts'

/**
 * The engine on Redis or Valkey: alone, behind Sentinels, or a cluster (`redis-nodes.ts`).
 *
 * 1. `exchange` finds the connection to the master that has the bucket; none that is ready = `away`.
 * 2. One EVALSHA carries the message. NOSCRIPT = the script again, in full. MOVED = the same message once more, there.
 *    Neither did anything, so both may be said again; nothing else is.
 * 3. With `replicas`, WAIT goes out in the same write.
 * 4. The bucket's epoch rises after each fault and with each new connection, so that what was said before does not count.
 *
 * Errors are made anew from their texts: those of the client have the command with them, and AUTH is one.
 */
export class RedisEngine implements Engine {
  readonly kind = 'redis'
  readonly buckets: number
  private readonly epochs: number[]
  private readonly underWay = new Map<number, (fault: Fault, cause: Error) => void>()
  private fleetId: string
  private isClosed = false

  static async open(address: RedisAddress, setup: RedisSetup): Promise<RedisEngine> {
    const raise = { call: () => {} }
    const nodes = await connectRedis(address, {
      timeoutMs: setup.timeoutMs,
      onConnection: () => raise.call(),
    })
    const { Command } = await import('ioredis') // as for the connections: not before it is needed
    const engine = new RedisEngine(Command, nodes, redisBucketsOf(address), setup)
    raise.call = () => engine.raiseAll()
    return engine
  }

  private constructor(
    private readonly CommandOfClient: typeof Command,
    private readonly nodes: RedisNodes,
    buckets: number,
    private readonly setup: RedisSetup,
  ) {
    this.buckets = buckets
    this.epochs = Array.from({ length: buckets }, () => 1)
    this.fleetId = setup.fleetId ?? ''
  }

  exchange(exchange: Exchange): Promise<Result> {
    const { bucket } = exchange
    const wrong = this.isClosed ? 'the engine is closed' : wrongWith(exchange, this.buckets)
    if (wrong !== null) return Promise.reject(new Error(wrong))
    if (this.underWay.has(bucket))
      return Promise.reject(new Error(`an exchange of bucket ${bucket} is under way`))
    return new Promise((resolve) => {
      const settle = (result: Result) => {
        if (this.underWay.get(bucket) !== fail) return
        this.underWay.delete(bucket)
        clearTimeout(timer)
        if (result.kind === 'failed') this.raise(bucket)
        resolve(result)
      }
      const fail = (fault: Fault, cause: Error) => settle({ kind: 'failed', fault, cause })
      this.underWay.set(bucket, fail)
      const { timeoutMs } = this.setup
      const timer = setTimeout(() => fail('late', new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
      const isOpen = () => this.underWay.get(bucket) === fail
      this.take(exchange, isOpen).then(settle, (cause) => settle(failedWith(cause)))
    })
  }

  async claim(fleetId: string): Promise<{ kind: 'claimed'; fleetId: string } | Failed> {
    try {
      await within(systemTimers, this.setup.timeoutMs, this.nodes.ready())
      // The first bucket decides between two that claim at once. The others follow it.
      const first = await this.claimBucket(0, fleetId)
      if (first !== fleetId) return { kind: 'claimed', fleetId: first }
      const others = await Promise.all(this.epochs.map((_, bucket) => this.claimBucket(bucket, fleetId)))
      const foreign = others.find((id) => id !== fleetId)
      if (foreign !== undefined) return { kind: 'claimed', fleetId: foreign }
      this.fleetId = fleetId
      return { kind: 'claimed', fleetId }
    } catch (cause) {
      return failedWith(this.nodes.problem() ?? cause)
    }
  }

  async found(): Promise<{ kind: 'found'; fleetId: string | null } | Failed> {
    try {
      await within(systemTimers, this.setup.timeoutMs, this.nodes.ready())
      const node = this.nodes.of(0)
      if (node === null) throw new Error('there is no connection')
      return { kind: 'found', fleetId: await node.hget(bucketKey(0), 'fleet') }
    } catch (cause) {
      return failedWith(this.nodes.problem() ?? cause)
    }
  }

  async warnings(): Promise<string[]> {
    const found = await Promise.all(this.nodes.all().map((node) => memoryWarning(node).catch(() => null)))
    return [...new Set(found.filter((each) => each !== null))]
  }

  async close(): Promise<void> {
    this.isClosed = true
    for (const fail of [...this.underWay.values()]) fail('away', new Error('the engine is closed'))
    await this.nodes.close()
  }

  private async take(exchange: Exchange, isOpen: () => boolean): Promise<Result> {
    const { bucket, entries } = exchange
    const node = this.nodes.of(bucket)
    if (node === null)
      return {
        kind: 'failed',
        fault: 'away',
        cause: this.nodes.problem() ?? new Error('there is no connection'),
      }
    const epoch = this.epochs[bucket] ?? 1
    const { serverId, learnMs } = this.setup
    const speaker = { serverId, epoch, learnMs, fleetId: this.fleetId }
    const { reply, replicas } = await this.say(node, exchange, speaker, isOpen)
    const read = readReply(reply, entries)
    if (read.kind === 'stale') {
      this.epochs[bucket] = Math.max(this.epochs[bucket] ?? 1, read.epoch)
      return {
        kind: 'failed',
        fault: 'stale',
        cause: new Error(`the engine knows epoch ${read.epoch}, this was ${epoch}`),
      }
    }
    if (read.kind === 'foreign')
      return { kind: 'failed', fault: 'foreign', cause: new Error('the engine serves another fleet') }
    if (replicas < this.setup.replicas)
      return {
        kind: 'failed',
        fault: 'replicas',
        cause: new Error(`${replicas} replicas have it, ${this.setup.replicas} must`),
      }
    return read
  }

  /** @param isOpen Whether somebody still waits: a message that is given up is not said again. */
  private async say(node: Redis, exchange: Exchange, speaker: Speaker, isOpen: () => boolean): Promise<Said> {
    try {
      return await this.send(node, 'evalsha', exchange, speaker)
    } catch (cause) {
      const [code] = messageOf(cause).split(' ', 1)
      if (code === 'MOVED') {
        const owner = await this.nodes.moved(exchange.bucket, messageOf(cause))
        if (owner !== null && isOpen()) return await this.send(owner, 'eval', exchange, speaker)
      }
      if (code === 'READONLY') this.nodes.isReplica(node)
      if (code !== 'NOSCRIPT' || !isOpen()) throw cause
      return await this.send(node, 'eval', exchange, speaker)
    }
  }

  private async send(
    node: Redis,
    name: 'eval' | 'evalsha',
    exchange: Exchange,
    speaker: Speaker,
  ): Promise<Said> {
    const { replicas, timeoutMs } = this.setup
    const command = new this.CommandOfClient(name, [], { replyEncoding: null })
    const message = takeMessage(name, exchange, speaker)
    command.toWritable = () => message
    if (replicas === 0) return { reply: await node.sendCommand(command), replicas: 0 }
    // Half the time, so that a replica that hangs is told from a master that hangs.
    const waitMs = Math.max(1, Math.floor(timeoutMs / 2))
    const pipeline = node.pipeline()
    const raw = pipeline as unknown as Pipeline // its type lacks the method
    raw.sendCommand(command)
    const both = await pipeline.wait(replicas, waitMs).exec()
    const [said, waited] = both ?? []
    const cause = said?.[0] ?? waited?.[0]
    if (cause != null) throw cause
    return { reply: said?.[1], replicas: Number(waited?.[1]) }
  }

  private async claimBucket(bucket: number, fleetId: string): Promise<string> {
    const node = this.nodes.of(bucket)
    if (node === null) throw new Error('there is no connection')
    await node.hsetnx(bucketKey(bucket), 'fleet', fleetId)
    return (await node.hget(bucketKey(bucket), 'fleet')) ?? fleetId
  }

  private raise(bucket: number): void {
    this.epochs[bucket] = (this.epochs[bucket] ?? 1) + 1
  }

  private raiseAll(): void {
    for (const bucket of this.epochs.keys()) this.raise(bucket)
  }
}

/** Several only where they spread over masters: a message costs as much as several entries. */
export const redisBucketsOf = ({ mode }: RedisAddress): number => (mode === 'cluster' ? TAGS.length : 1)

export type RedisSetup = EngineSetup & {
  /** A gift counts only when so many replicas have it. */
  replicas: number
  /** The id that was claimed before; absent = none is compared before a claim. */
  fleetId?: string
}

type Said = { reply: unknown; replicas: number }

const messageOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause))

function failedWith(cause: unknown): Failed {
  const message = messageOf(cause)
  const fault =
    message.startsWith('Command timed out') || message.startsWith('no answer within') ? 'late' : 'broken'
  return { kind: 'failed', fault, cause: new Error(message) }
}

/** A window that is evicted is a budget handed out anew. */
async function memoryWarning(node: Redis): Promise<string | null> {
  const memory = await node.info('memory')
  const policy = /^maxmemory_policy:(\S+)/m.exec(memory)?.[1] ?? 'noeviction'
  if (policy === 'noeviction' || !/^maxmemory:[1-9]/m.test(memory)) return null
  return `Redis may evict windows when its memory is full (maxmemory-policy is ${policy}), and an evicted window starts again at zero. Set maxmemory-policy to noeviction.`
}
