import { edenGC, fullGC } from 'bun:jsc'
import { type Cancel, systemTimers, type Timers } from './timers.ts'

/**
 * Has what requests leave behind collected on the thread that answers them: what is young soon, while many come, and all of
 * it once few do.
 *
 * Left to itself JavaScriptCore lets 30 MB of it come together at 30 000 calls a second. A tenth of a second after it has
 * collected them it gives their pages back, and a helper thread asks for as many again: on one core both run instead of the
 * server, for up to 3 ms at a time. Collected again before that tenth is over, the same pages are simply used again. At
 * 34 000 calls of `ratelimits.limit` a second on one core, without and with this: 1 600 to 7 700 page faults a second and 110 to
 * 180, helpers busy for 17 to 25 ms of each second and 7 to 9, p99 of 4.1 ms and 2.1, p99.9 of 7.0 and 4.3 (medians of seven
 * rounds in turn; with a thread for the shard p99 5.4 and 3.2). At saturation there is no difference beyond the noise (medians of
 * fifteen rounds in turn, 19.5 and 19.2 µs of CPU a call; of nine, 20.0 and 21.2).
 * Refused: every 25 ms, no better a tail and 5 % more CPU at saturation, as a collection takes 0.8 ms however little there
 * is; to have it collect less often (its option `percentCPUPerMBForEdenTimer` at 0), p99s of 3.6 to 6.3 ms.
 *
 * Bun collects everything once the heap of the main thread has not grown for ten seconds, which it does not while the same
 * pages are used again: in the middle of the load, 20 ms in which one core has two to serve, and requests wait for up to 14.
 * So `bun run start` has it leave that (`BUN_IDLE_GC_SECONDS=0`), and it is done here, when few requests come: after heavy
 * load that is 100 MiB of resident memory instead of 200 to 270. It holds the thread for 20 to 40 ms.
 */
export class RequestGarbage {
  /** Since what is young was collected. */
  private youngBytes = 0
  /** In the period under way. */
  private periodBytes = 0
  private ticksLeft = TICKS_PER_PERIOD
  /** There was a busy period, or the start, since everything was collected. */
  private isAnyOld = true
  private readonly cancel: Cancel

  /** Both collect what is of the thread that calls. */
  constructor({
    timers = systemTimers,
    collectYoung = edenGC,
    collectAll = fullGC,
  }: { timers?: Timers; collectYoung?: () => unknown; collectAll?: () => unknown } = {}) {
    this.cancel = timers.every(EVERY_MS, () => {
      if (this.youngBytes >= YOUNG_BYTES_MIN) {
        this.youngBytes = 0
        collectYoung()
      }
      if (--this.ticksLeft > 0) return
      this.ticksLeft = TICKS_PER_PERIOD
      const isBusy = this.periodBytes >= BUSY_BYTES_MIN
      this.periodBytes = 0
      if (!isBusy && this.isAnyOld) collectAll()
      this.isAnyOld = isBusy
    })
  }

  /** Requests of so many bytes came: what they leave behind is some ten times as much. */
  received(bytes: number): void {
    this.youngBytes += bytes
    this.periodBytes += bytes
  }

  stop(): void {
    this.cancel()
  }
}

/** Less than the 100 ms after which JavaScriptCore gives pages back. */
const EVERY_MS = 80
/** Some three hundred calls. For fewer it is not worth the while. */
const YOUNG_BYTES_MIN = 100_000
/** Ten seconds. */
const TICKS_PER_PERIOD = 125
/** Some three hundred calls a second. With fewer, hardly any come while everything is collected. */
const BUSY_BYTES_MIN = 1_000_000
