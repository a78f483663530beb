import { edenGC } from 'bun:jsc'
import { type Cancel, systemTimers, type Timers } from '../../lib/timers.ts'

/**
 * Runs a young-generation collection right after the answers of a turn, at most every 90 ms, while requests come in.
 * Without it JavaScriptCore lets 30 MB of garbage pile up and then pauses requests for milliseconds while it frees memory.
 *
 * `received(bytes)` counts what comes in; a collection is due after half a megabyte, so an idle server never collects.
 * Needs `BUN_IDLE_GC_SECONDS=300`, as `bun run start` sets it: otherwise Bun treats a server whose heap has not grown for
 * ten seconds as idle and collects everything while requests wait. `edenGC` of `bun:jsc` is not documented: check it with
 * each new Bun. Why this way: docs/decisions/0004.
 */
export class YoungGarbage {
  private receivedBytes = 0
  private readonly cancel: Cancel

  /** @param collect Runs a young-generation collection of the calling thread. */
  constructor({
    timers = systemTimers,
    collect = edenGC,
  }: { timers?: Timers; collect?: () => unknown } = {}) {
    this.cancel = timers.every(EVERY_MS, () => {
      if (this.receivedBytes < RECEIVED_BYTES_MIN) return
      this.receivedBytes = 0
      timers.soon(collect)
    })
  }

  /** Counts the bytes of received requests. They leave about ten times as much garbage. */
  received(bytes: number): void {
    this.receivedBytes += bytes
  }

  stop(): void {
    this.cancel()
  }
}

/** JavaScriptCore gives pages back after 100 ms; the difference is room for late timers. */
const EVERY_MS = 90
/**
 * About 1 700 calls. Below 20 000 calls a second, collections are then rarer and delay fewer calls. Figures at 10 000 a
 * second: mean p99 of 1.1 ms, against 1.4 with a fifth of this (a collection every 90 ms), 1.4 with twice as much, and 1.7
 * without collections (22 rounds in turn on a noisy machine, lower in 15; p99.9 4.3 against 4.8).
 */
const RECEIVED_BYTES_MIN = 500_000
