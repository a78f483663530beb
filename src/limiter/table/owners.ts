/**
 * Whose the cells of a table are: a workspace's number is 16 bits of the keyed hash of its id. So it is the same on every
 * thread and after a restart without a list of workspaces, and a cell has room for it. Two workspaces may have the same
 * number, one pair of 65 535: then they have one share.
 */
export class OwnerShares {
  /** How many cells each has. */
  readonly cells = new Int32Array(OWNERS)
  /** How many of them have any. */
  private count = 0

  gain(owner: number): void {
    const cells = this.cells[owner] as number // below OWNERS
    if (cells === 0) this.count++
    this.cells[owner] = cells + 1
  }

  lose(owner: number): void {
    const cells = (this.cells[owner] as number) - 1 // below OWNERS
    if (cells === 0) this.count--
    this.cells[owner] = cells
  }

  /** @param live Cells of all of them. @returns whether it has as many as they have on average, or more. */
  isAverage(owner: number, live: number): boolean {
    return (this.cells[owner] as number) * this.count >= live // below OWNERS
  }

  /** Those with the most cells, most first; unknown ones left out. */
  largest(most: number): { owner: number; cells: number }[] {
    const found: { owner: number; cells: number }[] = []
    for (let owner = UNKNOWN_OWNER + 1; owner < OWNERS; owner++) {
      const cells = this.cells[owner] as number // in range
      if (cells === 0 || (found.length === most && cells <= (found.at(-1)?.cells ?? 0))) continue
      const before = found.findIndex((other) => other.cells < cells)
      found.splice(before < 0 ? found.length : before, 0, { owner, cells })
      if (found.length > most) found.pop()
    }
    return found
  }
}

/** Numbers there are, the unknown one included. */
export const OWNERS = 2 ** 16
/** Of windows written before owners were. A call tells whose it is. */
export const UNKNOWN_OWNER = 0

/** The number of a workspace, from a word of its id's keyed hash. */
export const ownerNumber = (word: number) => 1 + ((word >>> 0) % (OWNERS - 1))
