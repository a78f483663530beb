import { openSpills, type Spills } from '../../data-dir/spill.ts'
import type { DatabaseAddress } from '../../db/connect.ts'
import { directLinks, type Link, type LinkEnd, toLink, workerLink } from '../../lib/link.ts'
import { ManagedThread } from '../../lib/managed-thread.ts'
import { systemTimers, type Timers } from '../../lib/timers.ts'
import { log } from '../../log.ts'
import { replaySpills } from '../flush/spilled-windows.ts'
import { WindowStore } from '../flush/store.ts'
import type {
  RouterEnds,
  ShardFleet,
  ShardLink,
  ShardRequests,
  ShardSetup,
  ShardStats,
  ToRouter,
} from './protocol.ts'
import { SameThread } from './same-thread.ts'
import { Shard } from './shard.ts'

/** The shards of this process, for the main thread. */
export type Shards = {
  /** Connects one more `LimiterRouter`. Where shards have threads, all ends are ports. */
  connect(): RouterEnds
  /** Flushes, or writes a spill file, and ends the threads within {@link STOP_MS} in any case. */
  stop(): Promise<void>
  /** Resolves when everything counted so far is in Postgres. For tests. */
  flush(): Promise<void>
  /** Marks all open windows as not written: the database has lost some that were. */
  rewrite(): Promise<void>
  /** So many servers share limits now. */
  servers(count: number): void
  /** One entry a shard, null = it is dead. Windows that end up to `nowMs` are over. For metrics. */
  stats(nowMs: number): Promise<(ShardStats | null)[]>
}

/** How shards are started and connected; the simulation and tests have their own. */
export type ShardPlatform = {
  timers: Timers
  startThread(): ShardLink
  /** Both ends of a new link. */
  makeLink(): [LinkEnd, LinkEnd]
  openStore(address: DatabaseAddress): Pick<WindowStore, 'segmentsMax' | 'writeSegments' | 'list' | 'close'>
  openSpills(dataDir: string, of: DatabaseAddress): Pick<Spills, 'read'>
}

const threads: ShardPlatform = {
  timers: systemTimers,
  startThread: () => workerLink(new Worker(new URL('./shard.worker.ts', import.meta.url))),
  makeLink: () => {
    const { port1, port2 } = new MessageChannel()
    return [port1, port2]
  },
  openStore: (address) => new WindowStore(address),
  openSpills,
}

const noThread: ShardPlatform = {
  ...threads,
  startThread: () => new SameThread(new Shard(), systemTimers),
  makeLink: () => directLinks(systemTimers),
}

/**
 * Sends the windows of spill files, then starts the shards, which restore open windows.
 * @param options.count Number of threads. 0 = one shard on the calling thread; then only that thread may have a router.
 * @param options.memoryBytes Of all shards together.
 * @param options.now Unix ms. Windows that ended before are not restored.
 * @throws Error when Postgres is not available or a shard does not start. No shard is left running then.
 */
export async function startShards(
  options: {
    count: number
    address: DatabaseAddress
    nodeId: string
    hashSecret: string
    flushEveryMs: number
    dataDir: string
    memoryBytes: number
    now: number
    fleet?: ShardFleet | null
  },
  platform = options.count === 0 ? noThread : threads,
): Promise<Shards> {
  await sendSpilledWindows(options, platform)
  const count = Math.max(1, options.count)
  const shards = Array.from({ length: count }, (_, index) => {
    const setup: ShardSetup = {
      index,
      count,
      address: options.address,
      nodeId: options.nodeId,
      flushEveryMs: options.flushEveryMs,
      dataDir: options.dataDir,
      memoryBytes: Math.floor(options.memoryBytes / count),
      nowMs: options.now,
      fleet: options.fleet ?? null,
    }
    return new ShardThread(setup, platform)
  })
  try {
    await Promise.all(shards.map((shard) => shard.start()))
  } catch (cause) {
    await Promise.all(shards.map((shard) => shard.end()))
    throw cause
  }

  // Links to the routers. After a shard's restart each router gets a new link to it.
  const isFleet = (options.fleet ?? null) !== null
  const controls = new Set<Link<ToRouter>>()
  for (const [index, shard] of shards.entries()) {
    shard.onRestarted = () => {
      for (const control of controls) {
        const end = shard.connect('connect')
        if (!isFleet) control.post({ shard: index, end }, [end])
        else {
          const local = shard.connect('connectLocal')
          control.post({ shard: index, end, local }, [end, local])
        }
      }
    }
  }
  return {
    connect() {
      const [ours, theirs] = platform.makeLink()
      const control = toLink<ToRouter, never>(ours)
      controls.add(control)
      control.onClosed = () => controls.delete(control)
      const ends: RouterEnds = { shards: shards.map((shard) => shard.connect('connect')), control: theirs }
      if (isFleet) ends.local = shards.map((shard) => shard.connect('connectLocal'))
      return ends
    },
    async stop() {
      await Promise.all(shards.map((shard) => shard.stop()))
      for (const control of controls) control.close()
    },
    async flush() {
      await Promise.all(shards.map((shard) => shard.flush()))
    },
    async rewrite() {
      await Promise.all(shards.map((shard) => shard.rewrite()))
    },
    servers(count) {
      for (const shard of shards) shard.servers(count)
    },
    stats: (nowMs) => Promise.all(shards.map((shard) => shard.stats(nowMs))),
  }
}

