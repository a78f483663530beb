import { neverBackwards } from '../../src/lib/clock.ts'
import { DirectLink, directLinks, type Link, type LinkEnd } from '../../src/lib/link.ts'
import { carryOut, type FromThread, type Handlers, type ToThread } from '../../src/lib/managed-thread.ts'
import type { ShardLink, ShardRequests } from '../../src/limiter/threads/protocol.ts'
import { LimiterRouter } from '../../src/limiter/threads/router.ts'
import { SameThread } from '../../src/limiter/threads/same-thread.ts'
import { Shard } from '../../src/limiter/threads/shard.ts'
import { type Shards, startShards } from '../../src/limiter/threads/shards.ts'
import { Database } from '../../src/records/database.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'
import { CreditSpender } from '../../src/verify/credits.ts'
import { KeyLookup } from '../../src/verify/lookup.ts'
import type { Verifier } from '../../src/verify/verify.ts'
import { UsageLedger } from './ledger.ts'
import { ShardModel } from './limiter-model.ts'
import type { Postgres, SpillFolder } from './postgres.ts'
import { type Delay, makeLink, Port, Thread, type World } from './world.ts'

/** The parts of a machine that stay when its server is restarted. */
export type Machine = {
  readonly nodeId: string
  readonly spills: SpillFolder
  /** Error of its clock, ms. */
  clockOffMs: number
  /** The latest time that any of its servers has seen, in any life; Unix ms. */
  latestMs: number
  lives: number
}

export type ServerOptions = {
  httpThreads: number
  /** Number of threads; 0 = one shard on the main thread. */
  shards: number
  flushEveryMs: number
  memoryBytes: number
  usageCellsMax: number
  isExact: boolean
  messageDelay: Delay
}

/**
 * One process from start to end: the program's own router, shards, caches, credits and usage, on the simulation's threads,
 * channels, timers and database. With one HTTP thread the shard runs on it in half of the lives. `server/deps.ts` and
 * `server/server.ts` assemble the same parts in the real program.
 */
export class Server {
  readonly name: string
  readonly main: Thread
  readonly http: HttpThread[] = []
  readonly usage = new UsageLedger()
  shards: Shards | null = null
  state: 'starting' | 'serving' | 'stopping' | 'stopped' | 'dead' = 'starting'
  /** Running and earlier shards. */
  readonly shardLives: ShardLife[] = []
  /** Until when one of its threads is, or was, paused. */
  pausedUntilMs = Number.NEGATIVE_INFINITY
  /** When its stop began. */
  stoppingSinceMs = Number.POSITIVE_INFINITY
  /** Number of shards that died. */
  shardDeaths = 0
  private readonly waitingCalls = new WeakMap<object, number[][]>()

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

