import type { AnySql, Sql } from '../db/connect.ts'
import { type Link, type LinkEnd, toLink } from '../lib/link.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import { log } from '../log.ts'

/**
 * Tells every cache what a write touched, so that a write is seen by the next verification.
 *
 * 1. A write commits and names what it touched: ids of keys, identities, APIs, workspaces, namespaces; hashes of new keys.
 * 2. This thread's caches drop it at once.
 * 3. The other HTTP threads of this process get a message, drop it, and confirm. Only then is the write answered.
 * 4. Other processes hear it through NOTIFY, sent inside the transaction, so it arrives if and only if that commits.
 * 5. So does this one: a commit on its way when its connection breaks may be carried out after its write has failed, and
 *    after what it touched was dropped. A notice of a write of ours that was not answered is passed on like another's.
 *
 * Refused: expiry times alone. They are simpler, and a revoked key would work until they pass.
 */
export class Changes {
  /** Run on each change with what was touched; null = everything may have changed. */
  #listeners: ((touched: readonly string[] | null) => void)[] = []
  #peers = new Set<Peer>()
  /** Publications some peer has not confirmed yet. */
  #waiting = new Map<number, { peers: Set<Peer>; resolve: () => void }>()
  #lastId = 0
  /**
   * Writes of this process that were answered, the latest of them: their own notices tell nothing new. Numbers, since ten
   * thousand texts, each as old as its write, would lie all over the heap and keep what is around them from being freed.
   */
  readonly #answered = new Set<number>()
  #isListening = false
  /** Names this process among those on one database. */
  readonly #processId: string
  readonly #confirmTimeoutMs: number
  readonly #timers: Timers

  constructor(options: { processId: string; confirmTimeoutMs: number; timers?: Timers }) {
    this.#processId = options.processId
    this.#confirmTimeoutMs = options.confirmTimeoutMs
    this.#timers = options.timers ?? systemTimers
  }

  /** Adds a cache. The listener must not throw or wait. */
  onChange(listener: (touched: readonly string[] | null) => void): void {
    this.#listeners.push(listener)
  }

  /** Connects another HTTP thread of this process, whose Changes has the other end. */
  addPeer(end: LinkEnd): void {
    const peer: Peer = toLink(end)
    this.#peers.add(peer)
    peer.onMessage = (message) => this.#receive(peer, message)
    peer.onClosed = () => this.#removePeer(peer)
  }

