import { RecentEvent } from './event.ts'

/** The last `size` events. They are written over in place, so noting one leaves no garbage. */
export class Ring {
  private readonly events: RecentEvent[] = []
  /** Events noted since the start. */
  private noted = 0

  constructor(private readonly size: number) {}

  /** The oldest event, to be filled as the newest one. */
  next(): RecentEvent {
    const at = this.noted++ % this.size
    if (at < this.events.length) return this.events[at] as RecentEvent // it was filled before
    const event = new RecentEvent()
    this.events.push(event)
    return event
  }

  /** Newest first. @param see Returns false to see no more. */
  visit(see: (event: RecentEvent) => boolean): void {
    const count = this.events.length
    for (let back = 1; back <= count; back++)
      if (!see(this.events[(this.noted - back) % this.size] as RecentEvent)) return // one for each noted
  }

  /** Time of the oldest event, once others were written over; null = nothing was. */
  get fullSince(): number | null {
    return this.noted <= this.size ? null : (this.events[this.noted % this.size] as RecentEvent).at // it is full
  }
}
