import { expect, setDefaultTimeout, test } from 'bun:test'
import fc from 'fast-check'
import { CellBatch } from '../../../src/limiter/table/cell-batch.ts'
import { WindowTable } from '../../../src/limiter/table/window-table.ts'
import { randomNumbers } from '../../support/random.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { takeFrom } from '../support.ts'

setDefaultTimeout(SLOW_MS)

/** What the table must do, without any cleverness. */
class PlainTable {
  private nowMs: number
  private readonly windows = new Map<string, number>()
  constructor(nowMs: number) {
    this.nowMs = nowMs
  }

  take(call: { counter: string; limit: number; durationMs: number; cost: number; atMs: number }) {
    this.nowMs = Math.max(this.nowMs, call.atMs)
    const index = Math.floor(this.nowMs / call.durationMs)
    const window = `${call.counter} ${index}`
    const used = this.windows.get(window) ?? 0
    const resetAtMs = (index + 1) * call.durationMs
    if (used + call.cost > call.limit) return { passed: false, used, resetAtMs }
    this.windows.set(window, used + call.cost)
    return { passed: true, used: used + call.cost, resetAtMs }
  }
}

/** Every choice of a run; the steps themselves come from the seed, so that a run can be long. */
const runs = fc.record({
  seed: fc.integer(),
  names: fc.constantFrom(1, 10, 300, 5_000),
  durations: fc.subarray([1, 2, 7, 100, 1_000, 60_000, 3_600_000, 2 ** 45], { minLength: 1 }),
  limitMax: fc.constantFrom(0, 1, 5, 1_000, Number.MAX_SAFE_INTEGER),
  stepMsMax: fc.constantFrom(0, 1, 3, 250, 100_000),
  startMs: fc.constantFrom(0, 1, 999, 1_800_000_000_000),
})

/** A step forwards, backwards, none, or to the exact first or last millisecond of a window. */
function nextTime(nowMs: number, random: () => number, stepMsMax: number, durationMs: number): number {
  const choice = random()
  const endMs = Math.min((Math.floor(nowMs / durationMs) + 1) * durationMs, nowMs + stepMsMax)
  if (choice < 0.05) return endMs
  if (choice < 0.1) return endMs - 1
  if (choice < 0.2) return Math.max(0, nowMs - Math.floor(random() * 2_000))
  if (choice < 0.5) return nowMs
  return nowMs + Math.floor(random() * (stepMsMax + 1))
}

const pick = <T>(list: readonly T[], random: () => number) => list[Math.floor(random() * list.length)] as T // in range

/** A million steps: 100 runs of 10 000. */
test('the table decides like a plain map of windows, through growth, expiry, flushes and clock steps', () => {
  fc.assert(
    fc.property(runs, ({ seed, names, durations, limitMax, stepMsMax, startMs }) => {
      const random = randomNumbers(seed)
      const table = new WindowTable({ memoryBytes: 8 * 2 ** 20, nowMs: startMs })
      const model = new PlainTable(startMs)
      const changed = new CellBatch(64)
      let from = 0
      let nowMs: number = startMs
      for (let step = 0; step < 10_000; step++) {
        const durationMs = pick(durations, random)
        nowMs = nextTime(nowMs, random, stepMsMax, durationMs)
        const limit = Math.floor(random() * (limitMax + 1))
        const call = {
          counter: `${Math.floor(random() * names)} ${durationMs}`,
          limit,
          durationMs,
          cost: random() < 0.2 ? 0 : random() < 0.8 ? 1 : Math.floor(random() * limitMax * 1.2),
          atMs: nowMs,
        }
        const got = takeFrom(table, call)
        const wanted = model.take(call)
        // Compared by hand: a million calls of `expect` take half a minute.
        if (got.passed !== wanted.passed || got.used !== wanted.used || got.resetAtMs !== wanted.resetAtMs) {
          expect({ step, call, ...got }).toEqual({ step, call, ...wanted })
        }
        if (random() < 0.02) {
          changed.count = 0
          from = Math.max(0, table.collectChanges(from, 1 + Math.floor(random() * 10), changed))
          if (random() < 0.3) table.markChanged(changed)
        }
      }
      expect(table.sketch.chargesTotal).toBe(0)
    }),
    { numRuns: 100 },
  )
})