  /** @throws when the database is not available. */
  async start(): Promise<void> {
    const { world, postgres, machine, options, main, clock } = this
    world.note(() => `${this.name}: starts, its clock is ${machine.clockOffMs} ms off`)
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
        startThread: () => this.startShard().link,
        makeLink: () => (options.shards === 0 ? this.makeDirectLinks() : this.makeLink(main)),
        openStore: () => postgres.windowStore(main),
        openSpills: () => machine.spills,
      },
    )
    this.shards = shards
    const threads = Array.from({ length: options.httpThreads }, (_, i) =>
      i === 0 ? main : new Thread(world, `${this.name} http ${i}`),
    )
    for (const thread of threads)
      this.http.push(this.openHttpThread(thread, shards, { recoversUsage: thread === main }))
    for (const [i, one] of this.http.entries())
      for (const other of this.http.slice(i + 1)) {
        const [toOther, toOne] = this.makeLink(main)
        toOther.giveTo(one.thread)
        toOne.giveTo(other.thread)
        one.changes.addPeer(toOther)
        other.changes.addPeer(toOne)
      }
    await this.http[0]?.changes.listen(postgres.listen(main))
    if (this.state !== 'starting') return
    this.state = 'serving'
    world.note(() => `${this.name}: serves`)
  }

  /** In the order of a real stop. */
  async stop(): Promise<void> {
    this.state = 'stopping'
    this.stoppingSinceMs = this.world.nowMs
    this.world.note(() => `${this.name}: stops`)
    // A stopping listener accepts no calls and waits for the running ones.
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
   * The latest time that any part of it, or of an earlier life, has seen. Windows that had ended by then may be gone for
   * good: a clock that was set back before the next start opens such a window again.
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
    { recoversUsage }: { recoversUsage: boolean },
  ): HttpThread {
    const { postgres, machine, options } = this
    const { timers } = thread
    const clock = neverBackwards(this.clock)
    const timeoutMs = 2_000
    const pool = postgres.pool(thread, timeoutMs)
    const changes = new Invalidations({ processId: this.name, confirmTimeoutMs: 2_000, timers })
    const ends = shards.connect()
    for (const end of [...ends.shards, ends.control]) if (end instanceof Port) end.giveTo(thread)
    const limiter = new LimiterRouter({ ends, hashSecret: 'secret', clock, replyTimeoutMs: 2_000, timers })
    const recorder = new UsageRecorder({
      sql: postgres.pool(thread, 10_000).sql,
      writerId: `${this.name}:${thread.name}`,
      spills: machine.spills,
      flushEveryMs: options.flushEveryMs,
      clock,
      timers,
      countsMax: options.usageCellsMax,
      recovers: recoversUsage,
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
        usage: usage as unknown as UsageRecorder, // recording is all that a verification does with it
        recent: null,
      },
      waiting: new Set(),
    }
  }

  private startShard(): ShardLife & { readonly link: ShardLink } {
    const name = `${this.name} shard ${this.shardLives.length}`
    const shard = this.options.shards === 0 ? new ShardOnMain(this, name) : new ShardThread(this, name)
    this.shardLives.push(shard)
    return shard
  }

  private makeLink(owner: Thread): [Port, Port] {
    return makeLink(this.world, owner, {
      delay: this.options.messageDelay,
      onPosted: (from, message) => this.observe(from, message),
    })
  }

  private makeDirectLinks(): [LinkEnd, LinkEnd] {
    const links = directLinks(this.main.timers)
    for (const link of links) {
      const post = link.post.bind(link)
      link.post = (message) => {
        this.observe(link, message)
        post(message)
      }
    }
    return links
  }

  /** Calls and answers are lists of numbers; other messages are not lists. */
  private observe(from: Link & { readonly peer: Link | null }, message: unknown): void {
    if (!Array.isArray(message) || from.peer === null) return
    const asked = this.waitingCalls.get(from)
    const shard = this.shardLives.find((each) => each.hasEnd(from))
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
        : shard.model.check(from, calls, message)
    if (wrong !== null) this.world.fail(`${shard.name}: ${wrong}`)
  }
}

export type HttpThread = {
  readonly server: Server
  readonly thread: Thread
  readonly clock: () => number
  readonly changes: Invalidations
  readonly limiter: LimiterRouter
  readonly recorder: UsageRecorder
  readonly usage: Pick<UsageRecorder, 'recordVerification' | 'recordRatelimit'>
  readonly database: Database
  readonly verifier: Verifier
  /** Unanswered calls. */
  readonly waiting: Set<{ readonly what: string; readonly sinceMs: number }>
}

/** A shard from its start to its end, as the simulation sees it. */
export type ShardLife = {
  readonly name: string
  /** The thread that it runs on. */
  readonly thread: Thread
  /** Null until it is set up. */
  readonly model: ShardModel | null
  /** It ended in another way than by a stop that flushed or spilled everything. */
  readonly hasCrashed: boolean
  readonly isDead: boolean
  hasEnd(link: Link): boolean
  /** Makes it die. */
  crash(): void
}

/** A shard with a thread of its own. */
class ShardThread implements ShardLife {
  readonly thread: Thread
  readonly link: ShardLink
  model: ShardModel | null = null
  hasCrashed = false
  hasStopped = false

