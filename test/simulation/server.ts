import { neverBackwards } from '../../src/lib/clock.ts'
import type { FromShard, ToShard } from '../../src/limiter/threads/protocol.ts'
import { LimiterRouter } from '../../src/limiter/threads/router.ts'
import { SameThread } from '../../src/limiter/threads/same-thread.ts'
import { makeSameThreadChannel, SameThreadPort } from '../../src/limiter/threads/same-thread-port.ts'
import { Shard } from '../../src/limiter/threads/shard.ts'
import { type Shards, startShards } from '../../src/limiter/threads/shards.ts'
import { Changes } from '../../src/records/changes.ts'
import { Database } from '../../src/records/database.ts'
import { replaySpilledUsage, UsageRecorder } from '../../src/usage/recorder.ts'
import { CreditSpender } from '../../src/verify/credits.ts'
import { KeyLookup } from '../../src/verify/lookup.ts'
import type { Verifier } from '../../src/verify/verify.ts'
import { UsageLedger } from './ledger.ts'
import { ShardModel } from './limiter-model.ts'
import type { Postgres, SpillFolder } from './postgres.ts'
import { type Delay, makeChannel, Port, Thread, type World } from './world.ts'

/** What does not change while a machine's server is stopped and started. */
export type Machine = {
  readonly nodeId: string
  readonly spills: SpillFolder
  /** How far its clock is off, ms. */
  clockOffMs: number
  /** The latest time that one of its servers has seen, in whatever life; Unix ms. */
  latestMs: number
  lives: number
}

export type ServerOptions = {
  httpThreads: number
  /** How many threads; 0 = one shard on the main thread. */
  shards: number
  flushEveryMs: number
  memoryBytes: number
  usageCellsMax: number
  isExact: boolean
  messageDelay: Delay
}

/**
 * One process, from start to end: the program's own router, shards, caches, credits and usage, on threads, channels,
 * timers and a database of the simulation; with one HTTP thread, the shard is on it in half of the lives. `server/deps.ts` and
 * `server/server.ts` put the same parts together for real.
 */
export class Server {
  readonly name: string
  readonly main: Thread
  readonly http: HttpThread[] = []
  readonly usage = new UsageLedger()
  shards: Shards | null = null
  state: 'starting' | 'serving' | 'stopping' | 'stopped' | 'dead' = 'starting'
  /** Those that run, and those that ran before. */
  readonly shardLives: ShardLife[] = []
  /** Until when one of its threads stands, or stood, still. */
  pausedUntilMs = Number.NEGATIVE_INFINITY
  /** Grows with each shard that died. */
  shardDeaths = 0
  private readonly waitingCalls = new WeakMap<Port | SameThreadPort, number[][]>()

  constructor(
    readonly world: World,
    readonly postgres: Postgres,
    readonly machine: Machine,
    readonly options: ServerOptions,
  ) {
    this.name = `${machine.nodeId}/${++machine.lives}`
    this.main = new Thread(world, `${this.name} main`)
  }

  readonly clock = () => EPOCH_MS + Math.floor(this.world.nowMs) + this.machine.clockOffMs

