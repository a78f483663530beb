import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { pause, systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'
import type { Changes } from './changes.ts'

/**
 * Hears what other processes on one database change, and makes sure that it does. A connection that only listens cannot
 * tell silence from a flow that a firewall forgot or a failover moved: it would be deaf until TCP gives up, a minute or
 * more, or for ever where it ended up at another database, and keys revoked elsewhere would go on here.
 *
 * 1. Every {@link BEAT_EVERY_MS} this process sends itself a notice, a beat, on another connection.
 * 2. That connection says it was sent, and by the database of the start. If it does not in {@link PATIENCE_MS}, it is
 *    replaced and nothing is concluded: a database that is away or slow is no reason to forget what is known.
 * 3. A beat that was sent and is not heard in the same time shows that the listening connection is deaf or at another
 *    database. It is replaced, and since anything may have been missed, everything is taken as changed (`changes.ts`).
 *
 * So a change that was missed counts at most four of these times after the database can be reached again, 8 s, and what it
 * takes to connect. Refused: beats through the requests' pool, which is judged by them and whose statements are counted.
 */
export class ChangeListener {
  readonly #changes: Changes
  readonly #address: DatabaseAddress & { databaseId: string }
  readonly #timers: Timers
  /** Where notices are heard. */
  #ear: Sql
  /** Where beats are sent. */
  #voice: Sql
  #beats = 0
  /** Told of each beat of ours that the connection of the moment hears. */
  #onBeat: (beat: number) => void = () => {}
  #isDeaf = false
  readonly #stopping = new AbortController()

  /** @param address With the id of its database: what answers there later may be another one. */
  constructor(
    changes: Changes,
    address: DatabaseAddress & { databaseId: string },
    options: { timers?: Timers } = {},
  ) {
    this.#changes = changes
    this.#address = address
    this.#timers = options.timers ?? systemTimers
    this.#ear = this.#connect()
    this.#voice = this.#connect()
  }

  /** @throws the driver's error when the first connection cannot be had. */
  async start(): Promise<void> {
    await this.#listen()
    void this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await Promise.all([this.#ear.end({ timeout: 0 }), this.#voice.end({ timeout: 0 })])
  }

  #connect(): Sql {
    return connect(this.#address, { connectionsMax: 1 })
  }

  async #listen(): Promise<void> {
    const ear = this.#ear
    await this.#changes.listen(ear, (beat) => {
      if (ear === this.#ear) this.#onBeat(beat)
    })
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
      if (!(await this.#isDoneWithin(PATIENCE_MS, this.#send(beat)))) await this.#replaceVoice()
      else if (!(await this.#isDoneWithin(PATIENCE_MS, heard))) await this.#replaceEar()
      else if (this.#isDeaf) {
        this.#isDeaf = false
        log('info', 'changes_heard', 'changes made through other servers arrive again')
      }
    }
  }

  /** @throws the driver's error, or Error when it is another database: nothing was sent then. */
  async #send(beat: number): Promise<void> {
    if (!(await this.#changes.beat(this.#voice, beat, this.#address.databaseId)))
      throw new Error('another database answers at this address than at the start')
  }

  async #replaceVoice(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    const old = this.#voice
    this.#voice = this.#connect()
    await old.end({ timeout: 0 }).catch(() => {}) // it is given up, whatever it says to that
  }

  async #replaceEar(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    if (!this.#isDeaf)
      log(
        'warn',
        'changes_unheard',
        'changes made through other servers may have been missed; all caches were emptied and the listener reconnected',
      )
    this.#isDeaf = true
    const old = this.#ear
    this.#ear = this.#connect()
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
