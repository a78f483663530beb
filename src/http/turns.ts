import type { Timers } from '../lib/timers.ts'

/** Who has requests that came while it was busy with another. */
export type Waiting = {
  /** Its turn: it may begin one of them. */
  goOn(): void
}

/**
 * How many requests that were held are begun in one turn of the event loop, by all connections of a thread together: beyond
 * that they wait in line for the next, after what has come for others. Without it one client that pipelines has the thread.
 */
export class Turns {
  private begun = 0
  private line: Waiting[] = []
  private isScheduled = false

  constructor(private readonly timers: Pick<Timers, 'soon'>) {}

  /** @returns whether it may go on now; else its turn comes, once. */
  mayGoOn(waiting: Waiting): boolean {
    const mayGoOn = this.line.length === 0 && this.begun < BEGUN_MAX
    if (mayGoOn) this.begun++
    else this.line.push(waiting)
    this.schedule()
    return mayGoOn
  }

  private schedule(): void {
    if (this.isScheduled) return
    this.isScheduled = true
    this.timers.soon(() => this.run())
  }

  private run(): void {
    this.isScheduled = false
    const next = this.line.slice(0, BEGUN_MAX)
    this.line = this.line.slice(BEGUN_MAX)
    this.begun = next.length
    for (const waiting of next) waiting.goOn()
    if (this.line.length > 0) this.schedule()
  }
}

const BEGUN_MAX = 16
