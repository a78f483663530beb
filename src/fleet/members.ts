import { hostname } from 'node:os'
import { type AnySql, connect, type DatabaseAddress } from '../db/connect.ts'
import { StartError } from '../errors.ts'
import { type FleetAddress, fleetName, separation } from '../lib/fleet-url.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import type { Engine } from './engine.ts'
import { bucketsOf, type FleetOptions, openEngine } from './open-engine.ts'
import {
  beatFleet,
  databaseTime,
  type FleetMember,
  fleetMembers,
  leaveFleet,
  lockFleet,
  nextServerId,
  readFleet,
  SEEN_MS,
  writeFleet,
} from './store.ts'

/** What a server has when it may share limits. */
export type Joined = {
  /** The engine's id, which shards tell it. */
  fleetId: string
  /** Servers that share limits, this one included. */
  servers: number
  /** Time of the database, Unix ms. */
  nowMs: number
}

/**
 * Makes sure that this server counts on the engine that the others on its database count on, and writes its row. Two engines
 * would be two budgets. While a server that shares limits runs, the engine is that one's; afterwards the first to start says
 * which it is. Starts come one after the other.
 * @throws StartError when it is another engine, or cannot be asked.
 */
export async function joinFleet(
  fleet: FleetOptions,
  { database, processId }: { database: DatabaseAddress; processId: string },
): Promise<Joined> {
  const sql = connect(database, { connectionsMax: 1 })
  try {
    const engine = await openEngine(fleet, { database, serverId: await nextServerId(sql) })
    try {
      const joined = await sql.begin(async (tx) => {
        await lockFleet(tx)
        const fleetId = await agree(tx, engine, fleet)
        const servers = await beatFleet(tx, memberOf(fleet, processId))
        return { fleetId, servers, nowMs: Math.floor(await databaseTime(tx)) }
      })
      for (const text of await engine.warnings())
        log('warn', 'fleet_warning', 'the engine that counts shared limits should be changed', { text })
      return joined
    } finally {
      await engine.close()
    }
  } finally {
    await sql.end({ timeout: 2 })
  }
}

/** @returns the engine's id, which both sides have now. */
async function agree(sql: AnySql, engine: Engine, fleet: FleetOptions): Promise<string> {
  const { address } = fleet
  const row = await readFleet(sql)
  const others = await fleetMembers(sql)
  const [other] = others
  const here = fleetName(address)
  if (other !== undefined && (row?.kind !== address.kind || row.buckets !== bucketsOf(address)))
    throw differs(here, other)
  const fleetId = row?.engineId ?? `fleet_${crypto.randomUUID()}`
  // Others that run write the id again and again. One that does not appear is not written there.
  if (other !== undefined && address.kind === 'redis') await untilFound(sql, engine, fleetId, { address })
  const claim = await untilClaimed(engine, fleetId)
  if (claim.kind === 'failed') throw unasked(here, claim.cause)
  if (claim.fleetId !== fleetId) throw foreign(address)
  await writeFleet(sql, { engineId: fleetId, kind: address.kind, buckets: bucketsOf(address) })
  return fleetId
}

/**
 * Waits until the engine has the id that the others write to it several times a second. Rows of servers that were killed are
 * waited for: the engine may have lost the id with them.
 */
async function untilFound(
  sql: AnySql,
  engine: Engine,
  fleetId: string,
  { address, began = performance.now() }: { address: FleetAddress; began?: number },
): Promise<void> {
  const here = fleetName(address)
  for (;;) {
    const found = await engine.found()
    if (found.kind === 'found' && found.fleetId === fleetId) return
    if (found.kind === 'found' && found.fleetId !== null) throw foreign(address)
    const waitedMs = performance.now() - began
    const [other] = await fleetMembers(sql)
    if (other === undefined) return
    if (waitedMs >= APPEARS_MS) {
      if (found.kind === 'failed') throw unasked(here, found.cause)
      if (other.seenMsAgo < waitedMs) throw differs(here, other) // it lives, and writes its id elsewhere
    }
    await Bun.sleep(POLL_MS)
  }
}

