/** A charge that is kept aside: its counter has no cell, and a count of the sketch cannot be lowered. */
export type Hold = {
  readonly h0: number
  readonly h1: number
  readonly h2: number
  readonly h3: number
  readonly limit: number
  readonly durationMs: number
  readonly cost: number
  readonly owner: number
  /** End of the window, Unix ms. */
  readonly endMs: number
  /** The counter has got a cell since, and the cost is counted there. */
  isInCell: boolean
}

/**
 * The charges of one shard that may still be taken back. Each counts as used; so it can refuse others, and no count is ever
 * too low. There are as many as calls that span shards are under way, and no more than {@link HOLDS_MAX}.
 */
export class Holds {
  count = 0
  private readonly byName = new Map<number, Hold[]>()

  get hasRoom(): boolean {
    return this.count < HOLDS_MAX
  }

  add(hold: Hold): void {
    const name = nameOf(hold.h0, hold.h1)
    const known = this.byName.get(name)
    if (known === undefined) this.byName.set(name, [hold])
    else known.push(hold)
    this.count++
  }

  /** Of the counter, in the window that ends at `endMs` or a later one. */
  costOf(h0: number, h1: number, h2: number, h3: number, endMs: number): number {
    let cost = 0
    for (const hold of this.byName.get(nameOf(h0, h1)) ?? [])
      if (hold.h2 === h2 && hold.h3 === h3 && hold.endMs >= endMs) cost += hold.cost
    return cost
  }

  /** The counter has got a cell, and {@link costOf} is counted in it. */
  moveToCell(h0: number, h1: number, h2: number, h3: number, endMs: number): void {
    for (const hold of [...(this.byName.get(nameOf(h0, h1)) ?? [])]) {
      if (hold.h2 !== h2 || hold.h3 !== h3 || hold.endMs < endMs) continue
      hold.isInCell = true
      this.remove(hold)
    }
  }

  remove(hold: Hold): void {
    const name = nameOf(hold.h0, hold.h1)
    const known = this.byName.get(name)
    const at = known?.indexOf(hold) ?? -1
    if (known === undefined || at < 0) return
    this.count--
    if (known.length === 1) this.byName.delete(name)
    else known.splice(at, 1)
  }
}

/** 53 bits of a counter's name. */
export const nameOf = (h0: number, h1: number) => h0 * 2 ** 21 + (h1 >>> 11)

/** Each takes some 150 bytes. With more, a charge is counted in the sketch at once, and stays when it is undone. */
const HOLDS_MAX = 50_000
