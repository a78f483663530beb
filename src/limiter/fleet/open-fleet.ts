import { connect, type DatabaseAddress } from '../../db/connect.ts'
import { Episode } from '../../episodes.ts'
import { bucketsOfShard } from '../../fleet/buckets.ts'
import { LEARN_TIMEOUTS, openEngine } from '../../fleet/open-engine.ts'
import { nextServerId } from '../../fleet/store.ts'
import type { Cancel, Timers } from '../../lib/timers.ts'
import { log } from '../../log.ts'
import type { WindowTable } from '../table/window-table.ts'
import type { ShardFleet, ShardSetup } from '../threads/protocol.ts'
import { type FleetCondition, FleetShard } from './fleet-shard.ts'

/** The shared limits of one shard while it runs: its engine, what it holds there, and what is logged about it. */
export class OpenFleet {
  readonly shard: FleetShard
  #servers: number
  readonly #cancelWatch: Cancel
  readonly #away = new Episode('fleet')
  readonly #learning = new Episode('fleet learning')
  #isForeign = false
  /** Of the shard's statistics, when the engine went away. */
  #decisionsBefore = 0

  /**
   * Takes a new server id, opens the engine and speaks to all its buckets, so that the first calls need not wait for an engine
   * that learns. An engine that does not answer is no reason not to start: the outage rule decides.
   * @throws Error when the database gives no id.
   */
  static async open(
    setup: Pick<ShardSetup, 'address' | 'index' | 'count' | 'memoryBytes'>,
    fleet: ShardFleet,
    parts: { timers: Timers; table: Pick<WindowTable, 'bytes'> },
  ): Promise<OpenFleet> {
    const serverId = await newServerId(setup.address)
    const engine = await openEngine(fleet, { database: setup.address, serverId, fleetId: fleet.id })
    const opened = new OpenFleet(setup, fleet, engine, parts)
    await opened.shard.ready(LEARN_TIMEOUTS * fleet.timeoutMs + CONNECT_MS)
    return opened
  }

  private constructor(
    { index, count, memoryBytes }: Pick<ShardSetup, 'index' | 'count' | 'memoryBytes'>,
    fleet: ShardFleet,
    engine: Awaited<ReturnType<typeof openEngine>>,
    { timers, table }: { timers: Timers; table: Pick<WindowTable, 'bytes'> },
  ) {
    const { leaseMs, timeoutMs, outage, nowMs } = fleet
    this.#servers = fleet.servers
    this.shard = new FleetShard({
      engine,
      timers,
      buckets: bucketsOfShard(index, count, engine.buckets),
      nowMs,
      leaseMs,
      timeoutMs,
      outage,
      servers: () => this.#servers,
      // One budget for both kinds of counters.
      get cellsMax() {
        return Math.floor(Math.max(0, memoryBytes - table.bytes) / CELL_BYTES)
      },
    })
    this.#cancelWatch = timers.every(WATCH_MS, () => this.#watch())
  }

  setServers(count: number): void {
    this.#servers = count
  }

  get stats() {
    return { ...this.shard.stats, condition: this.shard.condition }
  }

  async stop(): Promise<void> {
    this.#cancelWatch()
    await this.shard.stop(STOP_MS)
    this.#away.end()
    this.#learning.end()
  }

  abandon(): void {
    this.#cancelWatch()
    this.shard.abandon()
  }

  #watch(): void {
    const { condition, failure, stats } = this.shard
    if (condition === 'away') {
      if (this.#away.begin()) {
        this.#decisionsBefore = stats.outageDecisions
        log('warn', 'fleet_away', 'the engine of shared limits does not answer; the outage rule decides', {
          fault: failure?.fault,
          cause: failure?.cause.message,
        })
      }
      if (failure?.fault === 'foreign' && !this.#isForeign) {
        this.#isForeign = true
        log('error', 'fleet_foreign', 'another fleet uses the engine of shared limits now')
      }
      return
    }
    this.#isForeign = false
    const ended = this.#away.end()
    if (ended !== null)
      log('info', 'fleet_back', 'the engine of shared limits answers again', {
        awayMs: ended.lastedMs,
        decided: stats.outageDecisions - this.#decisionsBefore,
      })
    if (condition === 'learning') {
      if (this.#learning.begin())
        log(
          'info',
          'fleet_learning',
          'the engine of shared limits has forgotten, and servers tell it what they hold',
        )
    } else this.#learning.end()
  }
}

const away = new Episode('fleet')
const learning = new Episode('fleet learning')

/** What the engine is to the shards of this process, whichever thread asks. */
export const fleetCondition = (): FleetCondition => (away.isOn ? 'away' : learning.isOn ? 'learning' : 'ok')

async function newServerId(address: DatabaseAddress): Promise<number> {
  const sql = connect(address, { connectionsMax: 1 })
  try {
    return await nextServerId(sql)
  } finally {
    await sql.end({ timeout: 1 }).catch(() => {}) // it served only this
  }
}

/** Of one counter with what is noted about it: 200 000 took 592 each of resident memory, lists of leases not included. */
const CELL_BYTES = 768
const CONNECT_MS = 2_000
const WATCH_MS = 250
/** Of the time of a stop, as long as the flush of windows has. */
const STOP_MS = 3_000
