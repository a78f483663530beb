import { edenGC } from 'bun:jsc'
import { type Cancel, systemTimers, type Timers } from '../../lib/timers.ts'

/**
 * Runs a young-generation collection right after the answers of a turn, at most every 90 ms, while requests come in.
 * Without it JavaScriptCore lets 30 MB of garbage come together, and requests pause for milliseconds when the memory goes
 * back and is asked for again.
 *
 * `received(bytes)` counts what comes in; a collection is due once that is half a megabyte, so an idle server never collects.
 * Needs `BUN_IDLE_GC_SECONDS=300`, as `bun run start` sets it: otherwise Bun takes a server for idle whose heap has not grown for
 * ten seconds, and collects everything while requests wait. `edenGC` of `bun:jsc` is not documented: look at it with each
 * new Bun.
 * Why this way: docs/decisions/0004.
 */
export class YoungGarbage {
  private receivedBytes = 0
  private readonly cancel: Cancel

  /** @param collect Collects what is young of the thread that calls. */
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

  /** Requests of so many bytes came: what they leave behind is some ten times as much. */
  received(bytes: number): void {
    this.receivedBytes += bytes
  }

  stop(): void {
    this.cancel()
  }
}

/** Less than the 100 ms after which JavaScriptCore gives pages back, with room for a timer that is late. */
const EVERY_MS = 90
/**
 * Some 1 700 calls. Below 20 000 a second it is then done less often, and fewer calls meet it: at 10 000 a second a mean p99 of 1.1
 * instead of 1.4 ms with a fifth of this, which had it every 90 ms (22 rounds in turn on a noisy machine, lower in 15; p99.9 of
 * 4.3 and 4.8). With twice as much, 1.4 too, and left to the runtime 1.7.
 */
const RECEIVED_BYTES_MIN = 500_000
