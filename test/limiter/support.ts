import { CounterHash } from '../../src/limiter/counter-hash.ts'
import type { WindowTable } from '../../src/limiter/window-table.ts'

const hash = new CounterHash('tests')

/** One take from the table, by text. */
export function takeFrom(
  table: WindowTable,
  call: { counter: string; limit: number; durationMs: number; cost: number; atMs: number },
): { passed: boolean; used: number; resetAtMs: number } {
  hash.update(call.counter)
  const { h0, h1, h2, h3 } = hash
  const passed = table.take(h0, h1, h2, h3, call.limit, call.durationMs, call.cost, call.atMs)
  return { passed, used: table.used, resetAtMs: table.resetAtMs }
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
