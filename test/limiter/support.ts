import { CounterHash } from '../../src/limiter/counter-hash.ts'
import type { WindowTable } from '../../src/limiter/window-table.ts'
import { randomNumbers } from '../support/random.ts'

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

/** What overflow sketches have in common; `name` is what they know of a counter. */
export type Sketch<Name extends readonly number[]> = {
  estimate(...asked: [...name: Name, endMs: number]): number
  raise(...raised: [...name: Name, endMs: number, used: number, nowMs: number]): void
  expire(most: number, nowMs: number): boolean
}

/**
 * Charges counters at random for 10 000 steps.
 * @throws Error when an open window is ever estimated below what was charged to it.
 */
export function expectNoUnderCount<Name extends readonly number[]>(
  sketch: Sketch<Name>,
  nameOf: (id: number) => Name,
  {
    seed,
    names,
    durationMsMax,
    costMax,
  }: { seed: number; names: number; durationMsMax: number; costMax: number },
): void {
  const random = randomNumbers(seed)
  const charged = new Map<string, number>()
  const expectAtLeast = (id: number, endMs: number, used: number, when: string): number => {
    const estimate = sketch.estimate(...nameOf(id), endMs)
    if (estimate < used) throw new Error(`${when}: ${estimate} of ${used} for ${id} until ${endMs}`)
    return estimate
  }
  let nowMs = 1_000
  for (let step = 0; step < 10_000; step++) {
    if (random() < 0.3) nowMs += Math.ceil(random() * 3)
    const id = Math.floor(random() * names)
    const endMs = nowMs + 1 + Math.floor(random() * durationMsMax)
    const window = `${id} ${endMs}`
    const used = charged.get(window) ?? 0
    const estimate = expectAtLeast(id, endMs, used, `step ${step}`)
    const after = Math.min(estimate + Math.ceil(random() * costMax), 2 ** 31 - 1)
    if (after > used) {
      sketch.raise(...nameOf(id), endMs, after, nowMs)
      charged.set(window, after)
    }
    if (random() < 0.1) sketch.expire(1 + Math.floor(random() * 700), nowMs)
  }
  for (const [window, used] of charged) {
    const [id = 0, endMs = 0] = window.split(' ').map(Number)
    if (endMs > nowMs) expectAtLeast(id, endMs, used, 'at the end')
  }
}
