import type { AnySql } from '../../src/db/connect.ts'
import type { Balancer, Member } from './balancer.ts'

/**
 * What clients do while servers are replaced, and the books about it: credits, limits, verifications, keys that are made
 * and deleted. `wrong` has every answer that must not be.
 */
export class Load {
  readonly wrong: string[] = []
  readonly #balancer: Balancer
  readonly #apiId: string
  #isOver = false
  readonly #workers: Promise<void>[] = []
  readonly #credited: { keyId: string; answered: number; cutOff: number }[] = []
  readonly #verified = new Map<Member, { keyId: string; key: string; times: number[]; cutOff: number }>()
  #killedAt = new Map<Member, number>()
  /** Keys that were made and deleted, and limits that were asked. */
  readonly done = { deleted: 0, limits: 0 }

  private constructor(balancer: Balancer, apiId: string) {
    this.#balancer = balancer
    this.#apiId = apiId
  }

  static async start(balancer: Balancer): Promise<Load> {
    const api = await balancer.call('apis.createApi', { name: 'upgraded' })
    const load = new Load(balancer, api?.body.apiId)
    for (let worker = 0; worker < 2; worker++) {
      load.#workers.push(load.#spendCredits(), load.#limit(`worker ${worker}`), load.#verify())
    }
    load.#workers.push(load.#makeAndDelete())
    return load
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await Promise.all(this.#workers)
  }

  /** Called right before a kill: what the server has not written by then is lost. */
  willDie(member: Member): void {
    this.#killedAt.set(member, performance.now())
  }

  /** Answered ≤ spent ≤ answered + cut off, and remaining falls. */
  async #spendCredits(): Promise<void> {
    const { key, keyId } = await this.#makeKey({ remaining: CREDITS })
    const book = { keyId, answered: 0, cutOff: 0 }
    this.#credited.push(book)
    let last = CREDITS
    await this.#repeat(async () => {
      const reply = await this.#balancer.call('keys.verifyKey', { key })
      if (reply === null) {
        book.cutOff++
        return
      }
      const { valid, remaining } = reply.body
      if (valid !== true || remaining >= last) this.#complain('credits', reply, `after ${last}`)
      book.answered++
      last = remaining
    })
  }

  /** Each server counts for itself, and never less than it said before. */
  async #limit(identifier: string): Promise<void> {
    const last = new Map<Member, number>()
    const body = { namespace: 'upgraded', identifier, limit: 1_000_000, duration: 365 * 86_400_000 }
    await this.#repeat(async () => {
      const reply = await this.#balancer.call('ratelimits.limit', body)
      if (reply === null) return
      const { success, remaining } = reply.body
      const before = last.get(reply.member) ?? Number.POSITIVE_INFINITY
      if (success !== true || remaining >= before) this.#complain('limit', reply, `after ${before}`)
      last.set(reply.member, remaining)
      this.done.limits++
    })
  }

  /** A key for each server, so that what a killed server lost is told from what others counted. */
  async #verify(): Promise<void> {
    await this.#repeat(async () => {
      for (const member of this.#balancer.inRotation) {
        let book = this.#verified.get(member)
        if (book === undefined) {
          book = { ...(await this.#makeKey({})), times: [], cutOff: 0 }
          this.#verified.set(member, book)
        }
        const at = performance.now()
        const reply = await this.#balancer.call('keys.verifyKey', { key: book.key }, member)
        if (reply === null) book.cutOff++
        else if (reply.body.valid !== true) this.#complain('verification', reply)
        else book.times.push(at)
      }
    })
  }

  /** A key is known to all as soon as it is made, and to nobody soon after it was deleted. */
  async #makeAndDelete(): Promise<void> {
    await this.#repeat(async () => {
      const { key, keyId } = await this.#makeKey({})
      for (const member of this.#balancer.inRotation) {
        const reply = await this.#balancer.call('keys.verifyKey', { key }, member)
        if (reply !== null && reply.body.valid !== true) this.#complain('new key', reply)
      }
      const deleted = await this.#balancer.call('keys.deleteKey', { keyId })
      if (deleted === null) return
      if (deleted.status !== 200) this.#complain('deletion', deleted)
      for (const member of this.#balancer.inRotation) {
        // The one that deleted it refuses at once, the others when they have heard of it.
        const until = performance.now() + (member === deleted.member ? 0 : HEARD_WITHIN_MS)
        for (;;) {
          const reply = await this.#balancer.call('keys.verifyKey', { key }, member)
          if (reply === null || reply.body.code === 'NOT_FOUND') break
          if (performance.now() > until) {
            this.#complain('deleted key', reply)
            break
          }
          await Bun.sleep(5)
        }
      }
      this.done.deleted++
    })
  }

  async #makeKey(options: object): Promise<{ key: string; keyId: string }> {
    for (;;) {
      const reply = await this.#balancer.call('keys.createKey', { apiId: this.#apiId, ...options })
      if (reply?.status === 200) return { key: reply.body.key, keyId: reply.body.keyId }
      if (reply !== null) this.#complain('new key', reply)
      if (this.#isOver) throw new Error('no key was made')
    }
  }

  async #repeat(work: () => Promise<void>): Promise<void> {
    while (!this.#isOver) {
      await work()
      await Bun.sleep(PAUSE_MS)
    }
  }

  #complain(
    what: string,
    { member, status, body }: { member: Member; status: number; body: unknown },
    more = '',
  ): void {
    this.wrong.push(`${what} ${more} by ${member.name}: ${status} ${JSON.stringify(body)}`)
  }

  /** Compares the books with the database, once all servers have stopped. @returns what differs. */
  async audit(sql: AnySql): Promise<string[]> {
    const wrong: string[] = []
    for (const { keyId, answered, cutOff } of this.#credited) {
      const [row] = await sql<
        { spent: number }[]
      >`select ${CREDITS} - remaining as spent from keys where id = ${keyId}`
      const spent = row?.spent ?? Number.NaN
      if (!(answered <= spent && spent <= answered + cutOff))
        wrong.push(`credits: ${answered} answered, ${spent} spent, ${cutOff} cut off`)
    }
    for (const [member, { keyId, times, cutOff }] of this.#verified) {
      const [row] = await sql<{ counted: number }[]>`
        select coalesce(sum(valid), 0)::integer as counted from usage_verifications where key_id = ${keyId}`
      const counted = row?.counted ?? Number.NaN
      const diedAt = this.#killedAt.get(member) ?? Number.POSITIVE_INFINITY
      const written = times.filter((at) => at < diedAt - LOST_MS).length
      if (!(written <= counted && counted <= times.length + cutOff))
        wrong.push(`usage of ${member.name}: ${times.length} answered, ${counted} counted, ${cutOff} cut off`)
    }
    return wrong
  }
}

const CREDITS = 1_000_000
const PAUSE_MS = 10
const HEARD_WITHIN_MS = 3_000
/** A kill costs usage of a flush interval, and on a busy machine of the flush that is under way. */
const LOST_MS = 2_000