/** A connection takes a moment. */
async function untilClaimed(engine: Engine, fleetId: string): Promise<Awaited<ReturnType<Engine['claim']>>> {
  const until = performance.now() + APPEARS_MS
  for (;;) {
    const claim = await engine.claim(fleetId)
    if (claim.kind === 'claimed' || performance.now() >= until) return claim
    await Bun.sleep(POLL_MS)
  }
}

const unasked = (here: string, cause: Error) =>
  new StartError(`TOLLGATE_FLEET is ${here}, which cannot be asked: ${cause.message}`)

const differs = (here: string, { host, engine, seenMsAgo }: FleetMember) =>
  new StartError(
    `TOLLGATE_FLEET is ${here}, but servers on this database share their limits on ${engine} (${host}, seen ${Math.round(seenMsAgo / 1000)} s ago); two engines would let through twice the limit. Set the same, or stop those servers first; one that was killed counts for ${SEEN_MS / 1000} s.`,
  )

const foreign = (address: FleetAddress) =>
  new StartError(
    `TOLLGATE_FLEET is ${fleetName(address)}, on which servers of another database share their limits; ${separation(address)}. If that other database is gone, delete the keys that begin with t:{ there.`,
  )

const memberOf = ({ address }: FleetOptions, processId: string) => ({
  processId,
  host: hostname(),
  engine: fleetName(address),
})

/**
 * The row of this server in `fleet_members`, and how many servers there are. A server that was killed or cut off from the
 * database counts for {@link SEEN_MS} and one beat, 25 s; a new one is counted by others after one beat.
 *
 * The number falls only when this server has itself been seen all the time: when the database comes back, all rows are old,
 * and whoever is first to write his own would take himself for the only one.
 */
export class Members {
  readonly #sql: AnySql
  readonly #self: { processId: string; host: string; engine: string }
  readonly #timers: Timers
  readonly #onCount: (servers: number) => void
  #cancel: (() => void) | null = null
  #beating: Promise<void> = Promise.resolve()
  #servers: number
  #fallsAfter = 0
  #lastBeatAt: number

  constructor(
    sql: AnySql,
    options: {
      fleet: FleetOptions
      processId: string
      joined: Joined
      onCount: (servers: number) => void
      timers?: Timers
    },
  ) {
    this.#sql = sql
    this.#self = memberOf(options.fleet, options.processId)
    this.#timers = options.timers ?? systemTimers
    this.#servers = options.joined.servers
    this.#onCount = options.onCount
    this.#lastBeatAt = this.#timers.now()
  }

  /** This one included, as last seen. */
  get servers(): number {
    return this.#servers
  }

  start(): void {
    this.#cancel = this.#timers.every(BEAT_MS, () => {
      // A database that is away is reported by those who need it.
      this.#beating = this.beat().catch(() => {})
    })
  }

  async beat(): Promise<void> {
    const servers = await beatFleet(this.#sql, this.#self)
    const now = this.#timers.now()
    if (now - this.#lastBeatAt >= SEEN_MS) this.#fallsAfter = now + SEEN_MS
    this.#lastBeatAt = now
    if (servers === this.#servers || (servers < this.#servers && now < this.#fallsAfter)) return
    this.#servers = servers
    this.#onCount(servers)
  }

  async stop(): Promise<void> {
    this.#cancel?.()
    const left = this.#beating.then(() => leaveFleet(this.#sql, this.#self.processId)).catch(() => {}) // its row ends by itself
    await within(this.#timers, STOP_MS, left, { late: () => {} })
  }
}

const BEAT_MS = 5_000
/** For a connection, and for others that may be connecting again. */
const APPEARS_MS = 3_000
const POLL_MS = 50
/** As that of `Presence`. */
const STOP_MS = 300
