import { nameOf } from '../../src/limiter/table/holds.ts'
import { KIND, MODE, NUMBERS_PER_CALL, type ShardSetup } from '../../src/limiter/threads/protocol.ts'
import { shardOf } from '../../src/limiter/threads/shard-ranges.ts'
import type { WindowCopy } from './postgres.ts'

/** The expected state of one counter. */
export type ModelCell = {
  readonly words: readonly [number, number, number, number]
  endMs: number
  /** Used here, and read as used on other nodes. */
  own: number
  others: number
  /** Of `own`, charged by parts of calls and not undone: what those calls were told must come to as much. */
  together: number
  /** All that was undone so far: so much may be missing from a copy that is written later. */
  undone: number
  /** End of the window, as answered, when a charge last took it to half of its limit or more. */
  nearLimitUntilMs: number
}

/** A charge that waits for its outcome. */
type Held = { cell: ModelCell; endMs: number; cost: number; isNear: boolean }

/** Counts that a restart must not lose. */
export type ToStore = { cell: ModelCell; endMs: number; own: number }

/**
 * The expected answers of one life of a shard: the rules of a fixed window in their simplest form. It gets the same input
 * as the shard: its setup, the rows it read, and the calls in the order of their decisions.
 */
export class ShardModel {
  nowMs: number
  readonly cells = new Map<number, ModelCell>()
  /** For each cell, the counts read from each node. */
  private readonly read = new Map<number, Map<string, WindowCopy>>()
  /** By the number of the part, and the router it belongs to. */
  private readonly held = new Map<unknown, Map<number, Held[]>>()
  decisions = 0

  /**
   * @param options.isExact False when there may be more counters than cells: then the shard may refuse early and report
   *   more tokens as used, never fewer.
   */
  constructor(
    readonly setup: ShardSetup,
    private readonly options: { isExact: boolean },
  ) {
    this.nowMs = setup.nowMs
  }

  /** One of the stored copies: of each node the latest counts. */
  restore({ nodeId, cell, endMs, used, owner }: WindowCopy): void {
    const words = wordsOf(cell)
    if (endMs <= this.nowMs || shardOf(words[0], this.setup.count) !== this.setup.index) return
    const name = nameOf(words[0], words[1])
    const byNode = this.read.get(name) ?? new Map<string, WindowCopy>()
    this.read.set(name, byNode)
    const known = byNode.get(nodeId)
    if (known !== undefined && (known.endMs > endMs || (known.endMs === endMs && known.used >= used))) return
    byNode.set(nodeId, { nodeId, cell, endMs, used, owner })
    const copies = [...byNode.values()]
    const model: ModelCell = {
      words,
      endMs: Math.max(...copies.map((copy) => copy.endMs)),
      own: 0,
      others: 0,
      together: 0,
      undone: 0,
      nearLimitUntilMs: 0,
    }
    for (const copy of copies) {
      if (copy.endMs < model.endMs) continue
      if (copy.nodeId === this.setup.nodeId) model.own += copy.used
      else model.others += copy.used
    }
    this.cells.set(name, model)
  }

  /** When there may be more counters than cells: only those near their limit. */
  toStore(): ToStore[] {
    const cells = [...this.cells.values()].filter(({ own }) => own > 0)
    if (this.options.isExact) return cells.map((cell) => ({ cell, endMs: cell.endMs, own: cell.own }))
    return cells
      .filter(({ nearLimitUntilMs }) => nearLimitUntilMs > 0)
      .map((cell) => ({ cell, endMs: cell.nearLimitUntilMs, own: cell.own }))
  }

  /** Time passes without a call. */
  advance(atMs: number): void {
    if (atMs > this.nowMs) this.nowMs = atMs
  }

  /** @param router Whose message it is. @returns what is wrong with the answers to it, or null. */
  check(router: unknown, calls: readonly number[], answers: readonly number[]): string | null {
    if (calls[0] !== answers[0]) return `batch ${calls[0]} was answered as batch ${answers[0]}`
    const count = (calls.length - 1) / NUMBERS_PER_CALL
    if (answers.length !== 1 + 2 * count)
      return `${count} calls were given ${(answers.length - 1) / 2} answers`
    for (let i = 0; i < count; ) {
      const [call, answer] = [callAt(calls, i), answerAt(answers, i)]
      let wrong: string | null = null
      if (call.limit >= 0) wrong = this.checkOne(call, answer, 'plain')
      else if (call.limit === KIND.part) {
        const { h0: length, h1: number, h2: mode } = call
        wrong = this.checkPart(router, { first: i + 1, length, number, mode }, calls, answers)
        i += length
      } else wrong = this.settle(router, call)
      if (wrong !== null) return wrong
      i++
    }
    this.decisions += count
    return null
  }

  /** All of it is charged, or nothing. */
  private checkPart(
    router: unknown,
    part: { first: number; length: number; number: number; mode: number },
    calls: readonly number[],
    answers: readonly number[],
  ): string | null {
    const own = Array.from({ length: part.length }, (_, i) => ({
      call: callAt(calls, part.first + i),
      answer: answerAt(answers, part.first + i),
    }))
    const doPass = own.every(({ answer }) => answer.passed)
    const isCharged = doPass && part.mode !== MODE.look
    const before = new Map<ModelCell, number>()
    const held: Held[] = []
    for (const { call, answer } of own) {
      const cell = this.cellOf(call)
      const wrong = this.checkOne(call, answer, isCharged ? 'together' : 'look', before.get(cell) ?? 0)
      if (wrong !== null) return `in a part of ${part.length}, mode ${part.mode}: ${wrong}`
      if (answer.isHeld) {
        if (!isCharged || this.options.isExact) return 'it holds a charge that has no need of it'
        const isNear = 2 * answer.used >= call.limit
        held.push({ cell, endMs: answer.resetAtMs, cost: call.cost, isNear })
      }
      if (!isCharged && answer.passed) before.set(cell, (before.get(cell) ?? 0) + call.cost)
    }
    if (held.length === 0) return null
    const ofRouter = this.held.get(router) ?? new Map<number, Held[]>()
    this.held.set(router, ofRouter.set(part.number, held))
    return null
  }

