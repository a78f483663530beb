import type { OutageRule } from '../fleet/fleet-shard.ts'

/** Where servers share limits: `local` = each server counts for itself, else what decides while the engine cannot be asked. */
export type Sharing = 'local' | OutageRule

/** What one call asks of a counter's window. */
export type Charge = {
  /** The beginning of the name, where many counters share it: it is hashed once. */
  prefix?: string
  /** The counter's name, or the rest of it: unambiguous, duration included. Calls with another limit share the count. */
  counter: string
  /** Owns the window: a workspace with more than its share of memory gives way to others. Absent = no owner. */
  workspaceId?: string
  /** 0 to 2^53 - 1. */
  limit: number
  /** 1 to 2^53 - 1; above 2^45, a thousand years, as that. Windows start at whole multiples since the epoch. */
  durationMs: number
  /** 0 to 2^53 - 1; 0 only looks. */
  cost: number
  /** Of no effect where each server counts for itself. Absent or null = shared, with the outage rule of the environment. */
  sharing?: Sharing | null
}

export type Decision = {
  passed: boolean
  /** Count of the window after the decision, without a refused cost. Exceeds the limit where that was lowered. */
  used: number
  /** When the window ends, Unix ms. */
  resetAtMs: number
  /** When the call was made; decides which window counts. Unix ms, never before that of an earlier call. */
  atMs: number
}
