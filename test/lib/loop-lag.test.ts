import { expect, test } from 'bun:test'
import { LoopLag } from '../../src/lib/loop-lag.ts'
import type { Timers } from '../../src/lib/timers.ts'

/** One timer in simulated time. */
function chosenTime(): Timers & { pass(ms: number): void; stall(ms: number): void } {
  let now = 0
  let due: { run: () => void; periodMs: number; atMs: number } | null = null
  const pass = (ms: number) => {
    const until = now + ms
    while (due !== null && due.atMs <= until) {
      now = Math.max(now, due.atMs)
      due.run()
      due.atMs = now + due.periodMs
    }
    now = until
  }
  return {
    now: () => now,
    every: (periodMs, run) => {
      due = { run, periodMs, atMs: now + periodMs }
      return () => {
        due = null
      }
    },
    after: () => () => {},
    soon: () => {},
    pass,
    stall: (ms) => {
      now += ms
      pass(0)
    },
  }
}

test('a stall is reported for a minute, and a worse one replaces it', () => {
  const time = chosenTime()
  const lag = new LoopLag(time)
  lag.start()
  time.pass(5_000)
  expect(lag.worstMs).toBe(0)
  time.stall(400)
  expect(lag.worstMs).toBeWithin(300, 401)
  time.pass(30_000)
  time.stall(2_000)
  expect(lag.worstMs).toBeWithin(1_900, 2_001)
  time.pass(40_000)
  expect(lag.worstMs).toBeWithin(1_900, 2_001)
  time.pass(25_000)
  expect(lag.worstMs).toBe(0)
})

test('after a stop, or an hour asleep, no old stall is reported', () => {
  const time = chosenTime()
  const lag = new LoopLag(time)
  lag.start()
  time.pass(1_000)
  time.stall(500)
  lag.stop()
  expect(lag.worstMs).toBeGreaterThan(0)
  time.pass(3_600_000)
  expect(lag.worstMs).toBe(0)
})
