import type { DatabaseAddress } from '../db/connect.ts'
import type { FleetAddress } from '../lib/fleet-url.ts'
import type { Engine } from './engine.ts'
import { PostgresEngine } from './postgres.ts'
import { RedisEngine, redisBucketsOf } from './redis.ts'

/** How servers share limits. Plain data, as a thread gets it. */
export type FleetOptions = {
  address: FleetAddress
  /** How long an exchange takes at most, ms. */
  timeoutMs: number
  /** As `RedisSetup.replicas`. */
  replicas: number
}

/** Opens a connection to the engine. A Redis that is away is tried again and again. */
export async function openEngine(
  { address, timeoutMs, replicas }: FleetOptions,
  /** `fleetId`: as `RedisSetup.fleetId`. */
  { database, serverId, fleetId }: { database: DatabaseAddress; serverId: number; fleetId?: string },
): Promise<Engine> {
  if (address.kind === 'postgres') return new PostgresEngine(database, { timeoutMs })
  return await RedisEngine.open(address, {
    serverId,
    timeoutMs,
    learnMs: LEARN_TIMEOUTS * timeoutMs,
    replicas,
    ...(fleetId === undefined ? {} : { fleetId }),
  })
}

/** Of {@link Engine}, before one is open. */
export const bucketsOf = (address: FleetAddress): number =>
  address.kind === 'postgres' ? 1 : redisBucketsOf(address)

/** All servers speak to each bucket within one time-out, and say what they hold in the next. */
export const LEARN_TIMEOUTS = 3