  /** @throws when the database is not there. */
  async start(): Promise<void> {
    const { world, postgres, machine, options, main, clock } = this
    world.note(() => `${this.name}: starts, its clock is ${machine.clockOffMs} ms off`)
    // A start has time for one file: the rest is sent while it serves.
    const isUsageSent = await replaySpilledUsage(postgres.pool(main, 2_000).sql, machine.spills, () => true)
    const shards = await startShards(
      {
        count: options.shards,
        address: { kind: 'url', url: 'simulated' },
        nodeId: machine.nodeId,
        hashSecret: 'secret',
        flushEveryMs: options.flushEveryMs,
        dataDir: 'simulated',
        memoryBytes: options.memoryBytes,
        now: clock(),
      },
      {
        timers: main.timers,
        startWorker: () => this.startShard() as unknown as Worker, // what the limiter uses of one is there
        makeChannel: () => {
          const channel = options.shards === 0 ? this.makeSameThreadChannel() : this.makeChannel(main)
          return channel as unknown as MessageChannel // what is used of one is there
        },
        openStore: () => postgres.windowStore(main),
        openSpills: () => machine.spills,
      },
    )
    this.shards = shards
    const threads = Array.from({ length: options.httpThreads }, (_, i) =>
      i === 0 ? main : new Thread(world, `${this.name} http ${i}`),
    )
    for (const thread of threads)
      this.http.push(this.openHttpThread(thread, shards, { takesUpUsage: thread === main && !isUsageSent }))
    for (const [i, one] of this.http.entries())
      for (const other of this.http.slice(i + 1)) {
        const { port1, port2 } = this.makeChannel(main)
        port1.giveTo(one.thread)
        port2.giveTo(other.thread)
        one.changes.addPeer(port1 as unknown as MessagePort) // what is used of one is there
        other.changes.addPeer(port2 as unknown as MessagePort) // what is used of one is there
      }
    await this.http[0]?.changes.listen(postgres.listen(main))
    if (this.state !== 'starting') return
    this.state = 'serving'
    world.note(() => `${this.name}: serves`)
  }

  /** In the order of a real stop. */
  async stop(): Promise<void> {
    this.state = 'stopping'
    this.world.note(() => `${this.name}: stops`)
    // A listener that stops takes no more calls, and waits for those it has.
    while (this.http.some(({ waiting }) => waiting.size > 0))
      await new Promise<void>((resolve) => this.main.timers.after(10, resolve))
    await Promise.all(this.http.map(({ limiter }) => limiter.stop()))
    await Promise.all([...this.http.map(({ recorder }) => recorder.stop()), this.shards?.stop()])
    for (const { changes } of this.http) changes.stop()
    this.state = 'stopped'
    this.world.note(() => `${this.name}: has stopped`)
    this.end()
  }

  kill(): void {
    this.world.note(() => `${this.name}: is killed`)
    this.state = 'dead'
    this.end()
  }

  /**
   * The latest time that any part of it, or of an earlier life, has seen. What was over then may be gone for good: a clock
   * that was set back before the next start opens such a window once more.
   */
  get latestMs(): number {
    return Math.max(this.machine.latestMs, ...this.shardLives.map(({ model }) => model?.nowMs ?? 0))
  }

  private end(): void {
    this.machine.latestMs = this.latestMs
    this.main.die()
    for (const { thread } of this.http) thread.die()
    for (const { thread } of this.shardLives) thread.die()
  }

  private openHttpThread(
    thread: Thread,
    shards: Shards,
    { takesUpUsage }: { takesUpUsage: boolean },
  ): HttpThread {
    const { postgres, machine, options } = this
    const { timers } = thread
    const clock = neverBackwards(this.clock)
    const timeoutMs = 2_000
    const pool = postgres.pool(thread, timeoutMs)
    const changes = new Changes({ processId: this.name, confirmTimeoutMs: 2_000, timers })
    const ports = shards.connect()
    for (const port of ports) if (port instanceof Port) port.giveTo(thread)
    const limiter = new LimiterRouter({ ports, hashSecret: 'secret', clock, replyTimeoutMs: 2_000, timers })
    const recorder = new UsageRecorder({
      sql: postgres.pool(thread, 10_000).sql,
      writerId: `${this.name}:${thread.name}`,
      spills: machine.spills,
      flushEveryMs: options.flushEveryMs,
      clock,
      timers,
      cellsMax: options.usageCellsMax,
      takesUp: takesUpUsage,
    })
    recorder.start()
    const keys = new KeyLookup(pool.sql, changes, { bytesMax: 2 ** 20, missingMax: 20 }, timers)
    const credits = new CreditSpender(pool.sql, clock, { timeoutMs, timers })
    const ledger = this.usage
    const usage = {
      recordVerification(event) {
        ledger.addVerification(event)
        recorder.recordVerification(event)
      },
      recordRatelimit(event) {
        ledger.addRatelimit(event)
        recorder.recordRatelimit(event)
      },
    } satisfies Pick<UsageRecorder, 'recordVerification' | 'recordRatelimit'>
    return {
      server: this,
      thread,
      clock,
      changes,
      limiter,
      recorder,
      usage,
      database: new Database(pool, changes, { notifies: true }),
      verifier: {
        sql: pool.sql,
        clock,
        keys,
        limiter,
        credits,
        usage: usage as unknown as UsageRecorder, // recording is all a verification does with it
      },
      waiting: new Set(),
    }
  }

