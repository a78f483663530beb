import { UNKNOWN_OWNER } from './owners.ts'

/** Cells copied out of the table, to be written. */
export class CellBatch {
  count = 0
  /** Four words each, as signed 32-bit numbers. */
  readonly names: Int32Array
  readonly ends: Float64Array
  /** Used by this node alone, absolute. */
  readonly used: Float64Array
  /** Whose they are; see `owners.ts`. */
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
    const i = this.count++
    this.names[4 * i] = h0
    this.names[4 * i + 1] = h1
    this.names[4 * i + 2] = h2
    this.names[4 * i + 3] = h3
    this.ends[i] = endMs
    this.used[i] = used
    this.owners[i] = owner
  }
}
