import { OverflowSketch } from './overflow-sketch.ts'
import { UNKNOWN_OWNER } from './owners.ts'

/**
 * Counts windows for which the table has no room, in overflow sketches. Owners with the average number of cells or more use
 * the large one, the others a small one. So a flood of one workspace only disturbs workspaces that have their share of the
 * table. An owner without open windows in a sketch does not look into it: its new counters are exact, however full the
 * sketch is.
 *
 * The large one begins small too. When it fills up, the table gives it memory for a second part: see `WindowTable.shrink`.
 */
export class Overflow {
  /** Charges counted here instead of in a cell, and cells given up; since the start. */
  chargesTotal = 0
  private readonly large: OverflowSketch
  private readonly small: OverflowSketch
  /** Where new counters of the large one go, while it has memory of the table. */
  private extension: OverflowSketch | null = null
  private readonly owners = new Map<number, OverflowingOwner>()

  constructor(options: { largeBytes: number; smallBytes: number }) {
    this.large = new OverflowSketch(options.largeBytes)
    this.small = new OverflowSketch(options.smallBytes)
  }

  get bytes(): number {
    return this.large.bytes + this.small.bytes + (this.extension?.bytes ?? 0)
  }

  /** Some window counted here is open, or was at the last `expire`. */
  get isActive(): boolean {
    return this.large.isActive || this.small.isActive || this.extension?.isActive === true
  }

  /** The large one needs more memory, while there is room in it for counters that make way for it. */
  get needsExtension(): boolean {
    return this.extension === null && this.large.cellsUsed * EXTENDED_FROM > this.large.cellsMax
  }

  get isExtended(): boolean {
    return this.extension !== null
  }

  /** @param memory All zeroes from `offset` on. */
  extend(bytes: number, memory: ArrayBufferLike, offset: number): void {
    this.extension = new OverflowSketch(bytes, memory, offset)
  }

  /** Only while nothing is counted here. */
  returnExtension(): void {
    this.extension = null
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
    const looksAtLarge = looksAt('largeUntilMs')
    const first = looksAtLarge ? this.large.estimate(h1, h2, h3, endMs) : 0
    const second = looksAtLarge && this.extension !== null ? this.extension.estimate(h1, h2, h3, endMs) : 0
    const small = looksAt('smallUntilMs') ? this.small.estimate(h1, h2, h3, endMs) : 0
    return Math.max(first, second, small)
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
    this.chargesTotal++
    if (isLarge) {
      own.largeUntilMs = Math.max(own.largeUntilMs, endMs)
      const isIn =
        this.extension === null || this.large.holds(h1, h2, h3, endMs) ? this.large : this.extension
      isIn.recordAtLeast(h1, h2, h3, endMs, used, nowMs)
    } else {
      own.smallUntilMs = Math.max(own.smallUntilMs, endMs)
      this.small.recordAtLeast(h1, h2, h3, endMs, used, nowMs)
    }
  }

  /** One slice of clearing what is over, see {@link OverflowSketch.expire}. */
  expire(cellsMax: number, nowMs: number): boolean {
    if (!this.small.expire(cellsMax, nowMs) || !this.large.expire(cellsMax, nowMs)) return false
    return this.extension?.expire(cellsMax, nowMs) ?? true
  }
}

/** For each sketch, when the last window of the owner that it counts ends, Unix ms. */
type OverflowingOwner = { largeUntilMs: number; smallUntilMs: number; charges: number }

/** At an eighth. The rest is for cells that the table gives up to make room for the extension: 0.65 of it. */
const EXTENDED_FROM = 8
