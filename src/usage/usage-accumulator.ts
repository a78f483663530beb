import { HOUR_MS } from '../lib/clock.ts'
import { COLUMN_OF, type Outcome, type UsageColumns } from './batch.ts'
import { ColumnBuilder, DENIED, PASSED, UNNAMED } from './column-builder.ts'
import { Counts, RowTable } from './row-table.ts'
import { WORKSPACE_SETS_MAX, WorkspaceTags } from './tag-sets.ts'

/**
 * Short cut from what is known of a key to the row where its verifications without tags are counted. Two fields of the key's
 * own record, with one identity: an object beside it would not be in the processor's cache when the record is. Set here only.
 */
export type CounterRef = {
  /** Which rows the number is of; null = none yet. Not the rows themselves: they are large. */
  usageRows: object | null
  usageRow: number
}

export type VerificationEvent = {
  workspaceId: string
  keyspaceId: string
  keyId: string
  identityId: string | null
  outcome: Outcome
  /** Up to 10 of up to 128 characters; their order and repetitions do not matter. Null = none. Too many sets are `OTHER_TAGS`. */
  tags: readonly string[] | null
  /** When it was decided (Unix ms): the hour it belongs to, whenever it is written. */
  atMs: number
  /** Kept with what is known of the key: spares the search for its row. */
  slot?: CounterRef
}

export type RatelimitEvent = {
  workspaceId: string
  namespaceId: string
  identifier: string
  passed: boolean
  atMs: number
}

/** Longer identifiers (bytes) get no row of their own: they would not fit an index entry. They count in the total. */
export const NAMED_IDENTIFIER_BYTES_MAX = 2_048

/** Rows of earlier events, of one hour, that later ones find again. */
type KeptRows = {
  keys: RowTable
  identifiers: RowTable
  hour: number
  /** Names `keys` to a {@link CounterRef}. */
  refersTo: object
}

/**
 * Counts events in memory until a flush takes them away: verifications by hour, key, identity and tag set, rate limits by hour,
 * namespace and identifier. Recording an event whose row exists is one search and one increment, or the increment alone
 * where the key's {@link CounterRef} knows the row. It allocates nothing: that path runs for every request.
 */
export class UsageAccumulator {
  /** How much it holds: rows, tag sets and spellings of them. What bounds on memory count. */
  size = 0
  readonly #keys: Counts
  readonly #identifiers: Counts
  /** Their rows are new with each flush: which tag sets are kept apart is decided anew. */
  readonly #taggedKeys = new Counts(new RowTable())
  /** By workspace: a flood of tags in one takes no room of another's. */
  readonly #tags = new Map<string, WorkspaceTags>()
  readonly #setsMax: number
  #hour: number
  /** It has events of more than one hour: rows of the earlier one are not worth keeping. */
  #hasTurned = false
  #refersTo: object

  /** @param options.setsMax Sets of tags that are kept apart for each workspace, and a few times as many spellings of them. */
  constructor({ setsMax = WORKSPACE_SETS_MAX } = {}, kept?: KeptRows) {
    this.#setsMax = setsMax
    this.#keys = new Counts(kept?.keys ?? new RowTable())
    this.#identifiers = new Counts(kept?.identifiers ?? new RowTable())
    this.#hour = kept?.hour ?? Number.NEGATIVE_INFINITY
    this.#refersTo = kept?.refersTo ?? {}
  }

  /** An empty one, to be filled after this. */
  next(): UsageAccumulator {
    const keys = this.#rowsToKeep(this.#keys)
    const identifiers = this.#rowsToKeep(this.#identifiers)
    return new UsageAccumulator(
      { setsMax: this.#setsMax },
      {
        keys: keys ?? new RowTable(),
        identifiers: identifiers ?? new RowTable(),
        hour: this.#hour,
        refersTo: keys === null ? {} : this.#refersTo,
      },
    )
  }

  #rowsToKeep({ rows, isMostlyIdle }: Counts): RowTable | null {
    return this.#hasTurned || isMostlyIdle || rows.bytes > KEPT_ROWS_BYTES_MAX ? null : rows
  }

