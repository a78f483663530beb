import { type ServerProcess, spawnServer } from '../support/process.ts'
import { type Json, OPERATOR_KEY } from '../support/server.ts'

/** A server behind the balancer. */
export type Member = {
  name: string
  process: ServerProcess
  /** Calls go to it. */
  isIn: boolean
  isKilled: boolean
  inFlight: number
  answered: number
}
/** `null` = the server was killed before it answered: whether it did what it was asked is not known. */
export type Reply = { status: number; body: Json; member: Member } | null

/**
 * Sends each call to the next server, as a balancer does: one that cannot be reached is passed over. A server is taken out
 * before it is stopped. A call that ends in another way is in `broken`.
 */
export class Balancer {
  readonly members: Member[] = []
  readonly broken: string[] = []
  /** The longest wait for an answer so far, ms. */
  slowestMs = 0
  #next = 0

  async add(name: string, env: Record<string, string>, options: { main?: string } = {}): Promise<Member> {
    const process = await spawnServer(env, options)
    const member = { name, process, isIn: true, isKilled: false, inFlight: 0, answered: 0 }
    this.members.push(member)
    return member
  }

  get inRotation(): Member[] {
    return this.members.filter(({ isIn }) => isIn)
  }

  /** @param to Absent = the next one. */
  async call(method: string, body: object, to?: Member): Promise<Reply> {
    const members = this.inRotation
    const member = to ?? members[this.#next++ % members.length]
    if (member === undefined) throw new Error('no server is in rotation')
    member.inFlight++
    const beganAt = performance.now()
    try {
      const { status, body: answer } = await member.process.post(method, body, OPERATOR_KEY)
      member.answered++
      this.slowestMs = Math.max(this.slowestMs, performance.now() - beganAt)
      if (status >= 500) this.broken.push(`${member.name} ${method}: ${status} ${reasonOf(member, answer)}`)
      return { status, body: answer, member }
    } catch (cause) {
      if (!member.isKilled) this.broken.push(`${member.name} ${method}: ${cause}`)
      return null
    } finally {
      member.inFlight--
    }
  }

  /** Until each server has answered some calls as the rotation is now. */
  async settle(calls = 12): Promise<void> {
    const wanted = this.inRotation.map((member) => ({ member, answered: member.answered + calls }))
    for (const { member, answered } of wanted) while (member.answered < answered) await Bun.sleep(5)
  }

  /** Takes it out of the rotation, waits for its answers, and stops it. */
  async stop(member: Member): Promise<void> {
    member.isIn = false
    while (member.inFlight > 0) await Bun.sleep(2)
    const code = await member.process.end('SIGTERM')
    if (code !== 0) this.broken.push(`${member.name} ended with ${code}: ${member.process.output()}`)
  }

  /** While calls are under way, and while more come: the rotation learns of it afterwards. */
  async kill(member: Member): Promise<void> {
    while (member.inFlight === 0) await Bun.sleep(1)
    member.isKilled = true
    const dead = member.process.end('SIGKILL')
    await Bun.sleep(20)
    member.isIn = false
    await dead
  }
}

/** The line of the server's log about a failed call. */
function reasonOf({ process }: Member, answer: Json): string {
  const id = answer.error?.requestId
  const line = process
    .output()
    .split('\n')
    .find((each) => each.includes('request_failed') && each.includes(id))
  return line ?? JSON.stringify(answer)
}