  private startShard(): ShardLife {
    const name = `${this.name} shard ${this.shardLives.length}`
    const shard = this.options.shards === 0 ? new ShardOnMain(this, name) : new ShardThread(this, name)
    this.shardLives.push(shard)
    return shard
  }

  private makeChannel(owner: Thread): { port1: Port; port2: Port } {
    return makeChannel(this.world, owner, {
      delay: this.options.messageDelay,
      onPosted: (from, message) => this.observe(from, message),
    })
  }

  private makeSameThreadChannel() {
    const channel = makeSameThreadChannel(this.main.timers)
    for (const port of [channel.port1, channel.port2]) {
      const post = port.postMessage.bind(port)
      port.postMessage = (message) => {
        this.observe(port, message)
        post(message)
      }
    }
    return channel
  }

  /** Calls and answers pass by as lists of numbers; everything else is no list. */
  private observe(from: Port | SameThreadPort, message: unknown): void {
    if (!Array.isArray(message) || from.peer === null) return
    const asked = this.waitingCalls.get(from)
    const shard = this.shardLives.find((each) => each.hasPort(from))
    if (shard === undefined) {
      const waiting = this.waitingCalls.get(from.peer)
      if (waiting === undefined) this.waitingCalls.set(from.peer, [message])
      else waiting.push(message)
      return
    }
    const calls = asked?.shift()
    const wrong =
      calls === undefined || shard.model === null
        ? 'answers that nobody asked for'
        : shard.model.check(calls, message)
    if (wrong !== null) this.world.fail(`${shard.name}: ${wrong}`)
  }
}

export type HttpThread = {
  readonly server: Server
  readonly thread: Thread
  readonly clock: () => number
  readonly changes: Changes
  readonly limiter: LimiterRouter
  readonly recorder: UsageRecorder
  readonly usage: Pick<UsageRecorder, 'recordVerification' | 'recordRatelimit'>
  readonly database: Database
  readonly verifier: Verifier
  /** Calls that have not been answered. */
  readonly waiting: Set<{ readonly what: string; readonly sinceMs: number }>
}

/** A shard from its start to its end, as the simulation sees it. */
export type ShardLife = {
  readonly name: string
  /** Where it runs. */
  readonly thread: Thread
  /** Since it was set up. */
  readonly model: ShardModel | null
  /** It has ended otherwise than by a stop for which it flushed or spilled all it had. */
  readonly hasCrashed: boolean
  readonly isDead: boolean
  hasPort(port: Port | SameThreadPort): boolean
  /** Dies by itself. */
  crash(): void
}

/** A worker as the main thread sees it, and the thread inside with the program's own shard. */
class ShardThread implements ShardLife {
  readonly thread: Thread
  model: ShardModel | null = null
  hasCrashed = false
  private hasStopped = false
  onmessage: ((event: { data: unknown }) => void) | null = null
  onerror: ((event: { message: string }) => void) | null = null
  private readonly outside: Port
  private closeListener: () => void = () => {}

