import type {
  Answer,
  Answered,
  Engine,
  EngineSetup,
  Entry,
  Exchange,
  Failed,
  Fault,
  Result,
} from '../../src/fleet/engine.ts'
import { wrongWith } from '../../src/fleet/exchange-check.ts'
import { COUNT_MAX } from '../../src/lib/bounds.ts'
import type { Timers } from '../../src/lib/timers.ts'

/**
 * Engines in memory, as slow and obvious as they can be: what `fleet/engine.ts` promises, and what others are compared with.
 * A process (`TotalsProcess`, `AdditionsProcess`) has the counts and carries out messages; `ModelEngine` is the object that a
 * shard holds. Between them is a `Wire`, where tests and the simulation lose, delay and repeat messages.
 */
export type Message = {
  serverId: number
  /** Of this server, for this bucket. */
  epoch: number
  learnMs: number
  exchange: Exchange
}
/** `epoch` = the one that the process knows, higher than the message's. */
export type Reply = Answered | { kind: 'stale'; epoch: number }
export type Process = { take(message: Message): Reply }

/** Delivers a message to a process, and its reply; either may never happen. @returns false = there is no connection. */
export type Wire = (message: Message, replied: (reply: Reply | Error) => void) => boolean

/** Bugs that the simulation must notice. */
export type EnginePlants = {
  additions?: boolean
  noEpoch?: boolean
  noLearning?: boolean
  absoluteExpiry?: boolean
}

type Window = {
  /** Σ given. */
  sum: number
  /** By server. */
  given: Map<number, number>
  looseUntilMs: number
  /** By the clock of the process. */
  expiresAtMs: number
}
type Bucket = {
  /** Of the process that counted here last, and when, by its clock. */
  runId: number
  usedAtMs: number
  learnsUntilMs: number
  /** Windows that end before are given nothing. By the time of the servers. */
  pastMs: number
  epochs: Map<number, number>
}

/** Counts by server, as Redis does: totals can be said twice, and told anew to a process that forgot. */
export class TotalsProcess implements Process {
  windows = new Map<string, Window>()
  buckets = new Map<number, Bucket>()

  constructor(
    /** New in each process; a replica that takes over has another one than its master had. */
    readonly runId: number,
    /** Its own clock, which nobody has set right. Unix ms. */
    readonly clock: () => number,
    private readonly plants: EnginePlants = {},
  ) {}

  take({ serverId, epoch, learnMs, exchange }: Message): Reply {
    const nowMs = this.clock()
    const bucket = this.bucket(exchange, learnMs, nowMs)
    const known = bucket.epochs.get(serverId) ?? 0
    if (epoch < known && this.plants.noEpoch !== true) return { kind: 'stale', epoch: known }
    bucket.epochs.set(serverId, Math.max(known, epoch))
    bucket.usedAtMs = nowMs
    const isLearning = nowMs < bucket.learnsUntilMs
    const answers = exchange.entries.map((entry) =>
      this.takeOne(entry, serverId, exchange, { isLearning, pastMs: bucket.pastMs }),
    )
    return { kind: 'answered', isLearning, learning: isLearning ? bucket.learnsUntilMs : 0, answers }
  }

  /** A replica with all that has been written so far. */
  replica(runId: number, clock = this.clock): TotalsProcess {
    const copy = new TotalsProcess(runId, clock, this.plants)
    copy.windows = structuredClone(this.windows)
    copy.buckets = structuredClone(this.buckets)
    return copy
  }

  sumOf(entry: Pick<Entry, 'h0' | 'h1' | 'h2' | 'h3' | 'endMs'>): number {
    return this.windows.get(windowName(entry))?.sum ?? 0
  }

  private bucket({ bucket: number, nowMs: fleetMs }: Exchange, learnMs: number, nowMs: number): Bucket {
    let bucket = this.buckets.get(number)
    if (bucket === undefined) {
      bucket = { runId: -1, usedAtMs: nowMs, learnsUntilMs: 0, pastMs: 0, epochs: new Map() }
      this.buckets.set(number, bucket)
    }
    const hasSlept = nowMs - bucket.usedAtMs > SILENCE_MS || nowMs < bucket.usedAtMs
    if (bucket.runId !== this.runId || hasSlept) {
      bucket.runId = this.runId
      if (this.plants.noLearning !== true) {
        bucket.learnsUntilMs = nowMs + learnMs
        bucket.pastMs = Math.max(bucket.pastMs, fleetMs + learnMs)
      }
    }
    return bucket
  }

