/**
 * Small numbers (tags) that stand for ends of windows in cells too narrow for a time. Tag 0 is never given: an empty cell
 * has it, and its end is 0. Who gives a tag back must have cleared every cell that has it.
 */
export class WindowEndTable {
  /** End of the window a tag stands for, Unix ms; 0 = the tag is unused. Public for those who look at many cells a call. */
  readonly ends: Float64Array
  private readonly byEnd = new Map<number, number>()
  private lastTag = 0

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
   * When all are in use: the tag of the next later end, or else the latest is moved to this end. Both keep counts for
   * longer than they need be.
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

  hasEnded(nowMs: number): boolean {
    for (const endMs of this.byEnd.keys()) if (endMs <= nowMs) return true
    return false
  }

  /** Gives back the tags of windows that ended by then. */
  forget(untilMs: number): void {
    for (const [endMs, tag] of this.byEnd) {
      if (endMs > untilMs) continue
      this.byEnd.delete(endMs)
      this.ends[tag] = 0
    }
  }
}