/** What a flush wrote is all that is left after a crash: it must be the table's own count, for every open window. */
test('what flushes collect is the count of every open window', () => {
  fc.assert(
    fc.property(runs, fc.boolean(), ({ seed, names, durations, stepMsMax, startMs }, fails) => {
      const random = randomNumbers(seed)
      const table = new WindowTable({ memoryBytes: 8 * 2 ** 20, nowMs: startMs })
      const written = new Map<string, { endMs: number; used: number }>()
      const latest = new Map<string, { endMs: number; used: number }>()
      const changed = new CellBatch(64)
      const write = () => {
        if (fails && random() < 0.3) {
          table.markChanged(changed)
        } else {
          for (let i = 0; i < changed.count; i++) {
            const cell = changed.names.subarray(4 * i, 4 * i + 4).join()
            written.set(cell, { endMs: changed.ends[i] ?? 0, used: changed.used[i] ?? 0 })
          }
        }
        changed.count = 0
      }
      let from = 0
      let nowMs: number = startMs
      for (let step = 0; step < 2_000; step++) {
        const durationMs = pick(durations, random)
        nowMs = Math.max(nowMs, nextTime(nowMs, random, stepMsMax, durationMs))
        const name = Math.floor(random() * names)
        const cell = [name * 2_654_435_761, name, name, durationMs].map((word) => word | 0)
        const [h0 = 0, h1 = 0, h2 = 0, h3 = 0] = cell
        table.take(h0, h1, h2, h3, 1e9, durationMs, 1, nowMs)
        latest.set(cell.join(), { endMs: table.resetAtMs, used: table.used })
        if (random() < 0.1) {
          from = Math.max(0, table.collectChanges(from, 2, changed))
          write()
        }
      }
      fails = false
      for (let walks = 0; walks < 2; walks++) {
        for (from = 0; from !== -1; write()) from = table.collectChanges(from, 2, changed)
      }
      const open = [...latest].filter(([, { endMs }]) => endMs > table.nowMs)
      for (const [cell, window] of open) expect(written.get(cell)).toEqual(window)
    }),
    { numRuns: 100 },
  )
})

/** Over budget an attacker could gain by every forgotten or under-counted window, so there must be none. */
test('over budget a window is never given more than its limit, however small the memory', () => {
  let chargesOverBudget = 0
  fc.assert(
    fc.property(runs, ({ seed, durations, limitMax, stepMsMax, startMs }) => {
      const random = randomNumbers(seed)
      const table = new WindowTable({ memoryBytes: 0, nowMs: startMs }) // the least there is: room for some 1050
      const changed = new CellBatch(64)
      const charged = new Map<string, number>()
      let nowMs: number = startMs
      for (let step = 0; step < 20_000; step++) {
        const durationMs = pick(durations, random)
        nowMs = nextTime(nowMs, random, stepMsMax, durationMs)
        const name = Math.floor(random() ** 3 * 20_000)
        const counter = `${name} ${durationMs}`
        // One has most of them, some a few, and of some nobody knows whose they are.
        const owner = Math.min(name % 50, 5)
        const cost = random() < 0.9 ? 1 : Math.floor(random() * limitMax)
        // An override comes and goes.
        const limit = random() < 0.1 ? Math.floor(limitMax / 2) : limitMax
        const got = takeFrom(table, { counter, limit, durationMs, cost, atMs: nowMs, owner })
        const window = `${counter} ${got.resetAtMs}`
        const used = (charged.get(window) ?? 0) + (got.passed ? cost : 0)
        charged.set(window, used)
        if ((got.passed && cost > 0 && used > limit) || got.used < used) {
          throw new Error(`step ${step}, ${counter}: charged ${used} of ${limit}, counted ${got.used}`)
        }
        if (random() < 0.01) {
          changed.count = 0
          table.collectChanges(0, 3, changed)
        }
        if (random() < 0.05) table.sketch.expire(1 + Math.floor(random() * 20_000), table.nowMs)
      }
      chargesOverBudget += table.sketch.chargesTotal
    }),
    { numRuns: 60 },
  )
  expect(chargesOverBudget).toBeGreaterThan(1_000) // or nothing was tested
})
