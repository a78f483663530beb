import { Episode } from '../episodes.ts'
import { Unavailable } from '../errors.ts'
import { systemTimers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import {
  type AnySql,
  connect,
  type DatabaseAddress,
  type OnStatement,
  type Sql,
  type Transaction,
} from './connect.ts'
import { startOfWait } from './deadline.ts'
import { requireDatabase } from './settings.ts'
import { Transactions } from './transactions.ts'

/**
 * A pool whose callers never wait for long. A frozen, slow or absent database delays requests once; later ones fail at
 * once. All statements of one request share its time limit (`deadline.ts`).
 *
 * `up`       statements run. One that takes a quarter of `timeoutMs` → `suspect`; a connection that breaks →
 * `reconnecting`. `suspect`  statements run; a probe runs on a connection of its own. Answered → `up`; not within half of
 * `timeoutMs` → `down`. `reconnecting` as `suspect`, but statements wait for the probe: the next server that answers may be
 * an empty standby. `down`     every statement fails at once; the probe is repeated until it is answered → `up`.
 *
 * After a broken connection, a given-up statement or a refused write, new statements use new connections; the old ones
 * finish what they had begun. So a given-up statement or commit may still be carried out: {@link QueryGivenUp.settled}
 * tells when it ended. Why: docs/decisions/0009.
 */
export class GuardedPool {
  /** Runs statements. The same object before, during and after outages. */
  readonly sql: AnySql
  readonly #address: DatabaseAddress
  readonly #options: {
    connectionsMax: number
    statementTimeoutMs: number | undefined
    onStatement: OnStatement | undefined
  }
  readonly #timeoutMs: number
  #pool: Sql
  #transactions: Transactions
  #state: 'up' | 'suspect' | 'reconnecting' | 'down' = 'up'
  /** Number of broken connections. A probe that was sent before the last loss proves nothing about it. */
  #losses = 0
  /** Resolves when a probe is answered, for statements held in `reconnecting`. */
  #found = Promise.withResolvers<void>()
  /** When the database last answered, ms of `performance.now()`. */
  #answeredAt = Number.NEGATIVE_INFINITY
  /** The running check, shared by concurrent callers of {@link condition}. */
  #asking: Promise<DatabaseCondition> | null = null
  #refreshedAt = Number.NEGATIVE_INFINITY
  /** The result of the last probe. A statement refused as read-only also starts a probe. */
  #isReadOnly = false
  #isProbingWrites = false
  readonly #waiting = new Set<Waiting>()
  #ticker: Timer | null = null
  /** Shared by the pools of all threads: they use the same database. */
  readonly #outage = new Episode('database')
  readonly #writesRefused = new Episode('database writes')
  #isStopped = false

  /**
   * @param options.timeoutMs Longest wait of a request for all its statements; outside a request, of one statement or
   *   transaction.
   * @param options.endsGivenUp Postgres also ends statements that take that long. Only for reads: a given-up write should
   *   complete.
   */
  constructor(
    address: DatabaseAddress,
    options: {
      connectionsMax: number
      timeoutMs: number
      endsGivenUp?: boolean
      onStatement?: OnStatement | undefined
    },
  ) {
    this.#address = address
    this.#options = {
      connectionsMax: options.connectionsMax,
      statementTimeoutMs: options.endsGivenUp === true ? options.timeoutMs : undefined,
      onStatement: options.onStatement,
    }
    this.#timeoutMs = options.timeoutMs
    this.#pool = this.#connect()
    this.#transactions = this.#openTransactions()
    this.sql = this.#guarded()
  }

  /**
   * Whether the database answers and takes writes. Known without asking while it is away, or when it answered within the
   * last second. Otherwise it is asked, once for all concurrent callers.
   */
  condition(): DatabaseCondition | Promise<DatabaseCondition> {
    if (this.#state === 'down') return 'away'
    if (this.#state === 'up' && performance.now() - this.#answeredAt < FRESH_MS)
      return this.#isReadOnly ? 'read-only' : 'ok'
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = null
    })
    return this.#asking
  }

  /** True when the database is known to be away. Does not ask it. */
  get isAway(): boolean {
    return this.#state === 'down'
  }

  /** True when the database is known to be read-only. Does not ask it. */
  get isReadOnly(): boolean {
    return this.#isReadOnly
  }

  /** A slow answer counts as no answer. The pool notices the slow statement itself. */
  async #ask(): Promise<DatabaseCondition> {
    const answer = this.#watch(() => isReadOnly(this.#pool)).then(
      (refuses) => {
        if (refuses) this.#probeWrites()
        return refuses || this.#isReadOnly ? 'read-only' : 'ok'
      },
      () => 'away' as const,
    )
    return await within(systemTimers, ASK_MS, answer, { late: () => 'away' as const })
  }

  /**
   * Runs `work` in one transaction, all of it within the time limit.
   * @param options.timeoutMs A longer time limit than the pool's, counted from now.
   * @throws the error of `work`, with nothing written.
   */
  transaction<T>(
    work: (tx: Transaction) => T | Promise<T>,
    options: { timeoutMs?: number } = {},
  ): Promise<T> {
    let isGivenUp = false
    return this.#watch(() => this.#transactions.run(work, () => isGivenUp), {
      ...options,
      onGivenUp: () => {
        isGivenUp = true
      },
    })
  }

  async end(options: { timeout: number }): Promise<void> {
    this.#isStopped = true
    // After a stop the outage's end would not be noticed.
    this.#outage.end()
    this.#writesRefused.end()
    if (this.#ticker !== null) clearInterval(this.#ticker)
    await Promise.all([this.#pool.end(options), this.#transactions.end(options)])
  }

  /** Forwards to the current pool, so that callers can keep one object. */
  #guarded(): AnySql {
    return new Proxy(this.#pool, {
      apply: (_, self, args) => {
        const query: unknown = Reflect.apply(this.#pool, self, args)
        return query instanceof Promise ? this.#guardQuery(query) : query // a fragment or an identifier is not a statement
      },
      get: (_, name) => Reflect.get(this.#pool, name),
    })
  }

  /** A driver's query runs when its result is awaited, so the watch begins there. */
  #guardQuery(query: Promise<unknown>): Promise<unknown> {
    const run = query.then.bind(query)
    const onGivenUp = () => cancelIfQueued(query)
    const watched = () => this.#watch(() => run((value) => value), { onGivenUp })
    return Object.assign(query, {
      // biome-ignore lint/suspicious/noThenProperty: the driver's query is a promise that runs when asked; this asks for it
      then: ((resolve, reject) => watched().then(resolve, reject)) satisfies typeof query.then,
      catch: ((reject) => watched().catch(reject)) satisfies typeof query.catch,
      finally: ((done) => watched().finally(done)) satisfies typeof query.finally,
    })
  }

  #watch<T>(
    run: () => Promise<T>,
    { timeoutMs, onGivenUp = () => {} }: { timeoutMs?: number; onGivenUp?: () => void } = {},
  ): Promise<T> {
    const since = performance.now()
    const endsAt = timeoutMs === undefined ? startOfWait() + this.#timeoutMs : since + timeoutMs
    if (this.#isTimeUp(endsAt, since))
      return Promise.reject(new Unavailable('database', `no time left of ${this.#timeoutMs} ms`))
    if (this.#state === 'down') return Promise.reject(new Unavailable('database', 'the database is away'))
    return new Promise<T>((resolve, reject) => {
      let isOver = false
      const held = async () => {
        await this.#found.promise
        if (isOver) throw new Unavailable('database', 'given up before it was sent')
        return await run()
      }
      const running = this.#state === 'reconnecting' ? held() : run()
      const waiting: Waiting = {
        since,
        endsAt,
        // A quarter of its time.
        doubtAt: since + (timeoutMs ?? this.#timeoutMs) / 4,
        giveUp: (reason) => {
          this.#waiting.delete(waiting)
          isOver = true
          onGivenUp()
          reject(new QueryGivenUp(reason, running))
        },
      }
      this.#waiting.add(waiting)
      this.#ticker ??= setInterval(() => this.#tick(), this.#timeoutMs / 8)
      running.then(
        (value) => {
          this.#waiting.delete(waiting)
          this.#answeredAt = performance.now()
          resolve(value)
        },
        (cause: unknown) => {
          this.#waiting.delete(waiting)
          if (isConnectionFailure(cause)) {
            this.#refresh()
            this.#lose()
          } else if (isReadOnlyFailure(cause)) this.#probeWrites()
          reject(cause)
        },
      )
    })
  }

  /** One timer for all waiting statements, and none while there are none. */
  #tick(): void {
    const now = performance.now()
    for (const { since, doubtAt, endsAt, giveUp } of this.#waiting) {
      if (now > doubtAt) this.#doubt()
      if (this.#isTimeUp(endsAt, now)) {
        this.#refresh()
        giveUp(`no answer within ${Math.round(endsAt - since)} ms`)
      }
    }
    if (this.#waiting.size > 0 || this.#ticker === null) return
    clearInterval(this.#ticker)
    this.#ticker = null
  }

  /** Half a tick early rather than late, so that a statement made after a given-up one finds no time left. */
  #isTimeUp(endsAt: number, now: number): boolean {
    return now > endsAt - this.#timeoutMs / 16
  }

  #doubt(): void {
    if (this.#state !== 'up' || this.#isStopped) return
    this.#state = 'suspect'
    void this.#probeUntilUp()
  }

  #lose(): void {
    this.#losses++
    if (this.#state === 'reconnecting' || this.#state === 'down' || this.#isStopped) return
    const isProbing = this.#state === 'suspect'
    this.#state = 'reconnecting'
    if (!isProbing) void this.#probeUntilUp()
  }

  #connect(): Sql {
    const pool = connect(this.#address, {
      ...this.#options,
      onClose: () => {
        if (pool === this.#pool) this.#lose()
      },
    })
    return pool
  }

  #openTransactions(): Transactions {
    return new Transactions(this.#address, { ...this.#options, onBroken: () => this.#lose() })
  }

  /**
   * Replaces the pools: new statements use new connections, old ones have time to finish. Many statements fail together
   * when a connection breaks, so this does nothing when it ran a moment ago.
   */
  #refresh(): void {
    const now = performance.now()
    if (this.#isStopped || now - this.#refreshedAt < PROBE_EVERY_MS) return
    this.#refreshedAt = now
    const old = [this.#pool, this.#transactions]
    this.#pool = this.#connect()
    this.#transactions = this.#openTransactions()
    // Errors of running statements go to their callers.
    for (const each of old) each.end({ timeout: SETTLE_SECONDS }).catch(() => {})
  }

  async #probeUntilUp(): Promise<void> {
    const doubtedAt = performance.now()
    while (!this.#isStopped) {
      const losses = this.#losses
      const failure = await this.#probe()
      if (failure === null && (losses === this.#losses || this.#state === 'down')) break
      if (failure === null) continue
      if (this.#outage.begin())
        log(
          'warn',
          'database_unavailable',
          'the database does not answer; calls that need it fail at once, rate limits and cached keys work',
          { cause: failure },
        )
      if (this.#state !== 'down') {
        this.#state = 'down'
        for (const { giveUp } of [...this.#waiting]) giveUp('the database is away')
      }
      await Bun.sleep(PROBE_EVERY_MS)
    }
    if (this.#isStopped) return
    if (this.#state === 'down') {
      this.#refresh()
      const ended = this.#outage.end()
      if (ended !== null)
        log('info', 'database_available', 'the database answers again', {
          awayMs: Math.round(performance.now() - doubtedAt),
          refused: ended.counted,
        })
    }
    this.#state = 'up'
    this.#answeredAt = performance.now()
    this.#found.resolve()
    this.#found = Promise.withResolvers()
  }

  #probeWrites(): void {
    if (this.#isProbingWrites || this.#isStopped) return
    this.#isProbingWrites = true
    this.#refresh()
    void this.#probeUntilWritable()
  }

  async #probeUntilWritable(): Promise<void> {
    const refusedAt = performance.now()
    while (!this.#isStopped) {
      let refuses = false
      const failure = await this.#probe(async (sql) => {
        refuses = await isReadOnly(sql)
      })
      if (failure === null && !refuses) break
      // An outage is another state, with a log line of its own.
      if (refuses) {
        this.#isReadOnly = true
        if (this.#writesRefused.begin())
          log(
            'warn',
            'database_read_only',
            'the database is read only; reads, rate limits and cached keys without credits work',
          )
      }
      await Bun.sleep(WRITES_PROBE_EVERY_MS)
    }
    if (this.#isStopped) return
    this.#isProbingWrites = false
    this.#refreshedAt = Number.NEGATIVE_INFINITY
    this.#refresh()
    if (!this.#isReadOnly) return // the refusal came from an old connection
    this.#isReadOnly = false
    const ended = this.#writesRefused.end()
    if (ended !== null)
      log('info', 'database_writable', 'the database takes writes again', {
        readOnlyMs: Math.round(performance.now() - refusedAt),
        refused: ended.counted,
      })
  }

  /**
   * Asks on a connection of its own.
   * @returns why the database cannot be used (no answer, or another database); null = it can.
   */
  async #probe(ask: (sql: Sql) => Promise<void> = async () => {}): Promise<unknown> {
    const sql = connect(this.#address, { connectionsMax: 1 })
    // The embedded database answers one connection at a time, so a slow answer does not mean that it is gone.
    const patienceMs = this.#address.kind === 'embedded' ? EMBEDDED_PATIENCE_MS : this.#timeoutMs / 2
    const answer = requireDatabase(sql, this.#address)
      .then(() => ask(sql))
      .then(
        () => null,
        (cause: unknown) => cause,
      )
    const late = () => new Error(`no answer to a probe within ${patienceMs} ms`)
    try {
      return await within(systemTimers, patienceMs, answer, { late })
    } finally {
      sql.end({ timeout: 0 }).catch(() => {}) // it served only this question
    }
  }
}

/** `read-only`: the database answers but takes no writes. */
export type DatabaseCondition = 'ok' | 'read-only' | 'away'

async function isReadOnly(sql: Sql): Promise<boolean> {
  const [row] = await sql<{ is: boolean }[]>`select current_setting('transaction_read_only') = 'on' as is`
  return row?.is === true
}

/** The statement took too long and was given up. It may still be carried out. */
export class QueryGivenUp extends Unavailable {
  override name = 'QueryGivenUp'
  /** Resolves when the statement or transaction has ended, in whatever way. */
  readonly settled: Promise<void>
  constructor(reason: string, running: Promise<unknown>) {
    super('database', reason)
    this.settled = running.then(
      () => {},
      () => {},
    )
  }
}

/**
 * Cancels a statement that has not been sent. Otherwise the driver would send it when a connection becomes free, long after
 * its caller got an error. A sent statement is left alone: cancelling it needs a connection, and there may be none.
 */
function cancelIfQueued(query: Promise<unknown>): void {
  if (!('state' in query && query.state === null && 'cancel' in query && typeof query.cancel === 'function'))
    return
  // Nobody handles the error of a statement that never ran. `query.catch` would run it, hence this form.
  Promise.prototype.then.call(query, undefined, () => {})
  query.cancel()
}

/** Times of `performance.now()`, ms. */
type Waiting = { since: number; doubtAt: number; endsAt: number; giveUp(reason: string): void }

/** A connection was refused, broke or could not be opened; or the database is starting, stopping or full. */
function isConnectionFailure(cause: unknown): boolean {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
  return /^(CONN|E[A-Z]+$|08|57P|53[34]00)/.test(code)
}

/** Also when wrapped in another error. A statement refused as read-only changed nothing. */
export function isReadOnlyFailure(cause: unknown): boolean {
  for (let each = cause; each instanceof Error; each = each.cause)
    if ('code' in each && each.code === '25006') return true
  return false
}

const PROBE_EVERY_MS = 250
/**
 * How often a read-only database is probed. At most five seconds after it takes writes again, all connections are replaced.
 */
const WRITES_PROBE_EVERY_MS = 500
/** How recent an answer must be to prove that the database is there, ms. */
const FRESH_MS = 1000
/** How long {@link condition} waits for an answer, ms. */
const ASK_MS = 500
const EMBEDDED_PATIENCE_MS = 60_000
/** Time for old connections to finish or to notice that they are broken. */
const SETTLE_SECONDS = 60
