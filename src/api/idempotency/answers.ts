import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto'
import type { AnySql, Transaction } from '../../db/connect.ts'
import { ApiError } from '../../errors.ts'
import type { Clock } from '../../lib/clock.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import { type AnswerRow, claimAnswer, deleteAnswer, findAnswers, insertAnswer } from './store.ts'

/** Records what a create made, in the transaction that makes it. */
export type Keep<T> = (tx: Transaction, made: T) => Promise<void>

/** For creates that are not recorded. */
export const keepNothing: Keep<unknown> = async () => {}

/** How long a call with an `Idempotency-Key` is answered as the first time, ms. */
export const KEYED_MS = 600_000
/** How long a call without one may be sent again after it failed, ms. */
export const UNANSWERED_MS = 60_000

/**
 * Makes creates that are sent again return what the first call made, one for each thread.
 *
 * A create writes its answer into `create_answers` in its own transaction, so both are there or neither.
 *
 * - With an `Idempotency-Key` the answer stays for {@link KEYED_MS}. Of two calls at once, the second waits for the first's
 *   commit.
 * - Without one, equal creates may both be meant. So the answer is deleted again before it is sent: what is still there was
 *   never sent, because the call failed behind its commit, or its server died. Then an equal call of the same root key gets
 *   it, once, within {@link UNANSWERED_MS}. What other threads have only just made is waited for, as they are about to
 *   delete it. A server that dies between that and the client's receipt leaves a record that the client does not know.
 *
 * Rows are found by hashes keyed with the root key's text, and encrypted with a key from it (HKDF, AES-256-GCM).
 */
export class CreateAnswers {
  readonly #sql: AnySql
  readonly #clock: Clock
  readonly #writer = randomBytes(12).toString('base64url')
  /** Attempts of this thread whose calls run. */
  readonly #running = new Set<string>()

  constructor({ sql, clock }: { sql: AnySql; clock: Clock }) {
    this.#sql = sql
    this.#clock = clock
  }

  /**
   * @param rootKey The caller's text.
   * @param key The `Idempotency-Key`; null = none.
   */
  attempt<T>(rootKey: string, { path, key, body }: { path: string; key: string | null; body: string }) {
    return new CreateAttempt<T>(
      { sql: this.#sql, clock: this.#clock, writer: this.#writer, running: this.#running },
      { rootKey, isKeyed: key !== null, ...digestsOf(rootKey, path, key, body) },
    )
  }
}

type Thread = { sql: AnySql; clock: Clock; writer: string; running: Set<string> }
type Digests = { fingerprint: Uint8Array; body: Uint8Array }

function digestsOf(rootKey: string, path: string, key: string | null, body: string): Digests {
  const digest = (...texts: string[]) => createHmac('sha256', rootKey).update(JSON.stringify(texts)).digest()
  return {
    fingerprint: key === null ? digest('body', path, body) : digest('key', path, key),
    body: digest('body', path, body),
  }
}

/** An earlier call made this. */
class AnsweredBefore<T> extends Error {
  override name = 'AnsweredBefore'
  constructor(readonly answer: T) {
    super('the call was carried out before')
  }
}

/** One call of a create. */
export class CreateAttempt<T> {
  readonly #thread: Thread
  readonly #call: { rootKey: string; isKeyed: boolean } & Digests
  #workspaceId: WorkspaceId | null = null
  /** Of the row that this call wrote or took over. */
  #attempt: string | null = null
  #isTakenOver = false

  constructor(thread: Thread, call: { rootKey: string; isKeyed: boolean } & Digests) {
    this.#thread = thread
    this.#call = call
  }

