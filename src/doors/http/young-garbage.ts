import { edenGC } from 'bun:jsc'
import { type Cancel, systemTimers, type Timers } from '../../lib/timers.ts'

/**
 * Has what requests leave behind collected soon, on the thread that answers them, while many come.
 *
 * Left to itself JavaScriptCore lets 30 MB of it come together at 30 000 calls a second. A tenth of a second after it has
 * collected them it gives their pages back, and a helper thread asks for as many again: on one core both run instead of the
 * server, for up to 3 ms at a time. Collected again before that tenth is over, the same pages are simply used again. At
 * 34 000 calls of `ratelimits.limit` a second on one core, without and with this: 1 600 to 7 700 page faults a second and 110 to
 * 180, helpers busy for 17 to 25 ms of each second and 7 to 9, p99 of 4.1 ms and 2.1, p99.9 of 7.0 and 4.3 (medians of seven
 * rounds in turn; with a thread for the shard p99 5.4 and 3.2). At saturation of a slower machine there was no difference beyond
 * the noise; of a faster one, at 106 000 a second, 15 100 page faults a second and 750, p99 of 3.0 ms and 1.5, and without
 * this 4 % more CPU a call (medians of seven rounds in turn).
 * Not more often than that asks for. A collection holds the thread for 0.6 to 0.8 ms however little there is (with an eighth of
 * the garbage 0.59 instead of 0.74; the objects found in use are 65 kB): most of that goes by looking at every function that is
 * loaded, in a processor that is cold for it. In a bare `Bun.serve` under the same load it takes 0.25, with 5 000 functions
 * beside it that were declared 0.32, that were called once 0.41, with this server's modules loaded 0.41, with this server
 * started and idle beside it 0.61. What is compiled of them makes no difference (700 pieces instead of 1 950).
 * Where 64 calls wait at a time, twelve collections a second are met by 0.8 % of 100 000 calls, next to the one in a hundred
 * that p99 is about.
 * After what the turn of the event loop has to send: its timer comes between the requests that were read and their answers, and of
 * twelve collections a second eleven held up answers that only had to be sent. 2 % less CPU a call at saturation, as whoever
 * gets them works meanwhile, and p98 of 1.88 instead of 1.95 ms with 64 callers (medians of fourteen rounds in turn).
 * Refused: every 25 ms, no better a tail and 5 % more CPU at saturation; every 160 or 250 ms, with pages given back later
 * (`MIMALLOC_PURGE_DELAY`), as the runtime's own collections then come in between, and its sweeping, 100 ms after a collection and
 * for 3 ms at a time, which one that comes before puts off (p99s of 1.1 to 1.2 ms, and 1.0 to 1.1 every 80 ms, at 130 000 a
 * second); to have it collect less often (its option `percentCPUPerMBForEdenTimer` at 0), p99s of 3.6 to 6.3 ms without this and
 * of 1.4 with one every 250 ms.
 *
 * While the same pages are used again the heap does not grow, and Bun takes a server for quiet whose heap has not grown for ten
 * seconds: it then collects everything, for 20 ms in which one core has two to serve, and requests wait for up to 14. So
 * `bun run start` lets that begin after five minutes only (`BUN_IDLE_GC_SECONDS`).
 * Refused: never, as memory that heavy load took then stays (270 MiB instead of 105); to do it here once few requests come, as it
 * would hold the thread, for 24 ms with a hundred thousand records in memory.
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
