/**
 * What every server of a fleet asks before it lets calls through: an engine gives out no more of a window than its limit.
 * Here is what an engine promises, whether it is Redis or Postgres. `test/fleet/engine-contract.ts` holds each to it.
 *
 * 1. **Σ given ≤ sum**, window by window, over all servers that ever were; sum exceeds the limit only by what servers say
 *    they have let through without asking (`owed`), or hold and the engine forgot.
 * 2. **A failed exchange gave nothing.** It may have changed the engine; the engine sees to it that this can only waste.
 * 3. **The answer names the window that was charged.** It is the one asked for, or a later one.
 * 4. **Faults are values.** `exchange` rejects only for a mistake of its caller, and settles within `timeoutMs`.
 *
 * One engine object is one server (`EngineSetup.serverId`). It keeps its own connection; for each bucket also an epoch, raised
 * at least after each fault and with each connection: a message that is late or comes twice cannot undo a newer one.
 */
export interface Engine {
  readonly kind: 'redis' | 'postgres'
  /** How many buckets there are, a power of two: 1 where messages need not be split. See `bucketOf`. */
  readonly buckets: number
  /**
   * Sends one message. Exchanges of one bucket come one after the other: the caller waits for the result before the next.
   * Those of different buckets run side by side. No entries is a message too: it tells the bucket that this server lives,
   * and asks whether it learns.
   * @throws Error when an exchange of that bucket is under way, an entry belongs to another bucket, a window comes twice,
   * a number is out of bounds, there are more than {@link ENTRIES_MAX} entries, or the engine is closed.
   */
  exchange(exchange: Exchange): Promise<Result>
  /**
   * Writes the fleet's id where the engine has none, now and whenever it turns out to have forgotten it.
   * @returns the id that is there. Another one than `fleetId`: the engine serves another fleet; its exchanges fail as `foreign`.
   */
  claim(fleetId: string): Promise<{ kind: 'claimed'; fleetId: string } | Failed>
  /** The fleet's id that the engine has; null = none. Writes nothing. */
  found(): Promise<{ kind: 'found'; fleetId: string | null } | Failed>
  /** What an operator should change about it, as sentences; empty where it could not be asked. */
  warnings(): Promise<string[]>
  /** Exchanges under way fail. */
  close(): Promise<void>
}

export type EngineSetup = {
  /** New for each shard thread at each start, never used again. 1 to 2^53 - 1. */
  serverId: number
  /** How long an exchange takes at most. An answer after that is not read. */
  timeoutMs: number
  /**
   * How long a bucket learns. An engine that forgets learns after each restart, failover and emptying, and when nobody spoke
   * to a bucket for a second. An engine that does not forget never learns.
   */
  learnMs: number
}

export type Exchange = {
  bucket: number
  /** Fleet time, Unix ms. Windows expire relative to it: no clock of the engine decides which window is charged. */
  nowMs: number
  /** For so long after a loose gift, refusals are not final. See `Answer.looseUntilMs`. */
  looseMs: number
  /** What is given ahead is at most this part of what is free: twice the number of servers, at least 2. */
  share: number
  /** At most one for each cell. Each is decided by itself, in this order. */
  entries: readonly Entry[]
}

/**
 * What a server holds of one window, and what it wants. Counts are whole numbers from 0 to 2^53 - 1.
 * The engine carries out, in this order and at once: what is held, what is returned, what is owed, what is asked, what is
 * asked ahead.
 */
export type Entry = {
  /** The cell: the counter's name, as signed 32-bit words. */
  h0: number
  h1: number
  h2: number
  h3: number
  /** End of the window, Unix ms, up to 2^46. Each cell has one open window at a time. */
  endMs: number
  /** Of the calls that ask. 0 with nothing asked is fine. */
  limit: number
  /**
   * What this server holds of the window: what answers gave it, less what it returned. An engine that counts by server sets
   * its count for this server to `given` + `owed`, up or down, whatever the limit: so what an answer gave that was lost is
   * free again, and what the engine forgot is there again. While it learns it only raises its count, because it may have
   * forgotten that others got what this server returned. 0 where the server `hasForgotten`.
   */
  given: number
  /**
   * The server has no memory for this cell and may have held some of the window before. Then it holds what the engine has for
   * it, all of which counts as spent; an engine that counts by server adds the rest of the entry to that. Nothing is returned.
   */
  hasForgotten: boolean
  /**
   * Was held and is not any more: the server took it off its own cell, and so off `given`, *before* it says so. Said once: an
   * engine that counts by additions lowers its sum by it. One that counts by server needs only `given`.
   */
  returned: number
  /**
   * What the server let through without holding it, by an outage rule. Adds to given and sum, whatever the limit. It is said
   * until an answer has come, so an engine that counts by additions may count it twice.
   */
  owed: number
  /** The cost of all calls that wait. Given: min(asked, limit - sum), or nothing where that is below `least`. */
  asked: number
  /** The least amount that is of use: the smallest cost of those calls, no more than `asked`. */
  least: number
  /** Wanted on top, for calls to come. Given only when `asked` is given whole: min(ahead, ⌊(limit - sum) / share⌋). */
  ahead: number
  /** What is given for `asked` may come back: other counters of the same call may refuse. So the gift is loose. */
  isTentative: boolean
}

export type Result = Answered | Failed

export type Answered = {
  kind: 'answered'
  /**
   * The bucket has forgotten some of what it gave. It takes up what servers say they hold and let through, and gives and takes
   * back nothing. Who hears this says all it holds of open windows in the bucket, then asks again.
   */
  isLearning: boolean
  /**
   * Which learning it is: another number each time that the bucket has forgotten, also while it learns. Servers compare it with
   * the last one, and with nothing else. 0 = it does not learn.
   */
  learning: number
  /** As many as entries, in their order. */
  answers: readonly Answer[]
}

export type Answer = {
  /** The window that was charged. Later than the entry's: that one was over, and nothing but `asked` and `ahead` counted. */
  endMs: number
  /**
   * What the engine counts for this server in that window. In the entry's window the server holds `given` + `owed` of the
   * entry + `gift`; that is this number, unless it is higher because the engine learns. In a later window it is `gift`, and
   * is added to what the server holds of that one.
   */
  given: number
  /** What this exchange was given, for `asked` and `ahead`. */
  gift: number
  /** What the engine counts for all servers, this one included. More than the limit where that was lowered, or something was owed. */
  sum: number
  /**
   * A refusal is final until the window's end, unless `nowMs` is before this: then a server got more than its callers had
   * asked for, a part of it, or a tentative gift, and may bring some of it back. 0 = nobody.
   */
  looseUntilMs: number
}

/** Nothing is given. `cause` is for the log. */
export type Failed = { kind: 'failed'; fault: Fault; cause: Error }

/**
 * - `away`: there is no connection. Nothing was sent.
 * - `late`: no answer within `timeoutMs`. The message may have been carried out, or may be later.
 * - `broken`: the connection ended, or the answer is an error or makes no sense. As `late`.
 * - `stale`: the engine knows a higher epoch of this server and did nothing. The next exchange carries a higher one.
 * - `replicas`: too few replicas have it. It was carried out.
 * - `foreign`: the engine serves another fleet. Nothing was done.
 */
export type Fault = 'away' | 'late' | 'broken' | 'stale' | 'replicas' | 'foreign'

/** Of one exchange. A server that says all it holds sends as many exchanges as it needs. */
export const ENTRIES_MAX = 512