  constructor(
    private readonly server: Server,
    readonly name: string,
  ) {
    const { world, postgres, machine, main } = server
    const thread = new Thread(world, name)
    this.thread = thread
    const [outside, inside] = makeLink(world, main, { delay: server.options.messageDelay })
    inside.giveTo(thread)
    const handlers = handlersOf(
      new Shard({
        timers: thread.timers,
        openStore: () => postgres.windowStore(thread, this),
        openSpills: () => machine.spills,
        collectGarbage: () => {},
      }),
      this,
      server,
    )
    inside.onMessage = (message) => {
      const request = message as ToThread<ShardRequests> // sent by its owner
      carryOut(handlers, request, (said) => inside.post(said)).catch((cause: unknown) =>
        world.fail(`${name} failed`, cause),
      )
    }
    const link: ShardLink = {
      isDirect: false,
      post: (message, transfer) => outside.post(message, transfer),
      onMessage: () => {},
      onClosed: () => {},
      // A paused thread for which a stop did not wait is terminated: like a crash, and recorded as one.
      close: () => this.end(),
    }
    outside.onMessage = (message) => link.onMessage(message as FromThread<ShardRequests>) // sent by the shard
    this.link = link
  }

  get isDead(): boolean {
    return this.thread.isDead
  }

  hasEnd(link: Link): boolean {
    return link instanceof Port && link.owner === this.thread
  }

  crash(): void {
    if (this.thread.isDead) return
    this.server.world.note(() => `${this.name}: crashes`)
    this.server.shardDeaths++
    this.hasCrashed = true
    this.end(new Error('crashed'))
  }

  private end(cause?: Error): void {
    if (!this.hasStopped) this.hasCrashed = true
    if (this.thread.isDead) return
    this.thread.die()
    const { world, options, main } = this.server
    world.after(options.messageDelay(), main, () => this.link.onClosed(cause))
  }
}

/** The program's own shard on the main thread, as with one core. */
class ShardOnMain implements ShardLife {
  readonly thread: Thread
  readonly link: SameThread
  model: ShardModel | null = null
  hasStopped = false
  private readonly ends = new Set<LinkEnd>()

  constructor(
    private readonly server: Server,
    readonly name: string,
  ) {
    const { main, postgres, machine } = server
    this.thread = main
    const shard = new Shard({
      timers: main.timers,
      openStore: () => postgres.windowStore(main, this),
      openSpills: () => machine.spills,
      collectGarbage: () => {},
    })
    const handlers = handlersOf(shard, this, server)
    const connect = (end: LinkEnd) => {
      this.ends.add(end)
      return handlers.connect(end, () => {})
    }
    this.link = new SameThread({ ...handlers, connect, abandon: () => shard.abandon() }, main.timers)
  }

  get isDead(): boolean {
    return this.link.isClosed
  }

  get hasCrashed(): boolean {
    return this.isDead && !this.hasStopped
  }

  hasEnd(link: Link): boolean {
    return this.ends.has(link)
  }

  /** Sends a message that it cannot read, which ends it before `crash` returns. */
  crash(): void {
    const [end] = this.ends
    if (this.isDead || !(end instanceof DirectLink) || end.peer === null) return
    const { world } = this.server
    world.note(() => `${this.name}: crashes`)
    this.server.shardDeaths++
    end.peer.post(null)
    if (!this.isDead) world.fail(`${this.name} has not noticed that it failed`)
  }
}

/** The shard's handlers, with records for the simulation: what the shard must know by then, and how it stops. */
function handlersOf(
  shard: Shard,
  life: { readonly name: string; model: ShardModel | null; hasStopped: boolean },
  { world, options }: Server,
): Handlers<ShardRequests> {
  return {
    start: (setup, working) => {
      life.model = new ShardModel(setup, options)
      return shard.start(setup, working)
    },
    connect: (end) => shard.connect(end),
    connectLocal: (end) => shard.connectLocal(end),
    flush: () => shard.flush(),
    rewrite: () => shard.rewrite(),
    servers: (count) => shard.servers(count),
    stats: (nowMs) => {
      life.model?.advance(nowMs)
      return shard.stats(nowMs)
    },
    stop: async () => {
      try {
        const spilled = await shard.stop()
        life.hasStopped = true
        return spilled
      } catch (cause) {
        world.fail(`${life.name} failed to stop`, cause)
        throw cause
      }
    },
  }
}

/** 23:59 of a day, so that midnight, with refills and a new hour, comes during a run. */
export const EPOCH_MS = Date.UTC(2026, 10, 21, 23, 59, 30)
