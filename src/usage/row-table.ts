import { KeyedHash } from '../lib/keyed-hash.ts'
import type { TagSet } from './tag-sets.ts'

/** Rows of one hour that are counted under one keyspace, perhaps with one tag set, or under one namespace. */
export type Group = {
  readonly workspaceId: string
  /** Of the keyspace or namespace. */
  readonly id: string
  readonly hour: number
  /** Null = no tags. */
  readonly set: TagSet | null
  /** Distinguishes equal texts of different groups in the table. */
  readonly seed: number
  /** The same in another hour. */
  readonly other: Group | null
}

/** Finds the group of an id and an hour; the latest hour first. */
export class Groups {
  readonly #latest = new Map<string, Group>()

  constructor(readonly set: TagSet | null = null) {}

  of(workspaceId: string, id: string, hour: number): Group {
    const latest = this.#latest.get(id) ?? null
    for (let group = latest; group !== null; group = group.other) if (group.hour === hour) return group
    lastSeed = (lastSeed + SEED_STEP) | 0
    const group = { workspaceId, id, hour, set: this.set, seed: lastSeed, other: latest }
    this.#latest.set(id, group)
    return group
  }
}

/**
 * Gives each text of a group a number, its row. A text is a key's id or an identifier. Rows outlast flushes; {@link Counts} are
 * new with each flush.
 *
 * Tables of numbers with open addressing, and the texts in short lists. A `Map` and one long list would be scanned as a whole by
 * each collection of young garbage, and would grow by copying themselves while requests wait. Callers choose identifiers, so
 * the hash is keyed: nobody can prepare texts that collide. Figures: docs/decisions/0021.
 */
export class RowTable {
  readonly groups = new Groups()
  /** Each holds a share of the hashes, so that none takes long to grow; made when first used. */
  readonly #parts: Part[] = []
  /** By row, {@link LIST_ROWS} to a list. */
  readonly #texts: string[][] = []
  readonly #groups: Group[][] = []
  /** Missing where no row of the list has one. */
  readonly #details: (string[] | undefined)[] = []
  #size = 0
  #bytes = 0
  readonly #hash: TextHash

  constructor(hash: TextHash = hashOfThread) {
    this.#hash = hash
  }

  get size(): number {
    return this.#size
  }

  /** Memory of all rows, roughly. */
  get bytes(): number {
    return this.#bytes
  }

  /** @param row 0 to {@link size} - 1. */
  textOf(row: number): string {
    return this.#texts[row >>> LIST_BITS]?.[row & LIST_MASK] as string // in range
  }

  /** @param row 0 to {@link size} - 1. */
  groupOf(row: number): Group {
    return this.#groups[row >>> LIST_BITS]?.[row & LIST_MASK] as Group // in range
  }

  /** @param row 0 to {@link size} - 1. */
  detailOf(row: number): string {
    return this.#details[row >>> LIST_BITS]?.[row & LIST_MASK] ?? ''
  }

  /**
   * Also of a text that had no row until now.
   * @param detail What else distinguishes a row: an id of ours, or a constant.
   */
  rowOf(group: Group, text: string, detail = ''): number {
    const hash = this.#hash
    hash.update(text)
    const h0 = hash.h0 ^ group.seed ^ endOf(detail)
    const at = (hash.h1 ^ group.seed) & PARTS_MASK
    this.#parts[at] ??= new Part()
    const part = this.#parts[at] as Part // just made where it was missing
    let place = part.placeOf(h0)
    for (let row = part.rowAt(place); row >= 0; row = part.rowAt(place)) {
      const isSame =
        part.hashAt(place) === h0 &&
        this.textOf(row) === text &&
        this.groupOf(row) === group &&
        this.detailOf(row) === detail
      if (isSame) return row
      place = part.after(place)
    }
    const row = this.#size++
    part.add(place, row, h0)
    this.#add(row, group, text, detail)
    return row
  }

  #add(row: number, group: Group, text: string, detail: string): void {
    const list = row >>> LIST_BITS
    if ((row & LIST_MASK) === 0) {
      this.#texts.push([])
      this.#groups.push([])
      this.#details.push(undefined)
    }
    this.#texts[list]?.push(text)
    this.#groups[list]?.push(group)
    if (detail !== '') {
      this.#details[list] ??= Array.from({ length: LIST_ROWS }, () => '')
      const details = this.#details[list] as string[] // just made where it was missing
      details[row & LIST_MASK] = detail
    }
    this.#bytes += ROW_BYTES + text.length + detail.length
  }
}

/** Finds a row from the place of its hash on, up to the next free place. At most half of the places are taken. */
class Part {
  /** Two numbers a place: row + 1, and 32 bits of the hash; all zero where it is free. A power of two long. */
  #places = new Int32Array(2 * PLACES_FIRST)
  #rows = 0

