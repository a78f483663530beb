import type { ConnectionCounts } from './measures.ts'

/** Who holds bytes of one client. */
export type Holder = {
  /** Lets go of what it holds, with an answer where one can be given. */
  giveWay(): void
}

/**
 * What the connections of one thread hold at a time: bodies that are not whole, requests that wait for their turn, answers
 * that are not taken. Memory counts, not what of it is used. Beyond the bound the oldest holder gives way, and then the next:
 * who sends a request in one piece and takes its answer holds nothing, and is not touched.
 */
export class HeldMemory {
  private bytes = 0
  /** The oldest first: each since it began to hold something. */
  private readonly holders = new Set<Holder>()

  constructor(
    private readonly bytesMax: number,
    private readonly counts: ConnectionCounts,
  ) {}

  /**
   * Holders may give way before this returns, `holder` too.
   * @param before What it held by its last word. @param now What it holds.
   */
  change(holder: Holder, before: number, now: number): void {
    this.bytes += now - before
    this.counts.heldBytes = this.bytes
    if (now === 0) this.holders.delete(holder)
    else if (before === 0) this.holders.add(holder)
    if (now <= before) return
    // The last one stays: an answer may be larger than everything.
    while (this.bytes > this.bytesMax && this.holders.size > 1) {
      const [oldest] = this.holders
      if (oldest === undefined) return
      this.counts.givenUp++
      const held = this.bytes
      oldest.giveWay()
      // It may hold on to the answer that tells it; then the next one is asked.
      if (this.bytes >= held) this.holders.delete(oldest)
    }
  }
}