  /** An undo, or the outcome of what was held. */
  private settle(
    router: unknown,
    { limit: kind, h0, h1, h2, h3, durationMs, cost, atMs }: Call,
  ): string | null {
    if (kind === KIND.nothing) return null
    if (kind === KIND.undo) {
      this.advance(atMs)
      const cell = this.cells.get(nameOf(h0, h1))
      if (cell === undefined || cell.words[2] !== h2 || cell.words[3] !== h3)
        return 'told to undo a charge of a counter that was never charged'
      return this.undo(cell, durationMs, cost)
    }
    const held = this.held.get(router)?.get(h1) ?? []
    this.held.get(router)?.delete(h1)
    for (const { cell, endMs, cost, isNear } of held) {
      if (kind === KIND.keep && isNear && cell.endMs === endMs) cell.nearLimitUntilMs = endMs
      const wrong = kind === KIND.keep ? null : this.undo(cell, endMs, cost)
      if (wrong !== null) return wrong
    }
    return null
  }

  private undo(cell: ModelCell, endMs: number, cost: number): string | null {
    if (cell.endMs !== endMs) return null
    if (cell.together < cost) return `told to undo ${cost} where ${cell.together} were charged together`
    cell.own -= cost
    cell.together -= cost
    cell.undone += cost
    return null
  }

  private cellOf({ h0, h1, h2, h3, durationMs, atMs }: Call): ModelCell {
    this.advance(atMs)
    const endMs = (Math.floor(this.nowMs / durationMs) + 1) * durationMs
    const name = nameOf(h0, h1)
    let cell = this.cells.get(name)
    if (cell === undefined) {
      const words = [h0, h1, h2, h3] as const
      cell = { words, endMs, own: 0, others: 0, together: 0, undone: 0, nearLimitUntilMs: 0 }
      this.cells.set(name, cell)
    }
    // An open window keeps its end, even when the clock was set back. After it a new one begins.
    if (cell.endMs < endMs) {
      cell.endMs = endMs
      cell.own = 0
      cell.others = 0
      cell.together = 0
      cell.nearLimitUntilMs = 0
    }
    return cell
  }

  /** @param before What calls before it in its part will take from the counter. */
  private checkOne(
    call: Call,
    { passed, used: answeredUsed, resetAtMs, isHeld }: Answer,
    how: 'plain' | 'together' | 'look',
    before = 0,
  ): string | null {
    const { limit } = call
    const cell = this.cellOf(call)
    const used = cell.own + cell.others
    const passes = used + before + call.cost <= limit
    const cost = how === 'look' ? 0 : call.cost
    const expectedUsed = Math.min(passes ? used + cost : used, Number.MAX_SAFE_INTEGER)

    if (this.options.isExact) {
      if (passed !== passes || answeredUsed !== expectedUsed || resetAtMs !== cell.endMs)
        return `at ${this.nowMs}, ${used} of ${limit} used, ${cost} wanted: expected ${verdict(passes, expectedUsed, cell.endMs)}, got ${verdict(passed, answeredUsed, resetAtMs)}`
    } else if (passed ? !passes || answeredUsed < used + cost : answeredUsed < used && cost > 0)
      return `at ${this.nowMs}, at least ${used} of ${limit} used, ${cost} wanted: got ${verdict(passed, answeredUsed, resetAtMs)}`
    if (!passed || cost === 0) return null
    cell.own += cost
    if (how === 'together') cell.together += cost
    // What is held is not in the sketch yet.
    if (!isHeld) cell.nearLimitUntilMs = 2 * answeredUsed >= limit ? resetAtMs : 0
    return null
  }
}

type Call = {
  h0: number
  h1: number
  h2: number
  h3: number
  limit: number
  durationMs: number
  cost: number
  atMs: number
}
type Answer = { passed: boolean; used: number; resetAtMs: number; isHeld: boolean }

/** Records of nine numbers each, after the id. */
function callAt(calls: readonly number[], i: number): Call {
  const at = 1 + NUMBERS_PER_CALL * i
  const [h0 = 0, h1 = 0, h2 = 0, h3 = 0, limit = 0, durationMs = 0, cost = 0, atMs = 0] = calls.slice(
    at,
    at + 8,
  )
  return { h0, h1, h2, h3, limit, durationMs, cost, atMs }
}

function answerAt(answers: readonly number[], i: number): Answer {
  const [used = 0, resetAtMs = 0] = answers.slice(1 + 2 * i, 3 + 2 * i)
  const passed = used >= 0
  return { passed, used: passed ? used : -1 - used, resetAtMs: Math.abs(resetAtMs), isHeld: resetAtMs < 0 }
}

const verdict = (passed: boolean, used: number, resetAtMs: number | undefined) =>
  `${passed ? 'passed' : 'refused'} with ${used} used until ${resetAtMs}`

const wordsOf = (cell: string): [number, number, number, number] => {
  const word = (i: number) => Number.parseInt(cell.slice(8 * i, 8 * i + 8), 16) | 0
  return [word(0), word(1), word(2), word(3)]
}
