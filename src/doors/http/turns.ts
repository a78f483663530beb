import type { Timers } from '../../lib/timers.ts'

/** A connection with requests that arrived while it was busy. */
export type Waiting = {
  /** Its turn: it may begin one request. */
  goOn(): void
}

/** A connection that reads a large body. */
export type Reading = {
  /** Its turn: it reads one more piece. @returns false when there is no room; it is then asked again. */
  readOn(): boolean
}

/**
 * Limits how much one turn of the event loop does for clients that send without pause, over all connections of a thread.
 * The rest waits for the next turn, so that other clients' bytes come first.
 *
 * - Requests held while another was in work: 16 are begun.
 * - Pieces of large bodies, of up to half a megabyte each: 8 are read, newest body first. The oldest of those waiting for
 *   room may be one that never ends.
 */
export class Turns {
  private begun = 0
  private waiting: Waiting[] = []
  private readonly reading: Reading[] = []
  private isScheduled = false

  constructor(private readonly timers: Pick<Timers, 'soon'>) {}

  /** @returns true when it may go on now; otherwise `goOn` is called once in its turn. */
  mayGoOn(waiting: Waiting): boolean {
    const mayGoOn = this.waiting.length === 0 && this.begun < BEGUN_MAX
    if (mayGoOn) this.begun++
    else this.waiting.push(waiting)
    this.schedule()
    return mayGoOn
  }

  /** Calls `readOn` in its turn. */
  readLater(reading: Reading): void {
    this.reading.push(reading)
    this.schedule()
  }

  /** Tries waiting readers again: there may be room. */
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
