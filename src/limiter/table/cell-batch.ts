import { UNKNOWN_OWNER } from './owners.ts'

/** Cells copied out of the table, to be written. */
export class CellBatch {
  static readonly bytesPerCell = 34
  count = 0
  /** Four words each, as signed 32-bit numbers. */
  readonly names: Int32Array
  readonly ends: Float64Array
  /** Used by this node alone; absolute counts. */
  readonly used: Float64Array
  /** See `owners.ts`. */
  readonly owners: Uint16Array

  constructor(readonly countMax: number) {
    this.names = new Int32Array(4 * countMax)
    this.ends = new Float64Array(countMax)
    this.used = new Float64Array(countMax)
    this.owners = new Uint16Array(countMax)
  }

  hasRoom(cells: number): boolean {
    return this.count + cells <= this.countMax
  }

  add(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    owner: number = UNKNOWN_OWNER,
  ): void {
    this.set(this.count++, h0, h1, h2, h3, endMs, used, owner)
  }

  copy(from: CellBatch, at: number): void {
    const { names, ends, used, owners } = from
    this.add(
      names[4 * at] as number, // in range
      names[4 * at + 1] as number, // in range
      names[4 * at + 2] as number, // in range
      names[4 * at + 3] as number, // in range
      ends[at] as number, // in range
      used[at] as number, // in range
      owners[at],
    )
  }

  set(
    i: number,
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    owner: number,
  ): void {
    this.names[4 * i] = h0
    this.names[4 * i + 1] = h1
    this.names[4 * i + 2] = h2
    this.names[4 * i + 3] = h3
    this.ends[i] = endMs
    this.used[i] = used
    this.owners[i] = owner
  }
}

/**
 * A part of a shard's hash range, stretched to 32 bits; `until` is not included. Ranges that follow one another over several
 * walks cover every cell that existed when the first began, even while pages split.
 */
export type CompactionRange = { from: number; until: number; unchanged: CellBatch }

/** How many places there are in a hash range. */
export const HASH_SPACE = 2 ** 32
