import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { pause, systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import type { Invalidations } from './invalidations.ts'

/**
 * Hears the changes that other processes make in the same database, and checks that it can hear. A connection that only
 * listens cannot tell silence from a lost connection, which a firewall forgot or a failover moved: it would be deaf for
 * minutes, or for ever at another database, and keys revoked elsewhere would go on working here.
 *
 * 1. Every {@link BEAT_EVERY_MS} this process sends itself a notice, the beat, on the heartbeat connection.
 * 2. If that fails, takes {@link PATIENCE_MS}, or another database answers, the heartbeat connection is replaced. Caches stay:
 *    a slow database is no reason to empty them.
 * 3. A beat that was sent and not heard in the same time: the listening connection is deaf. It is replaced, and as anything
 *    may have been missed, everything is invalidated.
 *
 * So a missed change takes effect within 8 s of the database's return, plus the time to connect. Refused: beats through the
 * pool of requests, which is judged by its statements.
 */
export class ChangeListener {
  readonly #invalidations: Invalidations
  readonly #address: DatabaseAddress & { databaseId: string }
  readonly #timers: Timers
  readonly #afterBeat: ((sql: Sql) => Promise<void>) | null
  readonly #alsoListen: (sql: Sql) => Promise<void>
  #listenConnection: Sql
  #heartbeatConnection: Sql
  #beats = 0
  /** Called with each beat of this process that the current connection hears. */
  #onBeat: (beat: number) => void = () => {}
  #isDeaf = false
  readonly #stopping = new AbortController()

  /**
   * @param address With the id of its database: what answers there later may be another one.
   * @param options.afterBeat Asks more of the database, at the start and whenever it took a beat. What it throws is ignored.
   * @param options.alsoListen Listens to more on a connection that hears changes.
   */
  constructor(
    invalidations: Invalidations,
    address: DatabaseAddress & { databaseId: string },
    options: {
      timers?: Timers
      afterBeat?: (sql: Sql) => Promise<void>
      alsoListen?: (sql: Sql) => Promise<void>
    } = {},
  ) {
    this.#invalidations = invalidations
    this.#address = address
    this.#timers = options.timers ?? systemTimers
    this.#afterBeat = options.afterBeat ?? null
    this.#alsoListen = options.alsoListen ?? (() => Promise.resolve())
    this.#listenConnection = this.#connect()
    this.#heartbeatConnection = this.#connect()
  }

  /** @throws the driver's error when the first connection cannot be had. */
  async start(): Promise<void> {
    await this.#listen()
    await this.#askAfterBeat()
    void this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await Promise.all([
      this.#listenConnection.end({ timeout: 0 }),
      this.#heartbeatConnection.end({ timeout: 0 }),
    ])
  }

  #connect(): Sql {
    return connect(this.#address, { connectionsMax: 1 })
  }

  async #listen(): Promise<void> {
    const listening = this.#listenConnection
    await this.#invalidations.listen(listening, (beat) => {
      if (listening === this.#listenConnection) this.#onBeat(beat)
    })
    // Second, also when the driver reconnects: nothing else is heard before changes are.
    await this.#alsoListen(listening)
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await pause(this.#timers, BEAT_EVERY_MS, this.#stopping.signal)
      if (this.#stopping.signal.aborted) return
      const beat = ++this.#beats
      const heard = new Promise<void>((resolve) => {
        this.#onBeat = (each) => {
          if (each === beat) resolve()
        }
      })
      const isSent = await this.#isDoneWithin(PATIENCE_MS, this.#send(beat))
      if (isSent) await this.#askAfterBeat()
      if (!isSent) await this.#replaceHeartbeatConnection()
      else if (!(await this.#isDoneWithin(PATIENCE_MS, heard))) await this.#replaceListenConnection()
      else if (this.#isDeaf) {
        this.#isDeaf = false
        log('info', 'changes_heard', 'changes made through other servers arrive again')
      }
    }
  }

  async #askAfterBeat(): Promise<void> {
    if (this.#afterBeat !== null)
      await this.#isDoneWithin(PATIENCE_MS, this.#afterBeat(this.#heartbeatConnection))
  }

  /** @throws the driver's error, or Error when it is another database: nothing was sent then. */
  async #send(beat: number): Promise<void> {
    if (!(await this.#invalidations.beat(this.#heartbeatConnection, beat, this.#address.databaseId)))
      throw new Error('another database answers at this address than at the start')
  }

  async #replaceHeartbeatConnection(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    const old = this.#heartbeatConnection
    this.#heartbeatConnection = this.#connect()
    await old.end({ timeout: 0 }).catch(() => {}) // it is given up, whatever it says to that
  }

  async #replaceListenConnection(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    if (!this.#isDeaf)
      log(
        'warn',
        'changes_unheard',
        'changes made through other servers may have been missed; all caches were emptied and the listener reconnected',
      )
    this.#isDeaf = true
    const old = this.#listenConnection
    this.#listenConnection = this.#connect()
    old.end({ timeout: 0 }).catch(() => {}) // as above
    // One that does not come about hears no beat either, and is replaced in its turn.
    await this.#isDoneWithin(LISTEN_MS, this.#listen())
  }

  /** @returns false when the work fails, takes longer, or a stop comes first. */
  #isDoneWithin(ms: number, work: Promise<void>): Promise<boolean> {
    return within(this.#timers, ms, work, { signal: this.#stopping.signal }).then(
      () => true,
      () => false,
    )
  }
}

const BEAT_EVERY_MS = 2_000
const PATIENCE_MS = 2_000
/** As long as the driver tries to connect. */
const LISTEN_MS = 5_000