  addVerification(event: VerificationEvent): void {
    this.#turnTo(event.atMs)
    const { tags, slot } = event
    const column = COLUMN_OF[event.outcome]
    if (tags !== null && tags.length > 0) this.#addTagged(event, tags, column)
    else {
      const row = slot?.usageRows === this.#refersTo ? slot.usageRow : this.#rowOfKey(event)
      if (this.#keys.add(row, column)) this.size++
    }
  }

  #rowOfKey({ workspaceId, keyspaceId, keyId, identityId, slot }: VerificationEvent): number {
    const { rows } = this.#keys
    const row = rows.rowOf(rows.groups.of(workspaceId, keyspaceId, this.#hour), keyId, identityId ?? '')
    if (slot !== undefined) {
      slot.usageRows = this.#refersTo
      slot.usageRow = row
    }
    return row
  }

  #addTagged(event: VerificationEvent, tags: readonly string[], column: number): void {
    const { workspaceId, keyspaceId, keyId, identityId } = event
    let ofWorkspace = this.#tags.get(workspaceId)
    if (ofWorkspace === undefined) {
      ofWorkspace = new WorkspaceTags(this.#setsMax)
      this.#tags.set(workspaceId, ofWorkspace)
    }
    const before = ofWorkspace.size
    const group = ofWorkspace.setOf(tags).groups.of(workspaceId, keyspaceId, this.#hour)
    this.size += ofWorkspace.size - before
    const row = this.#taggedKeys.rows.rowOf(group, keyId, identityId ?? '')
    if (this.#taggedKeys.add(row, column)) this.size++
  }

  addRatelimit({ workspaceId, namespaceId, identifier, passed, atMs }: RatelimitEvent): void {
    this.#turnTo(atMs)
    const { rows } = this.#identifiers
    const group = rows.groups.of(workspaceId, namespaceId, this.#hour)
    const row = isNameable(identifier) ? rows.rowOf(group, identifier) : rows.rowOf(group, '', UNNAMED)
    if (this.#identifiers.add(row, passed ? PASSED : DENIED)) this.size++
  }

  /**
   * Everything in it as columns of up to `BATCH_ROWS_MAX` rows each, built one at a time. Null = the next are not complete, but
   * whoever builds them has held the thread long enough. Nothing may be added meanwhile.
   */
  *columns(): Generator<UsageColumns | null, void> {
    const builder = new ColumnBuilder()
    for (const counts of [this.#keys, this.#taggedKeys])
      for (const [group, rows] of counts.byGroup)
        for (let from = 0; from < rows.length; ) {
          from += builder.addKeys(counts, group, rows, from)
          if (builder.isPauseDue()) yield builder.takeFull()
        }
    for (const [group, rows] of this.#identifiers.byGroup)
      for (let from = 0; from < rows.length; ) {
        from += builder.addIdentifiers(this.#identifiers, group, rows, from)
        if (builder.isPauseDue()) yield builder.takeFull()
      }
    if (!builder.isEmpty) yield builder.columns
  }

  /** A {@link CounterRef} says nothing of the hour of its row, so none is used for another hour. */
  #turnTo(atMs: number): void {
    const since = atMs - this.#hour
    if (since >= 0 && since < HOUR_MS) return
    this.#hasTurned = this.#hour !== Number.NEGATIVE_INFINITY
    this.#hour = Math.floor(atMs / HOUR_MS) * HOUR_MS
    this.#refersTo = {}
  }
}

/** Of keys and of identifiers: some 150 000 rows of 20 characters each. */
const KEPT_ROWS_BYTES_MAX = 32 * 2 ** 20

/** UTF-8 takes at most three bytes for each unit of a text, so the short ones need no counting. */
const isNameable = (identifier: string) =>
  identifier.length * 3 <= NAMED_IDENTIFIER_BYTES_MAX ||
  Buffer.byteLength(identifier) <= NAMED_IDENTIFIER_BYTES_MAX