  /**
   * Drops what was touched here and on every other HTTP thread.
   * @param writeId Of the write that is about to be answered; null = its commit is not certain, or it is not ours.
   * @throws Error when a thread does not confirm in time: then it may still hold what was dropped.
   */
  async publish(touched: readonly string[] | null, writeId: number | null = null): Promise<void> {
    this.#drop(touched)
    this.#remember(writeId)
    if (this.#peers.size === 0) return
    const id = ++this.#lastId
    const { promise: confirmed, resolve } = Promise.withResolvers<void>()
    this.#waiting.set(id, { peers: new Set(this.#peers), resolve })
    const message: PeerMessage = { kind: 'changed', id, touched, writeId }
    for (const peer of this.#peers) peer.post(message)
    const late = () => {
      throw new Error('another HTTP thread did not confirm a change in time')
    }
    await within(this.#timers, this.#confirmTimeoutMs, confirmed, { late }).finally(() =>
      this.#waiting.delete(id),
    )
  }

  /**
   * Drops as {@link publish} does, for a change whose write has been answered already: nobody waits for it, and that a
   * thread does not confirm is logged.
   */
  relay(touched: readonly string[] | null): void {
    this.publish(touched).catch((cause: unknown) =>
      log(
        'error',
        'change_not_passed_on',
        'a change could not be sent to other threads or servers; they may use the old state for some seconds',
        {
          cause,
        },
      ),
    )
  }

  /**
   * The statement that tells other processes; run it inside the transaction that makes the change.
   * @param writeId Different for every write of this process; given to {@link publish} too, once it has committed.
   */
  async notify(tx: AnySql, touched: readonly string[], writeId: number): Promise<void> {
    for (const payload of payloadsOf([this.#processId, writeId], touched))
      await tx.unsafe(NOTIFY, [CHANNEL, payload])
  }

  /**
   * Sends this process a notice that names nothing, for {@link listen} to hear: see `change-listener.ts`.
   * @returns false when it is not the database with that id; then nothing was sent.
   */
  async beat(sql: AnySql, beat: number, databaseId: string): Promise<boolean> {
    const payload = JSON.stringify([this.#processId, beat])
    const rows = await sql`
      select pg_notify(${CHANNEL}, ${payload}) from settings where name = 'database_id' and value = ${databaseId}`
    return rows.length > 0
  }

  /**
   * Hears the other processes on one database, on a connection of its own that is made again when it breaks.
   * @param onBeat Told of each {@link beat} of this process.
   */
  async listen(sql: Sql, onBeat: (beat: number) => void = () => {}): Promise<void> {
    this.startHearing()
    // After a break anything may have been missed.
    await sql.listen(
      CHANNEL,
      (payload) => this.hear(payload, onBeat),
      () => this.relay(null),
    )
  }

  /** Remembers from now on which writes were answered: their notices are about to be heard. */
  startHearing(): void {
    this.#isListening = true
  }

  /** @param payload Of a notice, by {@link notify} of any process. */
  hear(payload: string, onBeat: (beat: number) => void = () => {}): void {
    const [processId, writeId, ...touched] = JSON.parse(payload) as [string, number, ...string[]] // by notify() above
    if (touched.length === 0) {
      if (processId === this.#processId) onBeat(writeId)
    } else if (processId !== this.#processId) this.relay(touched)
    // Its answer comes another way, and perhaps later: from another thread, or not at all.
    else if (!this.#answered.has(writeId))
      this.#timers.after(ANSWERED_WITHIN_MS, () => {
        if (!this.#answered.has(writeId)) this.relay(touched)
      })
  }

  stop(): void {
    for (const peer of this.#peers) peer.close()
    this.#peers.clear()
  }

  /** Where notices are heard only, and not for ever: one that is forgotten costs a lookup. */
  #remember(writeId: number | null): void {
    if (writeId === null || !this.#isListening) return
    this.#answered.add(writeId)
    if (this.#answered.size <= ANSWERED_MAX) return
    for (const oldest of this.#answered) {
      this.#answered.delete(oldest)
      return
    }
  }

  #drop(touched: readonly string[] | null): void {
    for (const listener of this.#listeners) listener(touched)
  }

  #receive(peer: Peer, message: PeerMessage): void {
    switch (message.kind) {
      case 'changed':
        this.#drop(message.touched)
        this.#remember(message.writeId)
        peer.post({ kind: 'dropped', id: message.id })
        break
      case 'dropped':
        this.#confirm(message.id, peer)
        break
      default:
        message satisfies never
    }
  }

  #confirm(id: number, peer: Peer): void {
    const publication = this.#waiting.get(id)
    publication?.peers.delete(peer)
    if (publication?.peers.size === 0) publication.resolve()
  }

  /** A thread that is gone holds no cache: what waits for it need not. */
  #removePeer(peer: Peer): void {
    this.#peers.delete(peer)
    for (const id of [...this.#waiting.keys()]) this.#confirm(id, peer)
  }
}

type Peer = Link<PeerMessage, PeerMessage>
type PeerMessage =
  | { kind: 'changed'; id: number; touched: readonly string[] | null; writeId: number | null }
  | { kind: 'dropped'; id: number }

/**
 * JSON lists that each begin with `head` and hold as many of the names as Postgres takes in one notice. By bytes, not by
 * their number: the hash of an imported key may have 256 characters, and each of them takes up to six bytes as JSON.
 */
function* payloadsOf(head: readonly [string, number], names: readonly string[]): Generator<string> {
  const start = JSON.stringify(head).slice(0, -1)
  let payload = start
  let bytes = Buffer.byteLength(start)
  for (const name of names) {
    const part = `,${JSON.stringify(name)}`
    const partBytes = Buffer.byteLength(part)
    if (payload !== start && bytes + partBytes + 1 > PAYLOAD_BYTES_MAX) {
      yield `${payload}]`
      payload = start
      bytes = Buffer.byteLength(start)
    }
    payload += part
    bytes += partBytes
  }
  if (payload !== start) yield `${payload}]`
}

/** Postgres refuses 8000. */
const PAYLOAD_BYTES_MAX = 7999

const CHANNEL = 'tollgate_changed'
/** Kept as a row, too, while a server asks that cannot listen (`change-poller.ts`): for twice as long as it may be silent. */
const NOTIFY = `
  with kept as (
    insert into change_notices (at, payload)
    select floor(extract(epoch from clock_timestamp()) * 1000), $2
      from change_polling
     where polled_at > extract(epoch from clock_timestamp()) * 1000 - 600000
  )
  select pg_notify($1, $2)`
const ANSWERED_WITHIN_MS = 1_000
const ANSWERED_MAX = 10_000