  constructor(
    private readonly server: Server,
    readonly name: string,
  ) {
    const { world, postgres, machine } = server
    const thread = new Thread(world, name)
    this.thread = thread
    const channel = makeChannel(world, server.main, { delay: server.options.messageDelay })
    const { port1: outside, port2: inside } = channel
    inside.giveTo(thread)
    this.outside = outside
    outside.onmessage = (event) => this.onmessage?.(event)
    const shard = new Shard({
      say: (message: FromShard) => {
        if (message.kind === 'stopped') this.hasStopped = true
        inside.postMessage(message)
      },
      timers: thread.timers,
      openStore: () => postgres.windowStore(thread, this),
      openSpills: () => machine.spills,
      collectGarbage: () => {},
    })
    inside.onmessage = ({ data }) => {
      const message = data as ToShard // what Shards sends
      this.model = modelAfter(message, this.model, server)
      shard.receive(message).catch((cause: unknown) => world.fail(`${name} failed`, cause))
    }
  }

  get isDead(): boolean {
    return this.thread.isDead
  }

  hasPort(port: Port | SameThreadPort): boolean {
    return port instanceof Port && port.owner === this.thread
  }

  postMessage(message: unknown, transfer: readonly Port[] = []): void {
    this.outside.postMessage(message, transfer)
  }

  addEventListener(kind: 'close', listener: () => void): void {
    kind satisfies 'close'
    this.closeListener = listener
  }

  /** A thread that stood still for so long that a stop did not wait for it is cut off: as good as crashed, and said so. */
  terminate(): void {
    if (!this.hasStopped) this.hasCrashed = true
    this.thread.die()
  }

  crash(): void {
    if (this.thread.isDead) return
    this.server.world.note(() => `${this.name}: crashes`)
    this.server.shardDeaths++
    this.hasCrashed = true
    this.thread.die()
    this.server.world.after(this.server.options.messageDelay(), this.server.main, () => {
      this.onerror?.({ message: 'crashed' })
      this.closeListener()
    })
  }
}

/** The program's own shard on the main thread, as a process with one core has it. */
class ShardOnMain implements ShardLife {
  readonly thread: Thread
  model: ShardModel | null = null
  isDead = false
  private hasStopped = false
  onmessage: ((event: { data: FromShard }) => void) | null = null
  onerror: ((event: { message: string }) => void) | null = null
  private readonly ports = new Set<SameThreadPort>()
  private readonly inner: SameThread

  constructor(
    private readonly server: Server,
    readonly name: string,
  ) {
    const { main, postgres, machine } = server
    this.thread = main
    this.inner = new SameThread({
      timers: main.timers,
      openStore: () => postgres.windowStore(main, this),
      openSpills: () => machine.spills,
      collectGarbage: () => {},
    })
    this.inner.onmessage = (event) => {
      if (event.data.kind === 'stopped') this.hasStopped = true
      this.onmessage?.(event)
    }
    this.inner.onerror = (event) => this.onerror?.(event)
  }

  get hasCrashed(): boolean {
    return this.isDead && !this.hasStopped
  }

  hasPort(port: Port | SameThreadPort): boolean {
    return port instanceof SameThreadPort && this.ports.has(port)
  }

  postMessage(message: ToShard): void {
    this.model = modelAfter(message, this.model, this.server)
    if (message.kind === 'connect') this.ports.add(message.port as unknown as SameThreadPort) // made above
    this.inner.postMessage(message)
  }

  addEventListener(kind: 'close'): void {
    kind satisfies 'close'
  }

  terminate(): void {
    this.isDead = true
    this.inner.terminate()
  }

  /** A message comes that it cannot read, which ends it before `crash` returns. */
  crash(): void {
    const [port] = this.ports
    if (this.isDead || port === undefined || port.peer === null) return
    const { world } = this.server
    world.note(() => `${this.name}: crashes`)
    this.server.shardDeaths++
    port.peer.postMessage(null)
    if (!this.isDead) world.fail(`${this.name} has not noticed that it failed`)
  }
}

/** What a shard must know once it has been told that. */
function modelAfter(message: ToShard, model: ShardModel | null, { options }: Server): ShardModel | null {
  if (message.kind === 'start') return new ShardModel(message.setup, options)
  if (message.kind === 'stats') model?.advance(message.nowMs)
  return model
}

/** 23:59 of a day: midnight, and with it refills and another hour, comes within a run. */
export const EPOCH_MS = Date.UTC(2026, 10, 21, 23, 59, 30)