  private takeOne(
    entry: Entry,
    serverId: number,
    exchange: Exchange,
    { isLearning, pastMs }: { isLearning: boolean; pastMs: number },
  ): Answer {
    const name = windowName(entry)
    const nowMs = this.clock()
    let window = this.windows.get(name)
    if (window === undefined || window.expiresAtMs <= nowMs) {
      const restMs = Math.max(0, entry.endMs - exchange.nowMs)
      const expiresAtMs =
        this.plants.absoluteExpiry === true ? entry.endMs + GRACE_MS : nowMs + restMs + GRACE_MS
      window = { sum: 0, given: new Map(), looseUntilMs: 0, expiresAtMs }
    }
    const stored = window.given.get(serverId) ?? 0
    const said = entry.given + entry.owed
    let given = isLearning ? Math.max(stored, said) : said
    if (entry.hasForgotten) given = stored + entry.owed
    if (this.plants.additions === true) given = stored - entry.returned + entry.owed
    let sum = window.sum + given - stored
    const free = isLearning || entry.endMs <= pastMs ? 0 : Math.max(0, entry.limit - sum)
    const { gift, isLoose } = giftOf(entry, { free, share: exchange.share })
    given += gift
    sum += gift
    if (given !== stored || isLoose) {
      window.given.set(serverId, given)
      window.sum = Math.min(sum, COUNT_MAX)
      if (isLoose) window.looseUntilMs = Math.max(window.looseUntilMs, exchange.nowMs + exchange.looseMs)
      this.windows.set(name, window)
    }
    const { looseUntilMs } = window
    return {
      endMs: entry.endMs,
      given,
      gift,
      sum: Math.min(sum, COUNT_MAX),
      looseUntilMs,
    }
  }
}

/** Counts by additions, as Postgres does: one row a cell, nothing forgotten, and each message carried out at most once. */
export class AdditionsProcess implements Process {
  readonly cells = new Map<string, { endMs: number; sum: number; looseUntilMs: number }>()

  take({ exchange }: Message): Reply {
    return {
      kind: 'answered',
      isLearning: false,
      learning: 0,
      answers: exchange.entries.map((entry) => this.takeOne(entry, exchange)),
    }
  }

  sumOf(entry: Pick<Entry, 'h0' | 'h1' | 'h2' | 'h3' | 'endMs'>): number {
    const row = this.cells.get(cellName(entry))
    return row?.endMs === entry.endMs ? row.sum : 0
  }

  private takeOne(entry: Entry, exchange: Exchange): Answer {
    const name = cellName(entry)
    const row = this.cells.get(name)
    const isLater = row !== undefined && row.endMs > entry.endMs
    const isSame = row !== undefined && row.endMs === entry.endMs
    const before = isLater || isSame ? row : { endMs: entry.endMs, sum: 0, looseUntilMs: 0 }
    const held = isLater ? 0 : entry.given + entry.owed
    const counted = isLater
      ? before.sum
      : isSame
        ? Math.max(0, before.sum - entry.returned) + entry.owed
        : held
    const free = Math.max(0, entry.limit - counted)
    const { gift, isLoose } = giftOf(entry, { free, share: exchange.share })
    const sum = Math.min(counted + gift, COUNT_MAX)
    const looseUntilMs = isLoose
      ? Math.max(before.looseUntilMs, exchange.nowMs + exchange.looseMs)
      : before.looseUntilMs
    const { endMs } = before
    if (sum !== before.sum || looseUntilMs !== before.looseUntilMs)
      this.cells.set(name, { endMs, sum, looseUntilMs })
    return { endMs, given: held + gift, gift, sum, looseUntilMs }
  }
}

