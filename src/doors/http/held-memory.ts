import type { ConnectionCounts } from '../../observe/measures.ts'

/** An object that holds bytes of one client. */
export type Holder = {
  /** Releases held memory, with an answer to the client where possible. */
  giveWay(): void
}

/**
 * Bounds the memory that all connections of one thread hold: incomplete bodies, waiting requests, answers not yet taken. It
 * counts allocated memory, not the used part.
 *
 * - Received bytes are always held. Beyond the bound the oldest holder gives way at once, then the next. A client that
 *   sends a request in one piece and takes its answer holds nothing and is never affected.
 * - The rest of a body over 64 KiB is read only when the whole body has room; until then it waits in the kernel. When no
 *   other holder finishes for half a second, the oldest gives way.
 */
export class HeldMemory {
  private bytes = 0
  /** Oldest first, by the time of their first held byte. */
  private readonly holders = new Set<Holder>()
  /** When a body first found no room, with no holder finished since, ms. Null = there is room. */
  private fullSinceMs: number | null = null
  private isGivingUp = false

  constructor(
    private readonly bytesMax: number,
    private readonly counts: ConnectionCounts,
    /** Called when there may be room again. */
    private readonly onRoom: () => void = () => {},
  ) {}

  /**
   * Counts a change. Holders may give way before this returns, including `holder`.
   * @param before Bytes it held at its last call. @param now Bytes it holds now.
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

  /** @returns whether `bytes` more fit. Others may have given way for them. */
  hasRoomFor(bytes: number): boolean {
    if (this.bytes + bytes <= this.bytesMax) return true
    const nowMs = performance.now()
    this.fullSinceMs ??= nowMs
    if (nowMs - this.fullSinceMs < PATIENCE_MS) return false
    this.giveUpFor(bytes)
    return this.bytes + bytes <= this.bytesMax
  }

  private giveUpFor(bytes: number): void {
    // The last holder stays: a single answer may exceed the bound.
    while (this.bytes + bytes > this.bytesMax && this.holders.size > 1) {
      const [oldest] = this.holders
      if (oldest === undefined) return
      this.counts.givenUp++
      const held = this.bytes
      this.isGivingUp = true
      oldest.giveWay()
      this.isGivingUp = false
      // A holder may keep the memory of its final answer. Then the next one gives way.
      if (this.bytes >= held) this.holders.delete(oldest)
    }
  }
}

/** Releasing this much counts as progress for the bodies that wait for room. */
const PROGRESS_BYTES_MIN = 65_536
const PATIENCE_MS = 500
