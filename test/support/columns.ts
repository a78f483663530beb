import { expect } from 'bun:test'
import type { ServerProcess } from './process.ts'
import { type Answer, type Json, OPERATOR_KEY, type TestServer } from './server.ts'

/** Kinds of calls: the columns of the failure table in `docs/explanation/failures.md`. Usage is checked afterwards. */
export type Column = 'limits' | 'warm' | 'cold' | 'unknown' | 'credits' | 'writes'

/** `status` 0 = the connection broke without an answer. `code` is the error's, or the verification's. */
export type Cell = { status: number; code: string; ms: number; body: Json }

type Calls = Pick<ServerProcess | TestServer, 'get' | 'post'>

/** Windows that last longer than any test. */
const YEAR_MS = 365 * 86_400_000
const LIMIT = 1_000_000
const CREDITS = 100_000
/** Longer than a flush waits for one statement: counts not written by then are lost. */
const LATE_MS = 15_000

/** Expected code of an answer with status 200. */
const CODES: Record<Column, string> = {
  limits: '',
  warm: 'VALID',
  cold: 'VALID',
  unknown: 'NOT_FOUND',
  credits: 'VALID',
  writes: '',
}

/** Makes all kinds of calls to a server, and keeps account of the answers. */
export class Columns {
  /** Answers with status 200, by column; `unclear`: calls without a clear answer, which may have been carried out. */
  readonly answered: Record<Column, number> = {
    limits: 0,
    warm: 0,
    cold: 0,
    unknown: 0,
    credits: 0,
    writes: 0,
  }
  readonly unclear: Record<Column, number> = {
    limits: 0,
    warm: 0,
    cold: 0,
    unknown: 0,
    credits: 0,
    writes: 0,
  }
  /** Times of the answers, ms of `performance.now()`. */
  readonly answeredAt: Record<Column, number[]> = {
    limits: [],
    warm: [],
    cold: [],
    unknown: [],
    credits: [],
    writes: [],
  }
  /** Ids of keys whose creation was answered. */
  readonly made: string[] = []
  calls: Calls
  /** Unix ms, on the server's clock. */
  usageRange: { start: number; end?: number } = { start: Date.now() - 7_200_000 }
  private readonly identifier = crypto.randomUUID()
  private apiId = ''
  private warmKey = ''
  private creditKey = ''
  private analyst = ''
  /** Keys that were created and never verified. */
  private stock: string[] = []

  private constructor(calls: Calls) {
    this.calls = calls
  }