function giftOf(
  { asked, least, ahead, isTentative }: Entry,
  { free, share }: { free: number; share: number },
): { gift: number; isLoose: boolean } {
  const forAsked = Math.min(asked, free)
  if (forAsked < least) return { gift: 0, isLoose: false }
  if (forAsked < asked) return { gift: forAsked, isLoose: forAsked > 0 }
  const forAhead = Math.min(ahead, Math.floor((free - forAsked) / share))
  return { gift: forAsked + forAhead, isLoose: forAhead > 0 || (isTentative && asked > 0) }
}

/** The engine object of one server. */
export class ModelEngine implements Engine {
  readonly kind: 'redis' | 'postgres'
  readonly buckets: number
  private readonly underWay = new Map<number, (fault: Fault, cause: Error) => void>()
  private readonly epochs = new Map<number, number>()
  private isClosed = false

  constructor(
    private readonly setup: EngineSetup,
    private readonly parts: {
      kind: 'redis' | 'postgres'
      buckets: number
      wire: Wire
      timers: Timers
      /** Of the process; null = it cannot be asked. */
      fleetId: { value: string | null }
    },
  ) {
    this.kind = parts.kind
    this.buckets = parts.buckets
  }

  exchange(exchange: Exchange): Promise<Result> {
    const wrong = this.wrongWith(exchange)
    if (wrong !== null) return Promise.reject(new Error(wrong))
    const { bucket } = exchange
    const epoch = this.epochs.get(bucket) ?? 1
    const { serverId, learnMs, timeoutMs } = this.setup
    return new Promise((resolve) => {
      const settle = (result: Result, nextEpoch: number) => {
        if (this.underWay.get(bucket) !== fail) return
        this.underWay.delete(bucket)
        this.epochs.set(bucket, nextEpoch)
        cancel()
        resolve(result)
      }
      const fail = (fault: Fault, cause: Error, known = 0) =>
        settle(failed(fault, cause), Math.max(epoch, known) + 1)
      this.underWay.set(bucket, fail)
      const cancel = this.parts.timers.after(timeoutMs, () => fail('late', new Error('no answer in time')))
      // A copy, because a message on its way does not change with the caller's objects.
      const message = { serverId, epoch, learnMs, exchange: structuredClone(exchange) }
      const isSent = this.parts.wire(message, (reply) => {
        if (reply instanceof Error) fail('broken', reply)
        else if (reply.kind === 'stale') fail('stale', new Error(`the epoch is ${reply.epoch}`), reply.epoch)
        else settle(reply, epoch)
      })
      if (!isSent) fail('away', new Error('there is no connection'))
    })
  }

  claim(fleetId: string): Promise<{ kind: 'claimed'; fleetId: string } | Failed> {
    this.parts.fleetId.value ??= fleetId
    return Promise.resolve({ kind: 'claimed', fleetId: this.parts.fleetId.value })
  }

  found(): Promise<{ kind: 'found'; fleetId: string | null }> {
    return Promise.resolve({ kind: 'found', fleetId: this.parts.fleetId.value })
  }

  warnings(): Promise<string[]> {
    return Promise.resolve([])
  }

  close(): Promise<void> {
    this.isClosed = true
    for (const fail of [...this.underWay.values()]) fail('away', new Error('the engine is closed'))
    return Promise.resolve()
  }

  private wrongWith(exchange: Exchange): string | null {
    if (this.isClosed) return 'the engine is closed'
    if (this.underWay.has(exchange.bucket)) return `an exchange of bucket ${exchange.bucket} is under way`
    return wrongWith(exchange, this.buckets)
  }
}

const failed = (fault: Fault, cause: Error): Failed => ({ kind: 'failed', fault, cause })

type Cell = Pick<Entry, 'h0' | 'h1' | 'h2' | 'h3'>
const cellName = ({ h0, h1, h2, h3 }: Cell) => `${h0}:${h1}:${h2}:${h3}`
const windowName = (entry: Cell & { endMs: number }) => `${cellName(entry)}@${entry.endMs}`

/** A process that nobody spoke to for so long may have slept while another took over. */
const SILENCE_MS = 1_000
/** How long a window is kept after its end. */
const GRACE_MS = 60_000
