import type { Timers } from '../../lib/timers.ts'

/** Who has requests that came while it was busy with another. */
export type Waiting = {
  /** Its turn: it may begin one of them. */
  goOn(): void
}

/** Who reads a large body. */
export type Reading = {
  /** Its turn: it reads one piece more. @returns false while there is no room for it: it asks to be asked again. */
  readOn(): boolean
}

/**
 * How much one turn of the event loop does for clients that send without pause, by all connections of a thread together. What
 * is beyond waits in line for the next turn, after what has come for others.
 *
 * - Requests that were held while another was in work: 16 are begun.
 * - Pieces of large bodies, of up to half a megabyte each: 8 are read. The newest goes first: of those that wait for room, the
 *   oldest may be the ones that never end.
 */
export class Turns {
  private begun = 0
  private waiting: Waiting[] = []
  private readonly reading: Reading[] = []
  private isScheduled = false

  constructor(private readonly timers: Pick<Timers, 'soon'>) {}

  /** @returns whether it may go on now; else its turn comes, once. */
  mayGoOn(waiting: Waiting): boolean {
    const mayGoOn = this.waiting.length === 0 && this.begun < BEGUN_MAX
    if (mayGoOn) this.begun++
    else this.waiting.push(waiting)
    this.schedule()
    return mayGoOn
  }

  /** Its turn comes, once. */
  readLater(reading: Reading): void {
    this.reading.push(reading)
    this.schedule()
  }

  /** There may be room again for those that read. */
  retry(): void {
    if (this.reading.length > 0) this.schedule()
  }

  private schedule(): void {
    if (this.isScheduled) return
    this.isScheduled = true
    this.timers.soon(() => this.run())
  }

  private run(): void {
    this.isScheduled = false
    const waiting = this.waiting.slice(0, BEGUN_MAX)
    this.waiting = this.waiting.slice(BEGUN_MAX)
    this.begun = waiting.length
    for (const each of waiting) each.goOn()
    let read = 0
    for (; read < READ_MAX; read++) {
      const newest = this.reading.pop()
      if (newest === undefined) break
      if (newest.readOn()) continue
      this.reading.push(newest)
      break
    }
    if (this.waiting.length > 0 || (read > 0 && this.reading.length > 0)) this.schedule()
  }
}

const BEGUN_MAX = 16
const READ_MAX = 8