  /**
   * Runs `work`, which must call {@link find} as soon as the caller is known, and {@link keep} in its transaction.
   * @returns what it made, or what an earlier call made.
   * @throws what `work` throws; ApiError BAD_REQUEST when the `Idempotency-Key` belongs to another body.
   */
  async carryOut(work: () => Promise<T>): Promise<T> {
    for (let left = ROUNDS_MAX; ; left--) {
      this.#attempt = null
      this.#isTakenOver = false
      try {
        const answer = await this.#orEarlier(work)
        if (await this.#ownAnswer()) return answer
        if (!this.#isTakenOver || left === 1)
          throw new Error('an equal call took this one for lost and was answered in its place')
        // The list with that answer was read before another equal call took it. Nothing was made, so the call begins anew.
      } finally {
        if (this.#attempt !== null) this.#thread.running.delete(this.#attempt)
      }
    }
  }

  /**
   * No other call may be answered with the same. So an answer is sent only once this succeeded.
   * @returns false when another call is answered with it: it took this call for lost, because it hung, or was faster to take what was lost.
   */
  async #ownAnswer(): Promise<boolean> {
    const { sql, writer } = this.#thread
    const attempt = this.#attempt
    return attempt === null || (await deleteAnswer(sql, this.#place, { attempt, writer }))
  }

  async #orEarlier(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (cause) {
      if (cause instanceof AnsweredBefore) return cause.answer
      // Of two calls at once with one Idempotency-Key, the second may be refused because of what the first made.
      if (this.#call.isKeyed && this.#workspaceId !== null && isOfOthers(cause)) {
        const answer = await this.#findKeyed()
        if (answer !== null) return answer
      }
      throw cause
    }
  }

  get #place() {
    if (this.#workspaceId === null) throw new Error('the caller is not known yet')
    return { workspaceId: this.#workspaceId, fingerprint: this.#call.fingerprint }
  }

  /** Ends the call when an earlier one made what it asks for. */
  async find(workspaceId: WorkspaceId): Promise<void> {
    this.#workspaceId = workspaceId
    const answer = this.#call.isKeyed ? await this.#findKeyed() : await this.#findUnanswered()
    if (answer !== null) throw new AnsweredBefore(answer)
  }

  async #findKeyed(): Promise<T | null> {
    const { sql, clock } = this.#thread
    const [row] = await findAnswers(sql, this.#place, clock())
    if (row === undefined) return null
    if (!Buffer.from(row.body).equals(this.#call.body))
      throw new ApiError(
        'BAD_REQUEST',
        'a call with this Idempotency-Key and another body was carried out; use a new Idempotency-Key for each create',
      )
    return this.#unseal(row)
  }

  async #findUnanswered(): Promise<T | null> {
    const { sql, clock, running, writer } = this.#thread
    const lookUp = async () =>
      (await findAnswers(sql, this.#place, clock())).filter(({ attempt }) => !running.has(attempt))
    let left = await lookUp()
    for (const waitMs of WAITS_MS) {
      const answer = await this.#takeOverOne(left.filter((row) => row.writer === writer))
      if (answer !== null || left.every((row) => row.writer === writer)) return answer
      await Bun.sleep(waitMs)
      const seen = left
      left = (await lookUp()).filter((row) =>
        seen.some(({ attempt, writer }) => attempt === row.attempt && writer === row.writer),
      )
    }
    return await this.#takeOverOne(left)
  }

  /** @returns the answer of one that no other call takes; null = there is none. */
  async #takeOverOne(rows: readonly AnswerRow[]): Promise<T | null> {
    const { sql, writer, running } = this.#thread
    for (const row of rows) {
      const { attempt } = row
      if (running.has(attempt)) continue
      running.add(attempt)
      this.#attempt = attempt
      this.#isTakenOver = true
      if (
        row.writer === writer ||
        (await claimAnswer(sql, this.#place, { attempt, from: row.writer, to: writer }))
      )
        return this.#unseal(row)
      running.delete(attempt)
      this.#attempt = null
      this.#isTakenOver = false
    }
    return null
  }

  /**
   * Writes the answer. As the transaction may run again, so may this.
   * @throws CreatedMeanwhile when another call with the same `Idempotency-Key` was faster.
   */
  readonly keep = async (tx: Transaction, answer: T): Promise<void> => {
    const { clock, writer, running } = this.#thread
    const { isKeyed, body } = this.#call
    const attempt = isKeyed ? '' : (this.#attempt ?? randomBytes(12).toString('base64url'))
    if (!isKeyed) {
      this.#attempt = attempt
      running.add(attempt)
    }
    const now = clock()
    const row = { attempt, writer, body, sealed: this.#seal(attempt, answer) }
    const times = { expiresAt: now + (isKeyed ? KEYED_MS : UNANSWERED_MS), now }
    if (!(await insertAnswer(tx, this.#place, row, times))) throw new CreatedMeanwhile()
  }

  #seal(attempt: string, answer: T): Uint8Array {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv('aes-256-gcm', this.#key(), nonce).setAAD(Buffer.from(attempt))
    const text = Buffer.concat([cipher.update(JSON.stringify(answer), 'utf8'), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), text])
  }

  #unseal({ attempt, sealed }: AnswerRow): T {
    const bytes = Buffer.from(sealed)
    const decipher = createDecipheriv('aes-256-gcm', this.#key(), bytes.subarray(0, NONCE_BYTES))
      .setAAD(Buffer.from(attempt))
      .setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES))
    const text = Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()])
    return JSON.parse(text.toString()) as T // sealed by this class, for the same path
  }

  #key(): Buffer {
    const { rootKey, fingerprint } = this.#call
    return Buffer.from(hkdfSync('sha256', rootKey, fingerprint, 'tollgate create answer', 32))
  }
}

/** Undoes the transaction. */
class CreatedMeanwhile extends ApiError {
  override name = 'CreatedMeanwhile'
  constructor() {
    super('BAD_REQUEST', 'another call with this Idempotency-Key is being carried out')
  }
}

/** Refusals that what another call made can be the reason of. */
const isOfOthers = (cause: unknown): boolean =>
  cause instanceof CreatedMeanwhile ||
  (cause instanceof ApiError && (cause.code === 'CONFLICT' || cause.code === 'PRECONDITION_FAILED'))

/** How long other threads have to delete what they answered, in the order of looks: half a second in all. */
const WAITS_MS = [10, 20, 40, 80, 150, 200]
/** How often a call takes an answer that another took at the same time, before it gives up. */
const ROUNDS_MAX = 20
const NONCE_BYTES = 12
const TAG_BYTES = 16
