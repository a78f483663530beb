/**
 * Small numbers (tags) that stand for ends of windows in cells too narrow for a time. Tag 0 is never given: an empty cell
 * has it, and its end is 0. A tag is free for another end once a clearing walk over all cells has emptied those that had it.
 */
export class WindowEndTable {
  /** End of the window a tag stands for, Unix ms; 0 = the tag is unused. Public because a call looks at many cells. */
  readonly ends: Float64Array
  private readonly byEnd = new Map<number, number>()
  private lastTag = 0
  /** The clearing walk: the next cell, 0 between two walks, and the end up to which windows are cleared. */
  private clearFrom = 0
  private clearEndMs = 0

  /** @param count Tags there are, the one never given included. */
  constructor(private readonly count: number) {
    this.ends = new Float64Array(count)
  }

  get isEmpty(): boolean {
    return this.byEnd.size === 0
  }

  /** The tag of a window end, or a new one; 0 when all are in use. */
  tagFor(endMs: number): number {
    const known = this.byEnd.get(endMs)
    if (known !== undefined) return known
    if (this.byEnd.size === this.count - 1) return 0
    do this.lastTag = (this.lastTag % (this.count - 1)) + 1
    while (this.ends[this.lastTag] !== 0)
    this.ends[this.lastTag] = endMs
    this.byEnd.set(endMs, this.lastTag)
    return this.lastTag
  }

  /**
   * When all are in use: the tag of the next later end, or the latest tag, moved to this end. Either keeps counts for longer
   * than needed.
   */
  shareFor(endMs: number, nowMs: number): number {
    let latestMs = 0
    let nextMs = Number.POSITIVE_INFINITY
    for (const otherMs of this.byEnd.keys()) {
      if (otherMs > latestMs) latestMs = otherMs
      if (otherMs > endMs && otherMs > nowMs && otherMs < nextMs) nextMs = otherMs
    }
    const tag = this.byEnd.get(nextMs) ?? (this.byEnd.get(latestMs) as number) // the map is full
    if (nextMs === Number.POSITIVE_INFINITY) {
      this.byEnd.delete(latestMs)
      this.byEnd.set(endMs, tag)
      this.ends[tag] = endMs
    }
    return tag
  }

  /**
   * One slice of the clearing walk. A walk begins when some window is over.
   * @param cells How many there are. @param cellsMax How many of them a slice may look at.
   * @param clear Empties those cells of a range whose window ended at `endMs` or before.
   * @returns whether a walk was completed, or none was needed.
   */
  expire(
    cells: number,
    cellsMax: number,
    nowMs: number,
    clear: (from: number, until: number, endMs: number) => void,
  ): boolean {
    if (this.clearFrom === 0) {
      if (!this.hasEnded(nowMs)) return true
      this.clearEndMs = nowMs
    }
    const until = Math.min(cells, this.clearFrom + cellsMax)
    clear(this.clearFrom, until, this.clearEndMs)
    this.clearFrom = until
    if (until < cells) return false
    this.clearFrom = 0
    for (const [endMs, tag] of this.byEnd) {
      if (endMs > this.clearEndMs) continue
      this.byEnd.delete(endMs)
      this.ends[tag] = 0
    }
    return true
  }

  private hasEnded(nowMs: number): boolean {
    for (const endMs of this.byEnd.keys()) if (endMs <= nowMs) return true
    return false
  }
}
