import type { ConnectionCounts } from '../../observe/measures.ts'

/** Who holds bytes of one client. */
export type Holder = {
  /** Lets go of what it holds, with an answer where one can be given. */
  giveWay(): void
}

/**
 * What the connections of one thread hold at a time: bodies that are not whole, requests that wait for their turn, answers
 * that are not taken. Memory counts, not what of it is used.
 *
 * - What has come is held, and beyond the bound the oldest holder gives way at once, and then the next. Who sends a request in
 *   one piece and takes its answer holds nothing, and is not touched.
 * - A body of more than 64 KiB is read on when all of it has room; until then it waits unread. When nobody else comes to an
 *   end for half a second, the oldest gives way for it.
 */
export class HeldMemory {
  private bytes = 0
  /** The oldest first: each since it began to hold something. */
  private readonly holders = new Set<Holder>()
  /** Since when there was no room for somebody, and nobody came to an end; null = there was. */
  private fullSinceMs: number | null = null
  private isGivingUp = false

  constructor(
    private readonly bytesMax: number,
    private readonly counts: ConnectionCounts,
    /** Told when there may be room again. */
    private readonly onRoom: () => void = () => {},
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
    if (now < before) {
      if (!this.isGivingUp && before - now >= PROGRESS_BYTES_MIN) this.fullSinceMs = null
      this.onRoom()
    } else this.giveUpFor(0)
  }

  /** @returns whether there is room for so many bytes more, for which others may have given way. */
  hasRoomFor(bytes: number): boolean {
    if (this.bytes + bytes <= this.bytesMax) return true
    const nowMs = performance.now()
    this.fullSinceMs ??= nowMs
    if (nowMs - this.fullSinceMs < PATIENCE_MS) return false
    this.giveUpFor(bytes)
    return this.bytes + bytes <= this.bytesMax
  }

  private giveUpFor(bytes: number): void {
    // The last one stays: an answer may be larger than everything.
    while (this.bytes + bytes > this.bytesMax && this.holders.size > 1) {
      const [oldest] = this.holders
      if (oldest === undefined) return
      this.counts.givenUp++
      const held = this.bytes
      this.isGivingUp = true
      oldest.giveWay()
      this.isGivingUp = false
      // It may hold on to the answer that tells it; then the next one is asked.
      if (this.bytes >= held) this.holders.delete(oldest)
    }
  }
}

/** Of who comes to an end: it was one of those that the others wait for. */
const PROGRESS_BYTES_MIN = 65_536
const PATIENCE_MS = 500
