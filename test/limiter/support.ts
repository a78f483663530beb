import type { AnySql } from '../../src/db/connect.ts'
import { KeyedHash } from '../../src/lib/keyed-hash.ts'
import { unpackSegment } from '../../src/limiter/flush/segment.ts'
import type { WindowTable } from '../../src/limiter/table/window-table.ts'
import { randomNumbers } from '../support/random.ts'

const hash = new KeyedHash('tests')

/** One take from the table, by text. */
export function takeFrom(
  table: WindowTable,
  call: { counter: string; limit: number; durationMs: number; cost: number; atMs: number; owner?: number },
): { passed: boolean; used: number; resetAtMs: number } {
  hash.update(call.counter)
  const { h0, h1, h2, h3 } = hash
  const passed = table.take(h0, h1, h2, h3, call.limit, call.durationMs, call.cost, call.atMs, call.owner)
  return { passed, used: table.used, resetAtMs: table.resetAtMs }
}

/** The name of a counter's cell. */
export function wordsOf(counter: string): [number, number, number, number] {
  hash.update(counter)
  return [hash.h0, hash.h1, hash.h2, hash.h3]
}

/** What a start would take for the windows of a node, and how many copies of them its segments hold. */
export async function storedOf(
  sql: AnySql,
  nodeId: string,
  { endsAfterMs = 0 } = {},
): Promise<{ windows: number; used: number; copies: number }> {
  const windows = [...(await windowsOf(sql, nodeId)).values()].filter(({ endMs }) => endMs > endsAfterMs)
  const sum = (of: (window: StoredWindow) => number) =>
    windows.reduce((total, window) => total + of(window), 0)
  return { windows: windows.length, used: sum(({ used }) => used), copies: sum(({ copies }) => copies) }
}

type StoredWindow = { endMs: number; used: number; copies: number }

/** The same, by the words of a counter's name. */
export async function windowsOf(sql: AnySql, nodeId: string): Promise<Map<string, StoredWindow>> {
  const rows = await sql<{ cells: Uint8Array }[]>`
    select cells from ratelimit_segments where node_id = ${nodeId}`
  const latest = new Map<string, StoredWindow>()
  for (const { cells } of rows)
    unpackSegment(cells, (h0, h1, h2, h3, endMs, used) => {
      const name = [h0, h1, h2, h3].join()
      const known = latest.get(name) ?? { endMs: 0, used: 0, copies: 0 }
      const isLater = endMs > known.endMs || (endMs === known.endMs && used > known.used)
      latest.set(name, { ...(isLater ? { endMs, used } : known), copies: known.copies + 1 })
    })
  return latest
}

/** What overflow sketches have in common; `name` is what they know of a counter. */
export type Sketch<Name extends readonly number[]> = {
  estimate(...asked: [...name: Name, endMs: number]): number
  recordAtLeast(...raised: [...name: Name, endMs: number, used: number, nowMs: number]): void
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
    const after = Math.min(estimate + Math.ceil(random() * costMax), Number.MAX_SAFE_INTEGER)
    if (after > used) {
      sketch.recordAtLeast(...nameOf(id), endMs, after, nowMs)
      charged.set(window, after)
    }
    if (random() < 0.1) sketch.expire(1 + Math.floor(random() * 700), nowMs)
  }
  for (const [window, used] of charged) {
    const [id = 0, endMs = 0] = window.split(' ').map(Number)
    if (endMs > nowMs) expectAtLeast(id, endMs, used, 'at the end')
  }
}
