import { expect, test } from 'bun:test'
import { YoungGarbage } from '../../../src/doors/http/young-garbage.ts'
import type { Timers } from '../../../src/lib/timers.ts'

/** One timer that the test fires, and turns of the event loop that the test ends. */
function rung(): Timers & { ring(): void; endTurn(): void; isSet(): boolean; periodMs: number } {
  let due: (() => void) | null = null
  const soon: (() => void)[] = []
  const timers = {
    periodMs: 0,
    now: () => 0,
    every: (periodMs: number, run: () => void) => {
      timers.periodMs = periodMs
      due = run
      return () => {
        due = null
      }
    },
    after: () => () => {},
    soon: (run: () => void) => void soon.push(run),
    ring: () => due?.(),
    endTurn: () => {
      for (const run of soon.splice(0)) run()
    },
    isSet: () => due !== null,
  }
  return timers
}

test('garbage of many requests is collected before the runtime gives its pages back, garbage of few is left to the runtime', () => {
  const timers = rung()
  let collections = 0
  const garbage = new YoungGarbage({ timers, collect: () => collections++ })
  expect(timers.periodMs).toBeLessThan(100)
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(0)

  for (let i = 0; i < 1600; i++) garbage.received(300)
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(0)
  for (let i = 0; i < 100; i++) garbage.received(300)
  expect(collections).toBe(0) // never while a request is received
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(1)
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(1)

  garbage.received(1_000_000)
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(2)
  garbage.received(1_000_000)
  garbage.stop()
  timers.ring()
  timers.endTurn()
  expect(collections).toBe(2)
  expect(timers.isSet()).toBe(false)
})

/** A collection would delay answers that only have to be sent. */
test('answers of a turn are sent before garbage is collected', () => {
  const timers = rung()
  const did: string[] = []
  const garbage = new YoungGarbage({ timers, collect: () => did.push('collected') })
  garbage.received(1_000_000)
  timers.soon(() => did.push('answered'))
  timers.ring()
  expect(did).toEqual([])
  timers.endTurn()
  expect(did).toEqual(['answered', 'collected'])
})

/** In its own process: among the garbage of other tests, new objects may count as old. */
test('garbage of the calling thread is collected', () => {
  const script = `
    import { heapStats } from 'bun:jsc'
    import { YoungGarbage } from '${import.meta.dir}/../../../src/doors/http/young-garbage.ts'
    let ring = () => {}
    const timers = { every: (_, run) => { ring = run; return () => {} }, soon: (run) => run() }
    const garbage = new YoungGarbage({ timers })
    const mapsThere = () => heapStats().objectTypeCounts.Map ?? 0
    const before = mapsThere()
    Array.from({ length: 10_000 }, () => new Map())
    const made = mapsThere() - before
    garbage.received(1_000_000)
    ring()
    console.log(JSON.stringify({ made, left: mapsThere() - before }))`
  const { stdout, stderr } = Bun.spawnSync([process.execPath, '-e', script])
  expect(stderr.toString()).toBe('')
  const { made, left } = JSON.parse(stdout.toString())
  expect(made).toBeGreaterThan(5_000)
  expect(left).toBeLessThan(1_000)
})
