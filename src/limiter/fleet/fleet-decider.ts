import {
  type Answers,
  type Calls,
  KIND,
  MODE,
  NUMBERS_PER_CALL,
  outageRuleOf,
  UNDECIDED,
  WAITS,
} from '../threads/protocol.ts'
import { type Cell, FleetCall, type FleetShard, type OutageRule } from './fleet-shard.ts'

/** Decides the batches of one router where servers share limits. What waits for the engine is posted when it is decided. */
export class FleetDecider {
  /** What was decided after its batch was answered, to be posted in this turn: by the number of the batch. */
  private readonly later = new Map<number, number[]>()
  private isClosed = false

  constructor(
    private readonly shard: FleetShard,
    private readonly post: (answers: Answers) => void,
  ) {}

  decide(calls: Calls): Answers {
    const { shard } = this
    const [id = 0] = calls
    const reply: Reply = { decider: this, id, answers: [id] }
    const { answers } = reply
    for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) answers?.push(Number.NaN, WAITS)
    for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
      const kind = calls[at + 4] as number // in range, as all below
      if (kind === KIND.part) {
        const count = calls[at] as number // after it
        this.takePart(calls, at + NUMBERS_PER_CALL, count, reply)
        answersOfRecord(reply, at)
        at += count * NUMBERS_PER_CALL
      } else if (kind === KIND.undo) {
        const [h0 = 0, h1 = 0, h2 = 0, h3 = 0, , endMs = 0, cost = 0] = calls.slice(at, at + NUMBERS_PER_CALL)
        shard.undo(h0, h1, h2, h3, endMs, cost)
        answersOfRecord(reply, at)
      } else if (kind === KIND.keep || kind === KIND.release || kind === KIND.nothing)
        answersOfRecord(reply, at) // nothing is held aside for a counter without memory
      else if (kind < 0) throw new Error(`an unknown kind of record: ${kind}`)
      else {
        const cost = calls[at + 6] as number // in range
        const outage = outageRuleOf(calls[at + 8] as number) // of the owner
        this.take(calls, at, new SingleCall(reply, placeOf(at), kind, endOf(calls, at), cost, outage))
      }
    }
    reply.answers = null
    return answers as Answers // until now it was not null
  }

  /** The router is gone. What waits for the engine is decided for nobody, and counts. */
  close(): void {
    this.isClosed = true
  }

  /** Called by calls that were decided later. All of one turn are posted together. */
  decideLater(id: number, place: number, used: number, endMs: number): void {
    let later = this.later.get(id)
    if (later === undefined) {
      if (this.later.size === 0) queueMicrotask(() => this.postLater())
      later = [-id]
      this.later.set(id, later)
    }
    later.push(place, used, endMs)
  }

  private postLater(): void {
    if (!this.isClosed) for (const answers of this.later.values()) this.post(answers)
    this.later.clear()
  }

  private take(calls: Calls, at: number, call: FleetCall): void {
    this.shard.take(
      calls[at] as number, // h0
      calls[at + 1] as number, // h1
      calls[at + 2] as number, // h2
      calls[at + 3] as number, // h3
      call,
      calls[at + 7] as number, // atMs
    )
  }

  /** All of its calls are decided, then all are charged or none. */
  private takePart(calls: Calls, from: number, count: number, reply: Reply): void {
    const mode = calls[from - NUMBERS_PER_CALL + 2] as number // in range, as all below
    const part = new Part(this.shard, count, mode === MODE.look)
    for (let at = from; at < from + count * NUMBERS_PER_CALL; at += NUMBERS_PER_CALL) {
      const [limit = 0, cost = 0, atMs = 0, owner = 0] = [4, 6, 7, 8].map((i) => calls[at + i])
      const wanted = { limit, endMs: endOf(calls, at), cost, outage: outageRuleOf(owner) }
      part.calls.push(new PartCall(part, reply, placeOf(at), wanted, atMs))
    }
    for (const [i, call] of part.calls.entries()) this.take(calls, from + i * NUMBERS_PER_CALL, call)
  }
}

/** A batch, and its answers until they are posted. */
type Reply = { readonly decider: FleetDecider; readonly id: number; answers: Answers | null }

function tell({ decider, id, answers }: Reply, place: number, used: number, endMs: number): void {
  if (answers === null) decider.decideLater(id, place, used, endMs)
  else {
    answers[1 + 2 * place] = used
    answers[2 + 2 * place] = endMs
  }
}

/** A record that is no call. */
const answersOfRecord = (reply: Reply, at: number) => tell(reply, placeOf(at), 0, UNDECIDED)

class SingleCall extends FleetCall {
  constructor(
    private readonly reply: Reply,
    private readonly place: number,
    limit: number,
    endMs: number,
    cost: number,
    outage: OutageRule | null,
  ) {
    super(limit, endMs, cost, outage)
  }

  decided(passed: boolean, used: number, cell: Cell | null): void {
    if (cell === null) tell(this.reply, this.place, Number.NaN, UNDECIDED)
    else tell(this.reply, this.place, passed ? used : -1 - used, cell.endMs)
  }
}

/** One of several calls that are decided together. */
class PartCall extends FleetCall {
  /** Null = not decided yet. */
  passed: boolean | null = null
  cell: Cell | null = null
  endMsOfCell = 0
  /** Of its counter, once the part is charged; null = nothing was. */
  usedAfter: number | null = null

  constructor(
    private readonly part: Part,
    readonly reply: Reply,
    readonly place: number,
    { limit, endMs, cost, outage }: Pick<FleetCall, 'limit' | 'endMs' | 'cost' | 'outage'>,
    readonly atMs: number,
  ) {
    super(limit, endMs, cost, outage)
  }

  override get doesLook(): boolean {
    return this.part.doesLook || this.cost === 0
  }

  override get isPart(): boolean {
    return !this.doesLook
  }

  decided(passed: boolean, _used: number, cell: Cell | null): void {
    this.passed = passed
    this.cell = cell
    this.endMsOfCell = cell?.endMs ?? 0
    this.part.decided()
  }
}

class Part {
  readonly calls: PartCall[] = []
  private left: number

  constructor(
    private readonly shard: FleetShard,
    count: number,
    readonly doesLook: boolean,
  ) {
    this.left = count
  }

  decided(): void {
    if (--this.left > 0) return
    const passes = this.calls.every(({ passed }) => passed === true)
    // Of calls with different outage rules some may be decided and others not: then the part is not.
    const isUndecided = this.calls.some(({ cell }) => cell === null)
    for (const call of this.calls) {
      const { cell } = call
      if (cell === null || call.passed !== true || call.doesLook) continue
      cell.settle(call.endMsOfCell, call.cost, passes, call.atMs)
      if (!passes) this.shard.giveBack(cell)
      else if (cell.endMs === call.endMsOfCell) call.usedAfter = cell.used
    }
    for (const call of this.calls) {
      const { cell, reply, place } = call
      if (cell === null || isUndecided) tell(reply, place, Number.NaN, UNDECIDED)
      else {
        const used = call.usedAfter ?? cell.used
        tell(reply, place, call.passed === true ? used : -1 - used, call.endMsOfCell)
      }
    }
  }
}

const placeOf = (at: number) => (at - 1) / NUMBERS_PER_CALL

/** The end of the window of a call, by fleet time. */
function endOf(calls: Calls, at: number): number {
  const durationMs = calls[at + 5] as number // in range
  return (Math.floor((calls[at + 7] as number) / durationMs) + 1) * durationMs // as its time
}
