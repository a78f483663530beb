import type { DatabaseAddress } from '../../db/connect.ts'
import type { FleetOptions } from '../../fleet/open-engine.ts'
import type { LinkEnd } from '../../lib/link.ts'
import type { ThreadLink } from '../../lib/managed-thread.ts'
import type { FleetCondition, FleetStats, OutageRule } from '../fleet/fleet-shard.ts'
import { OWNERS } from '../table/owners.ts'

/**
 * How a call gets to its shard and back.
 *
 * 1. The main thread makes one link per HTTP thread and shard (`connect`). Where servers share limits: a second one, for
 *    counters that each server has for itself (`connectLocal`).
 * 2. The router names the counter by its hash, stamps the time, and adds the call to the queue of the shard that owns the hash.
 * 3. Once per turn of the event loop a queue with calls posts one `Calls`; to a shard on the same thread also when there are many.
 * 4. The shard decides them in order and posts one `Answers` with the same id. Links keep order; the answer to a batch that
 *    the router gave up is recognised by its id, and ignored.
 * 5. A router gives up a late batch, and all when its link closes. Their calls fail; some may have been charged.
 * 6. A shard that dies is restarted with its windows as last flushed. Routers get new links to it over their control link.
 *
 * A batch is one plain array of numbers. Why: docs/decisions/0006.
 */

/**
 * Router → shard. The batch's id, then nine numbers a call: h0, h1, h2, h3, limit, duration (ms), cost, Unix ms, owner.
 * Numbers are whole and at most 2^53 - 1 from zero, so none is rounded on its way. The owner of a counter that servers share
 * has its outage rule on top: {@link withOutageRule}.
 */
export type Calls = number[]
/** Router → shard, before the first call of a workspace: which one an owner's number stands for. For metrics and the log. */
export type OwnerNamed = { owner: number; workspaceId: string }
/** Shard → router. The batch's id, then two numbers a record: used if passed, else -1 - used; the window's end (Unix ms). */
export type Answers = number[]

/** An owner's number with what decides the call while the engine cannot be asked; null = the rule of the environment. */
export const withOutageRule = (owner: number, rule: OutageRule | null) =>
  owner + OWNERS * OUTAGE_RULES.indexOf(rule)
export const outageRuleOf = (owner: number): OutageRule | null =>
  OUTAGE_RULES[Math.floor(owner / OWNERS)] ?? null
const OUTAGE_RULES: readonly (OutageRule | null)[] = [null, 'share', 'refuse', 'open']

/**
 * What a record is instead of a call, in the place of the limit. A record is as long as a call; numbers that it does not need
 * are 0. The calls of a part are decided together. A later batch undoes what it charged, or keeps or releases what it holds.
 */
export const KIND = {
  /** A part follows: how many calls it has, its number on this link, its {@link MODE}. */
  part: -1,
  /** h0, h1, h2, h3, the kind, end of the window (Unix ms), the cost to take back, Unix ms. */
  undo: -2,
  /** 0, the number of a part: what it holds is counted now. */
  keep: -3,
  /** 0, the number of a part: what it holds is given up. */
  release: -4,
  /** An outcome for a shard that died meanwhile. */
  nothing: -5,
} as const
/** What to do with a part all of whose calls pass; otherwise nothing is charged. */
export const MODE = {
  /** Charge it: the call has no other part. */
  whole: 0,
  /** Charge it so that it can be undone: a counter without a cell is held, and its answer has a negative end of the window. */
  undoable: 1,
  /** Only answer. */
  look: 2,
} as const

/**
 * Where servers share limits, a call may wait for the engine: its record in the answers is NaN and this end. It comes later:
 * minus the batch's id, then three numbers a record: the call's place, and the two of an answer.
 */
export const WAITS = 0
/** The end of a call that nobody can decide; `used` is NaN. */
export const UNDECIDED = 1

export const NUMBERS_PER_CALL = 9
export const NUMBERS_PER_ANSWER = 2

/**
 * What the main thread gives a router: a link to each shard, and one on which it hears of shards that were restarted. Where
 * servers share limits also `local`: to each shard a link for counters that each server has for itself.
 */
export type RouterEnds = { shards: LinkEnd[]; control: LinkEnd; local?: LinkEnd[] }
/** Main thread → router: that shard was restarted, and these are the new links to it. */
export type ToRouter = { shard: number; end: LinkEnd; local?: LinkEnd }

export type ShardSetup = {
  /** Which of how many shards. */
  index: number
  count: number
  address: DatabaseAddress
  nodeId: string
  flushEveryMs: number
  dataDir: string
  /** Of this shard alone. */
  memoryBytes: number
  nowMs: number
  /** Servers share their limits; null = each counts its own. */
  fleet: ShardFleet | null
}

/** How the servers share their limits, for one shard. */
export type ShardFleet = FleetOptions & {
  /** The engine's. */
  id: string
  leaseMs: number
  outage: OutageRule
  /** How many servers there are now. */
  servers: number
  /** Fleet time now, Unix ms. */
  nowMs: number
}

/** What the main thread asks of a shard. */
export type ShardRequests = {
  /** Restores the windows. @returns how many there are. */
  start(setup: ShardSetup): number
  /** Serves one more router. */
  connect(end: LinkEnd): void
  /** Serves a router's calls to counters that servers do not share, where they share others. */
  connectLocal(end: LinkEnd): void
  /** Writes everything counted so far. */
  flush(input: null): void
  /** The database has lost windows that were written: all open ones are written again, by the next flushes. */
  rewrite(input: null): void
  /** So many servers share limits now. */
  servers(count: number): void
  /** @param nowMs Unix ms. Windows that end up to then are over. */
  stats(nowMs: number): ShardStats
  /** Flushes or spills, and takes no more calls. @returns how many windows were spilled. */
  stop(input: null): number
}
export type ShardLink = ThreadLink<ShardRequests>

/** What a shard tells of itself, for metrics. */
export type ShardStats = {
  /** Windows with a cell of their own, those included that ended since the last walk. */
  windowsLive: number
  /** Of them, changed since they were last flushed. */
  windowsDirty: number
  /** How late a timer of the thread was at worst in the last minute, in ms. */
  loopLagMs: number
  /** Of the memory budget, in use by windows with a cell of their own. Never shrinks. */
  tableBytes: number
  /** Windows are over-counted now, for want of memory. */
  isOverBudget: boolean
  /** Charges counted that way since the start. */
  chargesOverBudget: number
  /** The workspaces with the most windows in memory, most first: no more than {@link LARGEST_OWNERS}. */
  largest: WorkspaceShare[]
  /** At most so old is the oldest change that is not written, in ms; 0 when all are. */
  flushLagMs: number
  /** Changed windows written since the start. */
  cellsFlushed: number
  /** What the last flush took, in ms, waiting for Postgres included. */
  flushTookMs: number
  /** Null = each server counts its own limits. */
  fleet: (FleetStats & { condition: FleetCondition }) | null
}

/** What one workspace has of a shard. */
export type WorkspaceShare = {
  /** Null until it has called since the start of the shard. */
  workspaceId: string | null
  owner: number
  /** Of its windows with a cell of their own. */
  bytes: number
  /** Charges counted without a cell, and cells given up to others, since the start. */
  chargesOverBudget: number
}

export const LARGEST_OWNERS = 10
