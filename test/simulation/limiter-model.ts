import { NUMBERS_PER_CALL, type ShardSetup } from '../../src/limiter/threads/protocol.ts'
import { shardOf } from '../../src/limiter/threads/shard-ranges.ts'
import type { WindowCopy } from './postgres.ts'

/** The expected state of one counter. */
export type ModelCell = {
  readonly words: readonly [number, number, number, number]
  endMs: number
  /** Used here, and read as used on other nodes. */
  own: number
  others: number
  /** End of the window, as answered, when a charge last took it to half of its limit or more. */
  nearLimitUntilMs: number
}

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

  /** @returns what is wrong with the answers to a message, or null. */
  check(calls: readonly number[], answers: readonly number[]): string | null {
    if (calls[0] !== answers[0]) return `batch ${calls[0]} was answered as batch ${answers[0]}`
    const count = (calls.length - 1) / NUMBERS_PER_CALL
    if (answers.length !== 1 + 2 * count)
      return `${count} calls were given ${(answers.length - 1) / 2} answers`
    for (let i = 0; i < count; i++) {
      const wrong = this.checkOne(calls, 1 + NUMBERS_PER_CALL * i, answers, 1 + 2 * i)
      if (wrong !== null) return wrong
    }
    this.decisions += count
    return null
  }

  private checkOne(
    calls: readonly number[],
    at: number,
    answers: readonly number[],
    answerAt: number,
  ): string | null {
    const number = (i: number) => calls[at + i] as number // calls of nine numbers each
    const h0 = number(0)
    const h1 = number(1)
    const limit = number(4)
    const durationMs = number(5)
    const cost = number(6)
    const atMs = number(7)
    this.advance(atMs)
    const endMs = (Math.floor(this.nowMs / durationMs) + 1) * durationMs
    const name = nameOf(h0, h1)
    let cell = this.cells.get(name)
    if (cell === undefined) {
      cell = { words: [h0, h1, number(2), number(3)], endMs, own: 0, others: 0, nearLimitUntilMs: 0 }
      this.cells.set(name, cell)
    }
    // An open window keeps its end, even when the clock was set back. After it a new one begins.
    if (cell.endMs < endMs) {
      cell.endMs = endMs
      cell.own = 0
      cell.others = 0
      cell.nearLimitUntilMs = 0
    }
    const used = cell.own + cell.others
    const passes = used + cost <= limit
    const answer = answers[answerAt] as number // `check` made sure of it
    const resetAtMs = answers[answerAt + 1]
    const passed = answer >= 0
    const answeredUsed = passed ? answer : -1 - answer
    const expectedUsed = Math.min(passes ? used + cost : used, Number.MAX_SAFE_INTEGER)

    if (this.options.isExact) {
      if (passed !== passes || answeredUsed !== expectedUsed || resetAtMs !== cell.endMs)
        return `at ${this.nowMs}, ${used} of ${limit} used, ${cost} wanted: expected ${verdict(passes, expectedUsed, cell.endMs)}, got ${verdict(passed, answeredUsed, resetAtMs)}`
    } else if (passed ? !passes || answeredUsed < used + cost : answeredUsed < used && cost > 0)
      return `at ${this.nowMs}, at least ${used} of ${limit} used, ${cost} wanted: got ${verdict(passed, answeredUsed, resetAtMs)}`
    if (passed) cell.own += cost
    if (passed && cost > 0) cell.nearLimitUntilMs = 2 * answeredUsed >= limit ? (resetAtMs ?? 0) : 0
    return null
  }
}

const verdict = (passed: boolean, used: number, resetAtMs: number | undefined) =>
  `${passed ? 'passed' : 'refused'} with ${used} used until ${resetAtMs}`

const wordsOf = (cell: string): [number, number, number, number] => {
  const word = (i: number) => Number.parseInt(cell.slice(8 * i, 8 * i + 8), 16) | 0
  return [word(0), word(1), word(2), word(3)]
}

/** 53 of the 128 bits of a cell's name: enough to distinguish the few thousand cells of a run. */
const nameOf = (h0: number, h1: number) => h0 * 2 ** 21 + (h1 >>> 11)
