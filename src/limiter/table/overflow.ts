import { OverflowSketch } from './overflow-sketch.ts'
import { UNKNOWN_OWNER } from './owners.ts'

/**
 * Counts windows for which the table has no room, in two overflow sketches. Owners with the average number of cells or more
 * use the large sketch, the others a small one. So a flood of one workspace only disturbs workspaces that have their share
 * of the table. An owner without open windows in a sketch does not look into it: its new counters are exact, however full
 * the sketch is.
 */
export class Overflow {
  private readonly large: OverflowSketch
  private readonly small: OverflowSketch
  private readonly owners = new Map<number, OverflowingOwner>()

  constructor(bytesMax: number) {
    this.small = new OverflowSketch(bytesMax * SMALL_SHARE)
    this.large = new OverflowSketch(bytesMax - this.small.bytes)
  }

  get bytes(): number {
    return this.large.bytes + this.small.bytes
  }

  /** Some window counted here is open, or was at the last `expire`. */
  get isActive(): boolean {
    return this.large.isActive || this.small.isActive
  }

  /** Charges counted here instead of in a cell, and cells given up; since the start. */
  get chargesTotal(): number {
    return this.large.chargesTotal + this.small.chargesTotal
  }

  /** Of one owner, since the start. */
  chargesOf(owner: number): number {
    return this.owners.get(owner)?.charges ?? 0
  }

  /** The most that can have been used of the window that ends at `endMs`. */
  estimate(owner: number, h1: number, h2: number, h3: number, endMs: number): number {
    const own = this.owners.get(owner)
    const unknown = owner === UNKNOWN_OWNER ? undefined : this.owners.get(UNKNOWN_OWNER)
    const looksAt = (until: 'largeUntilMs' | 'smallUntilMs') =>
      owner === UNKNOWN_OWNER ||
      (own !== undefined && own[until] >= endMs) ||
      (unknown !== undefined && unknown[until] >= endMs)
    const large = looksAt('largeUntilMs') ? this.large.estimate(h1, h2, h3, endMs) : 0
    const small = looksAt('smallUntilMs') ? this.small.estimate(h1, h2, h3, endMs) : 0
    return Math.max(large, small)
  }

  /** Makes sure that the counter is estimated at `used` or more until `endMs`. */
  recordAtLeast(
    owner: number,
    isLarge: boolean,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    nowMs: number,
  ): void {
    let own = this.owners.get(owner)
    if (own === undefined) {
      own = { largeUntilMs: 0, smallUntilMs: 0, charges: 0 }
      this.owners.set(owner, own)
    }
    own.charges++
    if (isLarge) {
      own.largeUntilMs = Math.max(own.largeUntilMs, endMs)
      this.large.recordAtLeast(h1, h2, h3, endMs, used, nowMs)
    } else {
      own.smallUntilMs = Math.max(own.smallUntilMs, endMs)
      this.small.recordAtLeast(h1, h2, h3, endMs, used, nowMs)
    }
  }

  /** One slice of clearing what is over, see {@link OverflowSketch.expire}. */
  expire(cellsMax: number, nowMs: number): boolean {
    return this.small.expire(cellsMax, nowMs) && this.large.expire(cellsMax, nowMs)
  }
}

/** For each sketch, when the last window of the owner that it counts ends, Unix ms. */
type OverflowingOwner = { largeUntilMs: number; smallUntilMs: number; charges: number }

const SMALL_SHARE = 1 / 64
