/**
 * How many cells each owner has. An owner is a workspace as a number: 16 bits of the keyed hash of its id. So it is the same
 * on every thread and after a restart, without a list of workspaces, and fits into a cell. Two workspaces with the same
 * number, one pair of 65 535, have one share together.
 */
export class OwnerShares {
  /** By owner. */
  readonly cells = new Int32Array(OWNERS)
  /** Owners that have any. */
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

  /** @param live Cells of all owners. @returns whether it has the average of those that have any, or more. */
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

/** How many numbers there are, the unknown owner included. */
export const OWNERS = 2 ** 16
/** Of windows that a release before owners wrote. A call of the counter tells its owner. */
export const UNKNOWN_OWNER = 0

/** The number of a workspace, from a word of its id's keyed hash. */
export const ownerNumber = (word: number) => 1 + ((word >>> 0) % (OWNERS - 1))
