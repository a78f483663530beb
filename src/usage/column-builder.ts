import { startOfMonth } from '../lib/buckets.ts'
import { BATCH_ROWS_MAX, emptyColumns, OUTCOME_COLUMNS, put, type UsageColumns } from './batch.ts'
import type { FullNamespaces } from './full-namespaces.ts'
import type { Counts, Group } from './row-table.ts'
import type { TagSet } from './tag-sets.ts'

/** Columns of {@link Counts} of identifiers. */
export const PASSED = 0
export const DENIED = 1
/** Detail of the row that counts the identifiers without a row of their own. */
export const UNNAMED = 'unnamed'

/** Turns counted rows into the columns of batches. */
export class ColumnBuilder {
  columns = emptyColumns()
  /** Of all tables together. A long set of tags counts as several. */
  #rows = 0
  /** Rows looked at and left out since the last pause. */
  #leftOut = 0
  #pauseAt = SLICE_ROWS
  readonly #full: FullNamespaces
  /** Their positions in the columns, from 1. */
  readonly #scopes = new Map<string, number>()
  readonly #sets = new Map<string, number>()

  constructor(full: FullNamespaces) {
    this.#full = full
  }

  get isEmpty(): boolean {
    return this.#rows === 0
  }

  /** Also when it is full. */
  isPauseDue(): boolean {
    if (this.#rows + this.#leftOut < this.#pauseAt) return false
    this.#leftOut = 0
    this.#pauseAt = Math.min(this.#rows + SLICE_ROWS, BATCH_ROWS_MAX)
    return true
  }

  /** @returns the columns if they are full, and begins new ones; else null. */
  takeFull(): UsageColumns | null {
    if (this.#rows < BATCH_ROWS_MAX) return null
    const { columns } = this
    this.columns = emptyColumns()
    this.#rows = 0
    this.#pauseAt = SLICE_ROWS
    this.#scopes.clear()
    this.#sets.clear()
    return columns
  }

  /**
   * Adds as many rows as fit before a pause.
   * @param from Index of the first of `rows`.
   * @returns how many were added.
   */
  addKeys(counts: Counts, group: Group, rows: readonly number[], from: number): number {
    const to = this.columns.verifications
    const added = Math.min(rows.length - from, this.#pauseAt - this.#rows)
    const first = to.keyId.length
    const scope = this.#scopeOf(group)
    const set = group.set === null ? 0 : this.#setOf(group, group.set)
    for (let i = 0; i < added; i++) {
      const row = rows[from + i] as number // in range
      to.keyId.push(counts.rows.textOf(row))
      to.scope.push(scope)
      to.hour.push(group.hour)
      // Most rows are of a valid key without tags and identity: other columns begin when they are needed.
      if (set !== 0) put(to.set, first + i, set, 0)
      const identityId = counts.rows.detailOf(row)
      if (identityId !== '') put(to.identityId, first + i, identityId, '')
    }
    for (const [column, name] of OUTCOME_COLUMNS.entries()) {
      const ofRows = counts.column(column)
      if (ofRows === null) continue
      for (let i = 0; i < added; i++) {
        const count = ofRows[rows[from + i] as number] as number // both in range
        if (count > 0) put(to[name], first + i, count, 0)
      }
    }
    this.#rows += added
    return added
  }

  /**
   * As {@link addKeys}. Totals of a batch cover its own identifiers, so that a total is never less than the sum of its parts.
   * Identifiers that cannot get a row any more count in the total alone.
   */
  addIdentifiers(counts: Counts, group: Group, rows: readonly number[], from: number): number {
    const { totals, identifiers } = this.columns
    const room = this.#pauseAt - this.#rows - this.#leftOut
    const added = Math.min(rows.length - from, Math.max(1, room - 1))
    const known = this.#full.knownOf(group.id, group.hour)
    let total = totals.hour.length
    const isSame = totals.hour[total - 1] === group.hour && totals.namespaceId[total - 1] === group.id
    if (!isSame) {
      total = totals.workspaceId.push(group.workspaceId)
      totals.namespaceId.push(group.id)
      totals.hour.push(group.hour)
      totals.passed.push(0)
      totals.denied.push(0)
      this.#rows++
    }
    const ofPassed = counts.column(PASSED)
    const ofDenied = counts.column(DENIED)
    let allPassed = 0
    let allDenied = 0
    for (let i = from; i < from + added; i++) {
      const row = rows[i] as number // in range
      const passed = ofPassed?.[row] ?? 0
      const denied = ofDenied?.[row] ?? 0
      allPassed += passed
      allDenied += denied
      const identifier = counts.rows.textOf(row)
      if (counts.rows.detailOf(row) === UNNAMED) continue
      if (known?.has(identifier) === false) {
        this.#leftOut++
        continue
      }
      identifiers.total.push(total)
      identifiers.identifier.push(identifier)
      identifiers.passed.push(passed)
      identifiers.denied.push(denied)
      this.#rows++
    }
    totals.passed[total - 1] = (totals.passed[total - 1] ?? 0) + allPassed
    totals.denied[total - 1] = (totals.denied[total - 1] ?? 0) + allDenied
    return added
  }

  #scopeOf({ workspaceId, id }: Group): number {
    let at = this.#scopes.get(id)
    if (at === undefined) {
      const { scopes } = this.columns
      scopes.keyspaceId.push(id)
      at = scopes.workspaceId.push(workspaceId)
      this.#scopes.set(id, at)
    }
    return at
  }

  #setOf({ workspaceId, hour }: Group, set: TagSet): number {
    const month = startOfMonth(hour)
    const name = `${workspaceId} ${month} ${set.name}`
    let at = this.#sets.get(name)
    if (at === undefined) {
      const { sets } = this.columns
      sets.workspaceId.push(workspaceId)
      sets.month.push(month)
      sets.id.push(new Bun.CryptoHasher('sha256').update(set.name).digest('hex'))
      at = sets.tags.push([...set.tags])
      this.#sets.set(name, at)
      this.#rows += Math.floor(set.name.length / CHARACTERS_A_ROW)
    }
    return at
  }
}

/** Of a set of tags, so that one statement has at most some 2 MB of tags. */
const CHARACTERS_A_ROW = 1_000
/** Rows whose columns are built without a pause, in some 0.2 ms. Divides {@link BATCH_ROWS_MAX}. */
const SLICE_ROWS = 250