/** One shard and its thread. While it is dead, its links are closed and the routers fail its calls. */
class ShardThread {
  /** Called when it runs again after a death. */
  onRestarted = () => {}
  private readonly thread: ManagedThread<ShardRequests>
  private readonly index: number

  constructor(
    private readonly setup: ShardSetup,
    private readonly platform: ShardPlatform,
  ) {
    const { index } = setup
    this.index = index
    this.thread = new ManagedThread<ShardRequests>({
      timers: platform.timers,
      open: () => platform.startThread(),
      setUp: async (thread) => {
        const windowsRestored = await thread.ask('start', setup, { timeoutMs: START_MS })
        log('info', 'shard_started', 'a limiter shard started', { shard: index, windowsRestored })
      },
      restartDelaysMs: RESTART_DELAYS_MS,
      onDeath: (cause) =>
        log(
          'error',
          'shard_died',
          'a limiter shard died and restarts; its counts since the last flush are lost',
          { shard: index, cause },
        ),
      onRestarted: () => this.onRestarted(),
      onRestartFailing: (cause) =>
        log(
          'error',
          'shard_restart_failing',
          'a limiter shard cannot be restarted; calls for its rate limits fail',
          {
            shard: index,
            cause,
          },
        ),
    })
  }

  /** @throws Error when it does not start. */
  async start(): Promise<void> {
    await this.thread.start().catch((cause: Error) => {
      throw new Error(`shard ${this.index} does not start: ${cause.message}`, { cause })
    })
  }

  /** @returns the router's end of a new link. */
  connect(kind: 'connect' | 'connectLocal'): LinkEnd {
    const [router, shard] = this.platform.makeLink()
    // For a dead shard the other end is closed at once, which tells the router.
    if (this.thread.isRunning) this.thread.send(kind, shard, [shard])
    else shard.close()
    return router
  }

  flush(): Promise<void> {
    return this.thread.ask('flush', null, { timeoutMs: FLUSH_MS })
  }

  servers(count: number): void {
    if (this.setup.fleet !== null) this.setup.fleet = { ...this.setup.fleet, servers: count } // for a restart
    this.thread.send('servers', count)
  }

  /** One that is dead, or does not answer in time, restores what the database has. */
  async rewrite(): Promise<void> {
    if (this.thread.isRunning) await this.thread.ask('rewrite', null, { timeoutMs: FLUSH_MS }).catch(() => {}) // see above
  }

  /** @returns null where it is dead or does not answer in time. */
  async stats(nowMs: number): Promise<ShardStats | null> {
    if (!this.thread.isRunning) return null
    return await this.thread.ask('stats', nowMs, { timeoutMs: STATS_MS }).catch(() => null)
  }

  async stop(): Promise<void> {
    try {
      const windows = (await this.thread.stop(STOP_MS)) ?? 0
      if (windows > 0)
        log(
          'warn',
          'windows_spilled',
          'rate limit windows could not be written to the database; they are in a spill file, and the next start sends them',
          { shard: this.index, windows },
        )
    } catch (cause) {
      log(
        'error',
        'shard_stop_failed',
        'a limiter shard did not stop in time; its counts since the last flush may be lost',
        { cause },
      )
    }
  }

  /** Ends it where it stands. */
  end(): Promise<void> {
    return this.thread.end()
  }
}

async function sendSpilledWindows(
  options: { dataDir: string; address: DatabaseAddress; now: number },
  platform: ShardPlatform,
): Promise<void> {
  const store = platform.openStore(options.address)
  try {
    await replaySpills(store, platform.openSpills(options.dataDir, options.address), options.now)
  } finally {
    await store.close()
  }
}

/** Renewed while the shard restores windows: a million take seconds, and there may be many millions. */
const START_MS = 90_000
const FLUSH_MS = 30_000
const STATS_MS = 1_000
const STOP_MS = 8_000
const RESTART_DELAYS_MS = [0, 1_000]
