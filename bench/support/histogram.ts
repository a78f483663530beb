/** Latencies in bounded memory: 512 buckets for each doubling, so a percentile is at most 0.14 % too high. */
export class Histogram {
  count = 0
  readonly #buckets = new Float64Array(STEPS * 32)

  /** @param us Microseconds; above 2^32 counts as that. */
  add(us: number): void {
    const bucket = Math.min(Math.floor(Math.log2(Math.max(us, 1)) * STEPS), this.#buckets.length - 1)
    this.#buckets[bucket] = (this.#buckets[bucket] ?? 0) + 1
    this.count++
  }

  /** Milliseconds that a share of all, 0 to 1, did not exceed. */
  percentile(share: number): number {
    let left = share * this.count
    for (const [bucket, count] of this.#buckets.entries()) {
      left -= count
      if (left <= 0 && count > 0) return 2 ** ((bucket + 1) / STEPS) / 1000
    }
    return Number.NaN
  }

  /** One line for each doubling from the first to the last that was seen. */
  draw(width = 50): string[] {
    const doublings = Array.from({ length: 32 }, (_, i) =>
      this.#buckets.subarray(i * STEPS, (i + 1) * STEPS).reduce((sum, count) => sum + count, 0),
    )
    const first = doublings.findIndex((count) => count > 0)
    const last = doublings.findLastIndex((count) => count > 0)
    const most = Math.max(...doublings)
    return doublings.slice(Math.max(first, 0), last + 1).map((count, i) => {
      const upTo = `${(2 ** (first + i + 1) / 1000).toFixed(3)} ms`
      const bar = '█'.repeat(Math.ceil((count / most) * width))
      return `${upTo.padStart(14)}  ${bar.padEnd(width)}  ${((count / this.count) * 100).toFixed(2)} %`
    })
  }
}

const STEPS = 512
