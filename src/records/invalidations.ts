import type { AnySql, Sql } from '../db/connect.ts'
import { type Link, type LinkEnd, toLink } from '../lib/link.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'
import { log, logUnknownFormat } from '../log.ts'

/**
 * Invalidates cached records in every thread and process after a write, so that the next verification sees the write.
 *
 * 1. A write commits and names what it touched: ids of keys, identities, APIs, workspaces, namespaces; hashes of new keys.
 * 2. The caches of this thread drop it at once.
 * 3. The other HTTP threads of this process get a message, drop it, and confirm. Only then is the write answered.
 * 4. Other processes hear of it through NOTIFY, sent inside the transaction: it arrives if and only if that commits.
 * 5. This process hears its own notices too. Those of answered writes are ignored. Others count: a commit that was under way
 *    when its connection broke may be carried out after its write failed, and after the caches dropped what it touched.
 *
 * Refused: expiry times alone. They are simpler, but a revoked key would work until they pass.
 */
export class Invalidations {
  /** Called with what each change touched; null = everything may have changed. */
  #listeners: ((touched: readonly string[] | null) => void)[] = []
  #peers = new Set<Peer>()
  /** Broadcasts that some peer has not confirmed yet. */
  #waiting = new Map<number, { peers: Set<Peer>; resolve: () => void }>()
  #lastId = 0
  /**
   * The latest writes of this process that were answered: their own notices tell nothing new. To drop twice instead would cost
   * a look-up for each write (0.8 ms of CPU), and the statements of a call would depend on when a notice arrives. Numbers, as
   * ten thousand strings of different ages would fragment the heap.
   */
  readonly #answered = new Set<number>()
  #isListening = false
  /** Caches are about to be emptied because of a notice that was not understood. */
  #isForgetting = false
  /** The name of this process among those on the same database. */
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

  /** Connects another HTTP thread of this process, whose `Invalidations` has the other end. */
  addPeer(end: LinkEnd): void {
    const peer: Peer = toLink(end)
    this.#peers.add(peer)
    peer.onMessage = (message) => this.#receive(peer, message)
    peer.onClosed = () => this.#removePeer(peer)
  }

  /**
   * Drops what was touched from the caches of every HTTP thread of this process.
   * @param writeId Of the write that is about to be answered; null = the commit is not certain, or another process made it.
   * @throws Error when a thread does not confirm in time: it may still hold the old records.
   */
  async broadcastAndWait(touched: readonly string[] | null, writeId: number | null = null): Promise<void> {
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
   * The same for a change whose write has been answered already: nobody waits. A thread that does not confirm is logged.
   */
  broadcast(touched: readonly string[] | null): void {
    this.broadcastAndWait(touched).catch((cause: unknown) =>
      log(
        'error',
        'change_not_passed_on',
        'a change could not be sent to other threads or servers; they may use the old state for some seconds',
        { cause },
      ),
    )
  }

  /**
   * Resolves once every HTTP thread of this process has dropped what was broadcast before.
   * @throws Error when a thread does not confirm in time.
   */
  async settled(): Promise<void> {
    await this.broadcastAndWait([])
  }

  /**
   * Tells other processes. Runs inside the transaction that makes the change.
   * @param writeId Different for every write of this process. After the commit {@link broadcastAndWait} gets it too.
   */
  async notify(tx: AnySql, touched: readonly string[], writeId: number): Promise<void> {
    for (const payload of payloadsOf([this.#processId, writeId], touched))
      await tx.unsafe(NOTIFY, [CHANNEL, payload])
  }

  /**
   * Sends this process a notice without names, which {@link listen} hears: see `change-listener.ts`.
   * @returns false when another database answers: then nothing was sent.
   */
  async beat(sql: AnySql, beat: number, databaseId: string): Promise<boolean> {
    const payload = JSON.stringify([this.#processId, beat])
    const rows = await sql`
      select pg_notify(${CHANNEL}, ${payload}) from settings where name = 'database_id' and value = ${databaseId}`
    return rows.length > 0
  }

  /**
   * Hears the other processes on the same database, on a connection of its own that is reopened when it breaks.
   * @param onBeat Called with each {@link beat} of this process.
   */
  async listen(sql: Sql, onBeat: (beat: number) => void = () => {}): Promise<void> {
    this.startHearing()
    // After a break anything may have been missed.
    await sql.listen(
      CHANNEL,
      (payload) => this.hear(payload, onBeat),
      () => this.broadcast(null),
    )
  }

  /** From now on the answered writes are remembered, as their notices are about to be heard. */
  startHearing(): void {
    this.#isListening = true
  }

  /** @param payload Of a notice, by {@link notify} of any process. */
  hear(payload: string, onBeat: (beat: number) => void = () => {}): void {
    const notice = readNotice(payload)
    if (notice === null) {
      this.#hearUnknown(payload)
      return
    }
    const { processId, writeId, touched } = notice
    if (touched.length === 0) {
      if (processId === this.#processId) onBeat(writeId)
    } else if (processId !== this.#processId) this.broadcast(touched)
    // That the write was answered is known from its thread, perhaps after its notice.
    else if (!this.#answered.has(writeId))
      this.#timers.after(ANSWERED_WITHIN_MS, () => {
        if (!this.#answered.has(writeId)) this.broadcast(touched)
      })
  }

  /** A newer release changed something: it may be anything, but caches are emptied a few times a second at most. */
  #hearUnknown(payload: string): void {
    logUnknownFormat('notice of a change', payload.slice(0, 20))
    if (this.#isForgetting) return
    this.#isForgetting = true
    this.#timers.after(FORGET_EVERY_MS, () => {
      this.#isForgetting = false
      this.broadcast(null)
    })
  }

  stop(): void {
    for (const peer of this.#peers) peer.close()
    this.#peers.clear()
  }

  /** Only where notices are heard, and only the latest: a forgotten one costs a look-up. */
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

  /** A thread that has ended has no cache: nothing needs to wait for it. */
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
 * A notice of {@link Invalidations.notify}: format 1 is a list that begins with the process, which is a text. Another format
 * begins with its number; names of a new kind need one too.
 * @returns null when a newer release made it.
 */
function readNotice(payload: string): { processId: string; writeId: number; touched: string[] } | null {
  let list: unknown
  try {
    list = JSON.parse(payload)
  } catch {
    return null
  }
  if (!Array.isArray(list)) return null
  const [processId, writeId, ...touched]: unknown[] = list
  if (typeof processId !== 'string' || typeof writeId !== 'number') return null
  return touched.every((name) => typeof name === 'string') ? { processId, writeId, touched } : null
}

/**
 * JSON lists that begin with `head` and hold as many names as fit into one notice. Counted in bytes: the hash of an imported
 * key may have 256 characters, each of up to six bytes as JSON.
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
/** Also kept as a row while a server polls that cannot listen (`change-poller.ts`): for twice as long as that may be silent. */
const NOTIFY = `
  with kept as (
    insert into change_notices (at, payload)
    select floor(extract(epoch from clock_timestamp()) * 1000), $2
      from change_polling
     where polled_at > extract(epoch from clock_timestamp()) * 1000 - 600000
  )
  select pg_notify($1, $2)`
const ANSWERED_WITHIN_MS = 1_000
const FORGET_EVERY_MS = 200
const ANSWERED_MAX = 10_000
