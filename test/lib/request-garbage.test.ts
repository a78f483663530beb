import { heapStats } from 'bun:jsc'
import { expect, test } from 'bun:test'
import { RequestGarbage } from '../../src/lib/request-garbage.ts'
import type { Timers } from '../../src/lib/timers.ts'

/** One timer that the test lets ring. */
function rung(): Timers & { ring(): void; isSet(): boolean; periodMs: number } {
  let due: (() => void) | null = null
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
    soon: () => {},
    ring: () => due?.(),
    isSet: () => due !== null,
  }
  return timers
}

test('what many requests leave behind is collected before the runtime gives its pages back, what few leave is left to it', () => {
  const timers = rung()
  let collections = 0
  const garbage = new RequestGarbage({ timers, collectYoung: () => collections++, collectAll: () => {} })
  expect(timers.periodMs).toBeLessThan(100)
  timers.ring()
  expect(collections).toBe(0)

  for (let i = 0; i < 299; i++) garbage.received(300)
  timers.ring()
  expect(collections).toBe(0)
  for (let i = 0; i < 50; i++) garbage.received(300)
  expect(collections).toBe(0) // never while a request is received
  timers.ring()
  expect(collections).toBe(1)
  timers.ring()
  expect(collections).toBe(1)

  garbage.received(1_000_000)
  timers.ring()
  expect(collections).toBe(2)
  garbage.received(1_000_000)
  garbage.stop()
  timers.ring()
  expect(collections).toBe(2)
  expect(timers.isSet()).toBe(false)
})

test('everything is collected after the start and after busy times, and never while many requests come', () => {
  const timers = rung()
  let collections = 0
  const garbage = new RequestGarbage({ timers, collectYoung: () => {}, collectAll: () => collections++ })
  const tenSecondsWith = (bytes: number) => {
    for (let ms = 0; ms < 10_000; ms += timers.periodMs) {
      garbage.received(bytes / (10_000 / timers.periodMs))
      timers.ring()
    }
    return collections
  }
  expect(tenSecondsWith(2_000_000)).toBe(0)
  expect(tenSecondsWith(2_000_000)).toBe(0)
  expect(tenSecondsWith(900_000)).toBe(1)
  expect(tenSecondsWith(900_000)).toBe(1)
  expect(tenSecondsWith(0)).toBe(1)
  expect(tenSecondsWith(100_000_000)).toBe(1)
  expect(tenSecondsWith(0)).toBe(2)
  expect(tenSecondsWith(0)).toBe(2)
  garbage.stop()

  const idle = rung()
  const ofTheStart = new RequestGarbage({ timers: idle, collectAll: () => collections++ })
  for (let ms = 0; ms < 30_000; ms += idle.periodMs) idle.ring()
  expect(collections).toBe(3)
  ofTheStart.stop()
})

test('it is the garbage of the thread that is collected, what is young and what has been kept for a while', () => {
  const timers = rung()
  const garbage = new RequestGarbage({ timers })
  const mapsThere = () => heapStats().objectTypeCounts.Map ?? 0
  const before = mapsThere()
  expect(Array.from({ length: 10_000 }, () => new Map()).length).toBe(10_000)
  expect(mapsThere() - before).toBeGreaterThan(5_000)
  garbage.received(150_000)
  timers.ring()
  expect(mapsThere() - before).toBeLessThan(1_000)

  const kept = new Set<Map<string, string>>()
  for (let i = 0; i < 10_000; i++) kept.add(new Map())
  for (let i = 0; i < 3; i++) {
    garbage.received(150_000)
    timers.ring() // they are old now
  }
  kept.clear()
  garbage.received(150_000)
  timers.ring()
  expect(mapsThere() - before).toBeGreaterThan(5_000)
  for (let ms = 0; ms < 10_000; ms += timers.periodMs) timers.ring()
  expect(mapsThere() - before).toBeLessThan(1_000)
  garbage.stop()
})
