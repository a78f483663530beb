import { CellBatch } from './cell-batch.ts'
import { UNKNOWN_OWNER } from './owners.ts'

/**
 * Counters without a cell of their own that are near their limit, to be written like changed cells: those are the ones
 * that a restart must not forget. Each is here once, with the latest that was said of it, so one that is charged over and
 * over takes no room from others. An owner gets a place only while it has fewer than four times as many as are free: one
 * alone may have four fifths of them, and whoever comes after a flood still finds some. Nor may an owner have more than
 * {@link ROWS_MAX} of them stored: each is a row in the database until its window is over, which may be in a year.
 */
export class NearLimit {
  private readonly batch: CellBatch
  /** Place in the batch, plus 1, by a part of the name, probed linearly; 0 = free. Twice as many as there can be. */
  private readonly places: Uint16Array
  private readonly mask: number
  /** How many entries each owner has. */
  private readonly byOwner = new Map<number, number>()
  /** How many were taken of each owner, and when the last of their windows ends, Unix ms. */
  private readonly stored = new Map<number, { rows: number; untilMs: number }>()

  /** @param countMax Up to 32 767; when there are so many, no others are taken in until they are taken away. */
  constructor(
    countMax: number,
    private readonly rowsMax = ROWS_MAX,
  ) {
    this.batch = new CellBatch(countMax)
    this.places = new Uint16Array(2 ** Math.ceil(Math.log2(2 * countMax)))
    this.mask = this.places.length - 1
  }

  get count(): number {
    return this.batch.count
  }

  /** The same window keeps the higher count, a newer window replaces an older, as in the database. */
  keep(
    h0: number,
    h1: number,
    h2: number,
    h3: number,
    endMs: number,
    used: number,
    owner: number = UNKNOWN_OWNER,
  ): void {
    const { names, ends, used: counts } = this.batch
    let at = h1 & this.mask
    for (; this.places[at] !== 0; at = (at + 1) & this.mask) {
      const i = (this.places[at] as number) - 1 // in range
      if (
        names[4 * i] !== h0 ||
        names[4 * i + 1] !== h1 ||
        names[4 * i + 2] !== h2 ||
        names[4 * i + 3] !== h3
      )
        continue
      const knownMs = ends[i] as number // in range
      if (endMs < knownMs || (endMs === knownMs && used <= (counts[i] as number))) return // in range
      ends[i] = endMs
      counts[i] = used
      return
    }
    const owned = this.byOwner.get(owner) ?? 0
    if (owned >= PLACES_PER_FREE_ONE * (this.batch.countMax - this.count)) return
    if (owned + (this.stored.get(owner)?.rows ?? 0) >= this.rowsMax) return
    this.byOwner.set(owner, owned + 1)
    this.batch.add(h0, h1, h2, h3, endMs, used, owner)
    this.places[at] = this.batch.count
  }

  /** Empties it. @param nowMs Windows that end up to then are stored no more. */
  take(nowMs: number): CellBatch {
    for (const [owner, { untilMs }] of this.stored) if (untilMs <= nowMs) this.stored.delete(owner)
    for (let i = 0; i < this.count; i++) {
      const [owner = UNKNOWN_OWNER, endMs = 0] = [this.batch.owners[i], this.batch.ends[i]]
      const { rows, untilMs } = this.stored.get(owner) ?? { rows: 0, untilMs: 0 }
      this.stored.set(owner, { rows: rows + 1, untilMs: Math.max(untilMs, endMs) })
    }
    const taken = new CellBatch(this.count)
    taken.count = this.count
    taken.names.set(this.batch.names.subarray(0, 4 * this.count))
    taken.ends.set(this.batch.ends.subarray(0, this.count))
    taken.used.set(this.batch.used.subarray(0, this.count))
    taken.owners.set(this.batch.owners.subarray(0, this.count))
    this.byOwner.clear()
    this.batch.count = 0
    this.places.fill(0)
    return taken
  }

  /** What was taken and could not be written; what was said since is later, and stays. */
  putBack({ count, names, ends, used, owners }: CellBatch): void {
    for (let i = 0; i < count; i++) {
      const stored = this.stored.get(owners[i] ?? UNKNOWN_OWNER)
      if (stored !== undefined) stored.rows--
      const [h0 = 0, h1 = 0, h2 = 0, h3 = 0] = names.subarray(4 * i, 4 * i + 4)
      this.keep(h0, h1, h2, h3, ends[i] as number, used[i] as number, owners[i]) // i is below its count
    }
  }
}

const PLACES_PER_FREE_ONE = 4
/** Of some 100 bytes in the database; a counter that is charged again counts again. */
const ROWS_MAX = 1_000_000