  placeOf(h0: number): number {
    return (2 * h0) & (this.#places.length - 1)
  }
  after(place: number): number {
    return (place + 2) & (this.#places.length - 1)
  }
  /** -1 = it is free. */
  rowAt(place: number): number {
    return (this.#places[place] as number) - 1 // a place is within bounds
  }
  hashAt(place: number): number {
    return this.#places[place + 1] as number // a place is within bounds
  }

  /** @param place A free one. */
  add(place: number, row: number, h0: number): void {
    this.#places[place] = row + 1
    this.#places[place + 1] = h0
    this.#rows++
    if (4 * this.#rows >= this.#places.length) this.#grow()
  }

  #grow(): void {
    const places = this.#places
    this.#places = new Int32Array(2 * places.length)
    for (let at = 0; at < places.length; at += 2) {
      if (places[at] === 0) continue
      const h0 = places[at + 1] as number // as above
      let place = this.placeOf(h0)
      while (this.rowAt(place) >= 0) place = this.after(place)
      this.#places[place] = places[at] as number // as above
      this.#places[place + 1] = h0
    }
  }
}

/** Counts of the rows of a {@link RowTable} since the last flush, in numbered columns. */
export class Counts {
  /** By column, of those in use, and row. */
  readonly #columns: (Uint32Array | undefined)[] = []
  /** By row: whether it has a count. Its length is the number of rows that there is room for. */
  #isCounted: Uint8Array
  /** Rows with counts, each group's in the order they came. */
  readonly byGroup = new Map<Group, number[]>()
  /** The next row is mostly of the same group. */
  #lastGroup: Group | null = null
  #lastRows: number[] = []
  #size = 0

  constructor(readonly rows: RowTable) {
    this.#isCounted = new Uint8Array(Math.max(rows.size, ROWS_FIRST))
  }

  /** How many rows have counts. */
  get size(): number {
    return this.#size
  }

  /** So many rows were not used that a new table is cheaper than keeping them. */
  get isMostlyIdle(): boolean {
    return this.rows.size > Math.max(IDLE_ROWS_MIN, 4 * this.#size)
  }

  /** @returns whether it is the row's first. */
  add(row: number, column: number): boolean {
    if (row >= this.#isCounted.length) this.#makeRoom()
    this.#columns[column] ??= new Uint32Array(this.#isCounted.length)
    const counts = this.#columns[column] as Uint32Array // just made where it was missing
    counts[row] = (counts[row] as number) + 1 // there is room for all rows
    if (this.#isCounted[row] === 1) return false
    this.#addFirst(row)
    return true
  }

  #addFirst(row: number): void {
    this.#isCounted[row] = 1
    this.#size++
    const group = this.rows.groupOf(row)
    if (group !== this.#lastGroup) {
      this.#lastGroup = group
      this.#lastRows = this.byGroup.get(group) ?? []
      if (this.#lastRows.length === 0) this.byGroup.set(group, this.#lastRows)
    }
    this.#lastRows.push(row)
  }

  /** By row; null = all are 0. */
  column(column: number): Uint32Array | null {
    return this.#columns[column] ?? null
  }

  #makeRoom(): void {
    const length = 2 * this.rows.size
    const isCounted = new Uint8Array(length)
    isCounted.set(this.#isCounted)
    this.#isCounted = isCounted
    for (const [column, counts] of this.#columns.entries()) {
      if (counts === undefined) continue
      const longer = new Uint32Array(length)
      longer.set(counts)
      this.#columns[column] = longer
    }
  }
}

type TextHash = Pick<KeyedHash, 'update' | 'h0' | 'h1'>
/** Shared: each result is used before the next text is hashed. */
const hashOfThread = new KeyedHash(crypto.randomUUID())

/** Spreads rows that differ in their details alone. The ends of our ids are random, and nobody chooses them. */
function endOf(detail: string): number {
  const last = detail.length - 1
  if (last < 3) return 0
  const low = detail.charCodeAt(last) | (detail.charCodeAt(last - 1) << 7)
  const high = detail.charCodeAt(last - 2) | (detail.charCodeAt(last - 3) << 7)
  return Math.imul(low | (high << 14), SEED_STEP)
}

let lastSeed = 0
/** Odd, so that seeds differ in their low bits. */
const SEED_STEP = 0x9e3779b9

const PARTS = 64
const PARTS_MASK = PARTS - 1
const PLACES_FIRST = 8
const LIST_BITS = 8
/** A collection scans the whole list that a text was added to. */
const LIST_ROWS = 1 << LIST_BITS
const LIST_MASK = LIST_ROWS - 1
/** In the table, the lists and the counts of one flush, without the text; as resident memory grew with 150 000 rows. */
const ROW_BYTES = 200
const ROWS_FIRST = 256
const IDLE_ROWS_MIN = 1_024
