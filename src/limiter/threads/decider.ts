import type { Hold } from '../table/holds.ts'
import type { WindowTable } from '../table/window-table.ts'
import { type Answers, type Calls, KIND, MODE, NUMBERS_PER_CALL } from './protocol.ts'

/** Decides the batches of one router. The records of a batch: `protocol.ts`. */
export class Decider {
  /** What its parts hold until their outcome is known, by the number of the part. */
  private readonly held = new Map<number, Hold[]>()

  constructor(private readonly table: WindowTable) {}

  decide(calls: Calls): Answers {
    const { table } = this
    const answers = [calls[0] as number] // a batch begins with its id, then come whole records of nine numbers
    for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
      table.warm(calls[at] as number, calls[at + 2] as number) // h0, h2
    }
    for (let at = 1; at < calls.length; at += NUMBERS_PER_CALL) {
      const limit = calls[at + 4] as number // in range, as all below
      if (limit < 0) {
        at = this.decideOther(calls, at, answers)
        continue
      }
      const passed = table.take(
        calls[at] as number, // h0
        calls[at + 1] as number, // h1
        calls[at + 2] as number, // h2
        calls[at + 3] as number, // h3
        limit,
        calls[at + 5] as number, // durationMs
        calls[at + 6] as number, // cost
        calls[at + 7] as number, // atMs
        calls[at + 8] as number, // owner
      )
      answers.push(passed ? table.used : -1 - table.used, table.resetAtMs)
    }
    return answers
  }

  /** The router is gone. What it may have answered as passed must count. */
  close(): void {
    for (const part of this.held.keys()) this.settle(part, true)
  }

  /** @returns where the last record that belongs to it begins. */
  private decideOther(calls: Calls, at: number, answers: Answers): number {
    const { table } = this
    const [first = 0, second = 0, mode = 0] = [calls[at], calls[at + 1], calls[at + 2]]
    answers.push(0, 0)
    switch (calls[at + 4]) {
      case KIND.part:
        return this.decidePart(calls, at + NUMBERS_PER_CALL, { calls: first, part: second, mode }, answers)
      case KIND.undo:
        table.advance(calls[at + 7] as number) // atMs
        table.undo(
          first,
          second,
          calls[at + 2] as number, // h2
          calls[at + 3] as number, // h3
          calls[at + 5] as number, // endMs
          calls[at + 6] as number, // cost
        )
        break
      case KIND.keep:
        this.settle(second, true)
        break
      case KIND.release:
        this.settle(second, false)
        break
      case KIND.nothing:
        break
      default:
        throw new Error(`an unknown kind of record: ${calls[at + 4]}`)
    }
    return at
  }

  /**
   * Looks first, so that a refused part leaves no trace: a new counter gets no cell. Calls of one counter are decided in their
   * order, each with those before it that pass.
   */
  private decidePart(
    calls: Calls,
    from: number,
    { calls: count, part, mode }: { calls: number; part: number; mode: number },
    answers: Answers,
  ): number {
    const end = from + count * NUMBERS_PER_CALL
    const answersFrom = answers.length
    let doPass = true
    for (let at = from; at < end; at += NUMBERS_PER_CALL) {
      const passed = this.look(calls, at, costBefore(calls, from, at, answers, answersFrom))
      if (!passed) doPass = false
      answers.push(passed ? this.table.used : -1 - this.table.used, this.table.resetAtMs)
    }
    if (doPass && mode !== MODE.look) this.chargePart(calls, from, end, { part, mode }, answers, answersFrom)
    return end - NUMBERS_PER_CALL
  }

  /** @param before What earlier calls of the part will take from the same counter. */
  private look(calls: Calls, at: number, before: number): boolean {
    const { table } = this
    const limit = calls[at + 4] as number // in range, as all below
    const fits = table.take(
      calls[at] as number, // h0
      calls[at + 1] as number, // h1
      calls[at + 2] as number, // h2
      calls[at + 3] as number, // h3
      limit,
      calls[at + 5] as number, // durationMs
      0,
      calls[at + 7] as number, // atMs
      calls[at + 8] as number, // owner
    )
    return fits && table.used + before + (calls[at + 6] as number) <= limit // cost
  }

  private chargePart(
    calls: Calls,
    from: number,
    end: number,
    { part, mode }: { part: number; mode: number },
    answers: Answers,
    answersFrom: number,
  ): void {
    const { table } = this
    const holds: Hold[] = []
    for (let at = from, answer = answersFrom; at < end; at += NUMBERS_PER_CALL, answer += 2) {
      const hold = table.charge(
        calls[at] as number, // h0
        calls[at + 1] as number, // h1
        calls[at + 2] as number, // h2
        calls[at + 3] as number, // h3
        calls[at + 4] as number, // limit
        calls[at + 5] as number, // durationMs
        calls[at + 6] as number, // cost
        calls[at + 7] as number, // atMs
        calls[at + 8] as number, // owner
        mode === MODE.undoable,
      )
      if (hold !== null) holds.push(hold)
      answers[answer] = table.used
      answers[answer + 1] = hold === null ? table.resetAtMs : -table.resetAtMs
    }
    if (holds.length > 0) this.held.set(part, holds)
  }

  private settle(part: number, isKept: boolean): void {
    const holds = this.held.get(part)
    if (holds === undefined) return
    this.held.delete(part)
    for (const hold of holds) this.table.settle(hold, isKept)
  }
}

/** What the calls of a part before this one take from its counter, those that pass. */
function costBefore(calls: Calls, from: number, at: number, answers: Answers, answersFrom: number): number {
  let cost = 0
  for (let other = from, answer = answersFrom; other < at; other += NUMBERS_PER_CALL, answer += 2)
    if (
      calls[other] === calls[at] &&
      calls[other + 1] === calls[at + 1] &&
      calls[other + 2] === calls[at + 2] &&
      calls[other + 3] === calls[at + 3] &&
      (answers[answer] as number) >= 0 // one for each call before
    )
      cost += calls[other + 6] as number // in range
  return cost
}
