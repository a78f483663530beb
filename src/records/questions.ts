import type { AnySql, Sql } from '../db/connect.ts'
import { systemTimers, type Timers, within } from '../lib/timers.ts'

/** A question to the other processes on the same database. Plain data, as another thread may ask it. */
export type Question = {
  /** What is asked about. */
  subject: string
  /** The workspace that asks. */
  owner: string
  /** Who is expected to answer: these servers, and so many processes in all. The wait ends once they have. */
  expected: { nodeIds: readonly string[]; processes: number }
}

/** What another process answered. */
export type Answer = {
  processId: string
  /** Of its data directory, which several processes may share. */
  nodeId: string
  host: string
  answer: string
  /** From the question to its answer, ms. */
  afterMs: number
}

/**
 * Asks the other processes on the same database what they would answer, and answers them. A notice carries the question, and
 * one to the asker alone each answer. Postgres delivers notices in the order of their commits, and a process hears changes
 * (`invalidations.ts`) on the same connection: what was committed before the question has been dropped from its caches when it
 * answers. A process whose connection is lost hears no question either. No answer therefore means: perhaps not heard yet.
 *
 * Older releases do not listen to these channels, and count as silent. Questions are few: beyond {@link OWNER_MAX} of a
 * workspace and {@link ASKED_MAX} in all within {@link PERIOD_MS} none is sent, and beyond {@link ANSWERED_MAX} none is
 * answered.
 */
export class Questions {
  readonly #self: { processId: string; nodeId: string; host: string }
  readonly #sql: AnySql
  readonly #answer: (subject: string) => Promise<string | null>
  readonly #timers: Timers
  readonly #open = new Map<number, (answer: Omit<Answer, 'afterMs'>) => void>()
  #lastId = 0
  readonly #asked: { owner: string; at: number }[] = []
  #answered = { since: Number.NEGATIVE_INFINITY, count: 0 }

  /** @param options.answer Null = this process cannot say. */
  constructor(options: {
    self: { processId: string; nodeId: string; host: string }
    sql: AnySql
    answer: (subject: string) => Promise<string | null>
    timers?: Timers
  }) {
    this.#self = options.self
    this.#sql = options.sql
    this.#answer = options.answer
    this.#timers = options.timers ?? systemTimers
  }

  /** @param sql The connection that hears changes, after it has begun to. */
  async listen(sql: Sql): Promise<void> {
    await sql.listen(QUESTIONS, (payload) => this.hearQuestion(payload))
    await sql.listen(answersTo(this.#self.processId), (payload) => this.hearAnswer(payload))
  }

  /**
   * @returns what was answered within {@link WAIT_MS}; null = too much is being asked.
   * @throws the driver's error when the question cannot be sent.
   */
  async ask({ subject, owner, expected }: Question): Promise<Answer[] | null> {
    const askedAt = this.#timers.now()
    if (!this.#mayAsk(owner, askedAt)) return null
    const id = ++this.#lastId
    const answers = new Map<string, Answer>()
    const { promise: complete, resolve } = Promise.withResolvers<void>()
    this.#open.set(id, (answer) => {
      if (answers.size === ANSWERS_MAX) return
      answers.set(answer.processId, { ...answer, afterMs: Math.round(this.#timers.now() - askedAt) })
      const heard = new Set([...answers.values()].map(({ nodeId }) => nodeId))
      if (answers.size >= expected.processes && expected.nodeIds.every((each) => heard.has(each))) resolve()
    })
    try {
      await this.#notify(QUESTIONS, [FORMAT, this.#self.processId, id, subject])
      await within(this.#timers, WAIT_MS, complete, { late: () => {} })
    } finally {
      this.#open.delete(id)
    }
    return [...answers.values()]
  }

  hearQuestion(payload: string): void {
    const [asker, id, subject] = fieldsOf(payload)
    if (typeof asker !== 'string' || typeof id !== 'number' || typeof subject !== 'string') return
    if (asker === this.#self.processId || !this.#mayAnswer()) return
    // In a later turn: after a reconnection the caches are told in this one that anything may have changed.
    this.#timers.soon(() => {
      this.#reply(asker, id, subject).catch(() => {}) // the asker says that there was no answer
    })
  }

  hearAnswer(payload: string): void {
    const [id, processId, nodeId, host, answer] = fieldsOf(payload)
    if (typeof id !== 'number' || typeof processId !== 'string' || typeof nodeId !== 'string') return
    if (typeof host !== 'string' || typeof answer !== 'string') return
    this.#open.get(id)?.({ processId, nodeId, host, answer })
  }

  async #reply(asker: string, id: number, subject: string): Promise<void> {
    const { processId, nodeId, host } = this.#self
    const answer = await this.#answer(subject)
    if (answer === null) return
    await this.#notify(answersTo(asker), [FORMAT, id, processId, nodeId, host, answer])
  }

  async #notify(channel: string, fields: readonly (string | number)[]): Promise<void> {
    await this.#sql`select pg_notify(${channel}, ${JSON.stringify(fields)})`
  }

  #mayAsk(owner: string, now: number): boolean {
    while (this.#asked[0] !== undefined && now - this.#asked[0].at >= PERIOD_MS) this.#asked.shift()
    const ofOwner = this.#asked.filter((each) => each.owner === owner).length
    if (this.#asked.length >= ASKED_MAX || ofOwner >= OWNER_MAX) return false
    this.#asked.push({ owner, at: now })
    return true
  }

  #mayAnswer(): boolean {
    const now = this.#timers.now()
    if (now - this.#answered.since >= PERIOD_MS) this.#answered = { since: now, count: 0 }
    return ++this.#answered.count <= ANSWERED_MAX
  }
}

/** Nothing of what a newer release sends in another format. */
function fieldsOf(payload: string): unknown[] {
  let list: unknown
  try {
    list = JSON.parse(payload)
  } catch {
    return []
  }
  if (!Array.isArray(list)) return []
  const [format, ...fields]: unknown[] = list
  return format === FORMAT ? fields : []
}

const FORMAT = 1
const QUESTIONS = 'tollgate_questions'
/** A channel of each process, so that an answer is sent to one server and not to all. */
const answersTo = (processId: string) => `tollgate_answers_${processId}`

/** A server in health answers within milliseconds. */
export const WAIT_MS = 1_000
export const PERIOD_MS = 10_000
export const OWNER_MAX = 20
export const ASKED_MAX = 60
/** Of ten servers that ask as much as they may. */
export const ANSWERED_MAX = 600
/** As many as are listed, with some that are about to end. */
const ANSWERS_MAX = 200