  /**
   * Creates the keys and namespaces, and verifies the keys that must be cached. @param options.stock Number of cold keys.
   */
  static async open(calls: Calls, { stock = 40 }: { stock?: number } = {}): Promise<Columns> {
    const columns = new Columns(calls)
    const post = async (method: string, body: unknown) => {
      const answer = await calls.post(method, body, OPERATOR_KEY)
      expect(answer).toMatchObject({ status: 200 })
      return answer.body
    }
    const { apiId } = await post('apis.createApi', { name: 'columns' })
    columns.apiId = apiId
    columns.warmKey = (await post('keys.createKey', { apiId })).key
    columns.creditKey = (await post('keys.createKey', { apiId, remaining: CREDITS })).key
    columns.analyst = (await post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] })).rootKey
    while (columns.stock.length < stock) {
      const made = await Promise.all(Array.from({ length: 10 }, () => post('keys.createKey', { apiId })))
      columns.stock.push(...made.map(({ key }) => key))
    }
    await Promise.all([columns.ask('limits'), columns.ask('warm'), columns.ask('credits')])
    return columns
  }

  async ask(column: Column): Promise<Cell> {
    const began = performance.now()
    const answer = await this.send(column).catch(() => null)
    const ms = performance.now() - began
    if (answer === null || answer.status >= 500) this.unclear[column]++
    else if (answer.status === 200) {
      this.answered[column]++
      this.answeredAt[column].push(began + ms)
    }
    if (column === 'writes' && answer?.status === 200) this.made.push(answer.body.key)
    const body = answer?.body
    const code = body?.error?.code ?? body?.code ?? ''
    // A late answer must be right, too. A wrong NOT_FOUND is not recorded as usage and would look like a lost verification.
    if (answer?.status === 200) expect([column, code]).toEqual([column, CODES[column]])
    return { status: answer?.status ?? 0, code, ms, body }
  }

  /** Makes one call of each kind, all at once. */
  async askAll(): Promise<Record<Column, Cell>> {
    const [limits, warm, cold, unknown, credits, writes] = await Promise.all([
      this.ask('limits'),
      this.ask('warm'),
      this.ask('cold'),
      this.ask('unknown'),
      this.ask('credits'),
      this.ask('writes'),
    ])
    return { limits, warm, cold, unknown, credits, writes }
  }

  private send(column: Column): Promise<Answer> {
    const { calls, apiId } = this
    const verify = (key: string) => calls.post('keys.verifyKey', { key })
    switch (column) {
      case 'limits': {
        const { identifier } = this
        const body = { namespace: 'columns', identifier, limit: LIMIT, duration: YEAR_MS }
        return calls.post('ratelimits.limit', body, OPERATOR_KEY)
      }
      case 'warm':
        return verify(this.warmKey)
      case 'cold': {
        return this.verifyCold()
      }
      case 'unknown':
        return verify(`unknown_${crypto.randomUUID()}`)
      case 'credits':
        return verify(this.creditKey)
      case 'writes':
        return calls.post('keys.createKey', { apiId }, OPERATOR_KEY)
      default:
        return column satisfies never
    }
  }

  private async verifyCold(): Promise<Answer> {
    const key = this.stock.pop()
    if (key === undefined) throw new Error('no cold key is left')
    const answer = await this.calls.post('keys.verifyKey', { key })
    if (answer.status !== 200) this.stock.push(key) // the key is still cold
    return answer
  }

  /**
   * Calls limits and cached keys all the time, a few ms apart.
   * @returns a function that stops it and returns the latencies.
   */
  startTraffic(): () => Promise<{ p99Ms: number; worstMs: number; count: number }> {
    const took: number[] = []
    let isOver = false
    const work = async (column: 'limits' | 'warm') => {
      while (!isOver) {
        const { status, code, ms } = await this.ask(column)
        expect([column, status, code]).toEqual([column, 200, column === 'warm' ? 'VALID' : ''])
        took.push(ms)
        await Bun.sleep(4)
      }
    }
    const working = Promise.all([work('limits'), work('warm')])
    working.catch(() => {}) // handled by the code that stops it
    return async () => {
      isOver = true
      await working
      took.sort((a, b) => a - b)
      return {
        p99Ms: took[Math.floor(took.length * 0.99)] ?? 0,
        worstMs: took.at(-1) ?? 0,
        count: took.length,
      }
    }
  }

  /** The uses of the limit and the credits spent, according to the server. */
  async counted(): Promise<{ limits: number; credits: number }> {
    const look = {
      namespace: 'columns',
      identifier: this.identifier,
      limit: LIMIT,
      duration: YEAR_MS,
      cost: 0,
    }
    const window = await this.calls.post('ratelimits.limit', look, OPERATOR_KEY)
    const credits = await this.calls.post('keys.verifyKey', { key: this.creditKey, remaining: { cost: 0 } })
    expect(window).toMatchObject({ status: 200 })
    expect(credits).toMatchObject({ status: 200, body: { valid: true } })
    this.answered.credits++
    this.looks++
    return { limits: LIMIT - window.body.remaining, credits: CREDITS - credits.body.remaining }
  }

  /** Verifications with cost 0: counted as usage, without taking credits. */
  private looks = 0

  /** Credits that answers reported as spent. */
  get spent(): number {
    return this.answered.credits - this.looks
  }

  /** Verifications answered with an outcome that is recorded. */
  get verified(): number {
    return this.answered.warm + this.answered.cold + this.answered.credits
  }

  /** Number of verifications in analytics; NaN when it does not answer. */
  async usage(): Promise<number> {
    const query = { apiId: this.apiId, ...this.usageRange, groupBy: 'hour' }
    const { status, body } = await this.calls.get('analytics.getVerifications', query, this.analyst)
    if (status !== 200) return Number.NaN
    return body.reduce((sum: number, { total }: { total: number }) => sum + total, 0)
  }

  /** Under load, waits until everything answered before this call is in the database. @returns the time of that. */
  async untilFlushed({ url }: { url: string }): Promise<number> {
    const at = performance.now()
    const { verified } = this
    const flushes = async () => {
      const text = await (await fetch(`${url}/metrics`)).text()
      const counts = text.matchAll(/^tollgate_limiter_windows_flushed_total\S* (\d+)$/gm)
      return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
    }
    const before = await flushes()
    // There is one window, so each flush writes one row. The second flush from now began after this call.
    while ((await flushes()) < before + 2 || !((await this.usage()) >= verified)) await Bun.sleep(50)
    return at
  }

  /**
   * When a process is killed, counts in memory may be lost: those answered after `sinceMs`. Credits and keys are not in
   * memory and are never lost.
   */
  async expectCountedBefore(sinceMs: number): Promise<void> {
    const before = (column: Column) => this.answeredAt[column].filter((at) => at < sinceMs).length
    const verifiedBefore = before('warm') + before('cold') + before('credits')
    const verifiedMax = this.verified + this.unclear.warm + this.unclear.cold + this.unclear.credits
    const usage = await this.usage()
    expect(usage).toBeGreaterThanOrEqual(verifiedBefore)
    expect(usage).toBeLessThanOrEqual(verifiedMax)
    const limitsBefore = before('limits')
    const { limits, credits } = await this.counted()
    expect(limits).toBeGreaterThanOrEqual(limitsBefore)
    expect(limits).toBeLessThanOrEqual(this.answered.limits + this.unclear.limits)
    expect(credits).toBeGreaterThanOrEqual(this.spent)
    expect(credits).toBeLessThanOrEqual(this.spent + this.unclear.credits)
    await this.expectMade()
  }

  /** Expects every key whose creation was answered. */
  async expectMade(): Promise<void> {
    for (const key of this.made.splice(0)) {
      const { body } = await this.calls.post('keys.verifyKey', { key })
      expect(body).toMatchObject({ code: 'VALID' })
      this.answered.cold++
    }
  }

  /** Runs clients that make all kinds of calls until the server is gone. */
  async load({ clients }: { clients: number }): Promise<void> {
    const work = async (client: number) => {
      const columns = ['limits', 'warm', 'unknown', 'credits', 'writes', 'cold'] as const
      for (let i = client; ; i++) {
        const column = columns[i % (this.stock.length > clients ? 6 : 5)] ?? 'limits'
        const { status, code } = await this.ask(column)
        if (status === 0) return
        expect([column, status, code]).toEqual([column, 200, expect.stringMatching(/^(VALID|NOT_FOUND|)$/)])
      }
    }
    await Promise.all(Array.from({ length: clients }, (_, client) => work(client)))
  }

  /** Expects that nothing is lost or counted twice: at least the answered calls, at most the unclear ones in addition. */
  async expectAllCounted(): Promise<void> {
    const { limits, credits } = await this.counted()
    expect(limits).toBeGreaterThanOrEqual(this.answered.limits)
    expect(limits).toBeLessThanOrEqual(this.answered.limits + this.unclear.limits)
    expect(credits).toBeGreaterThanOrEqual(this.spent)
    expect(credits).toBeLessThanOrEqual(this.spent + this.unclear.credits)
    const deadline = performance.now() + 5000
    // A connection may still be busy with earlier statements, and the call that uses it fail.
    while (!((await this.usage()) >= this.verified) && performance.now() < deadline) await Bun.sleep(50)
    // A verification that was decided but whose answer was cut off is counted too.
    const unclear = this.unclear.warm + this.unclear.cold + this.unclear.credits
    const usage = await this.usage()
    if (!(usage >= this.verified)) {
      await Bun.sleep(LATE_MS)
      throw new Error(
        `${usage} of ${this.verified} verifications are counted, ${await this.usage()} of them ${LATE_MS} ms later`,
      )
    }
    expect(usage).toBeLessThanOrEqual(this.verified + unclear)
  }
}

/** Expects every call to succeed. */
export function expectHealthy(cells: Record<Column, Cell>): void {
  expect(summaryOf(cells)).toEqual({
    limits: '200',
    warm: '200 VALID',
    cold: '200 VALID',
    unknown: '200 NOT_FOUND',
    credits: '200 VALID',
    writes: '200',
  })
}

/**
 * Expects the behaviour without a database: calls answered from memory succeed; calls that need the database fail with an
 * error, never with NOT_FOUND, and give nothing away.
 */
export function expectAway(cells: Record<Column, Cell>, { withinMs }: { withinMs: number }): void {
  const failure = '500 INTERNAL_SERVER_ERROR'
  expect(summaryOf(cells)).toEqual({
    limits: '200',
    warm: '200 VALID',
    cold: failure,
    unknown: failure,
    credits: failure,
    writes: failure,
  })
  for (const { ms } of Object.values(cells)) expect(ms).toBeLessThan(withinMs)
}

export const summaryOf = (cells: Record<Column, Cell>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(cells).map(([name, { status, code }]) => [name, `${status} ${code}`.trim()]),
  )
