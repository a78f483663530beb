import { HOUR_MS } from '../lib/clock.ts'
import { COLUMN_OF, type Outcome, type UsageColumns } from './batch.ts'
import { ColumnBuilder, DENIED, PASSED, UNNAMED } from './column-builder.ts'
import { FullNamespaces } from './full-namespaces.ts'
import { Counts, RowTable } from './row-table.ts'
import { WORKSPACE_SETS_MAX, WorkspaceTags } from './tag-sets.ts'

/**
 * Short cut from a cached key to the row that counts its verifications without tags. It is two fields of the key's own record:
 * a separate object would not be in the processor's cache when the record is. Set here only.
 */
export type CounterRef = {
  /** Stands for the table of the row; null = none yet. Not the table itself: records would keep it in memory. */
  usageRows: object | null
  usageRow: number
}

export type VerificationEvent = {
  workspaceId: string
  keyspaceId: string
  keyId: string
  identityId: string | null
  outcome: Outcome
  /** Up to 20 of up to 512 characters; their order and repetitions do not matter. Null = none. Too many sets are `OTHER_TAGS`. */
  tags: readonly string[] | null
  /** Time of the decision (Unix ms). Its hour is counted, whenever it is written. */
  atMs: number
  /** The cached key: spares the search for its row. */
  counterRef?: CounterRef
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

/** Tables of one hour that outlast a flush. */
type KeptTables = {
  keys: RowTable
  identifiers: RowTable
  hour: number
  /** Stands for `keys` in a {@link CounterRef}. */
  keysToken: object
}

/**
 * Counts events in memory until a flush takes them away: verifications by hour, key, identity and tag set, rate limits by hour,
 * namespace and identifier. Recording an event whose row exists is one search and one increment, or the increment alone
 * where the key's {@link CounterRef} knows the row. It allocates nothing: that path runs for every request.
 */
export class UsageAccumulator {
  /** Rows with counts, tag sets and their spellings. Bounds on memory count them. */
  size = 0
  readonly #keys: Counts
  readonly #identifiers: Counts
  /** Its rows end with a flush: which tag sets are counted apart is decided anew for each. */
  readonly #taggedKeys = new Counts(new RowTable())
  /** By workspace: a flood of tags in one takes no room from another. */
  readonly #tags = new Map<string, WorkspaceTags>()
  readonly #setsMax: number
  readonly #full: FullNamespaces
  #hour: number
  /** It has events of more than one hour, so its tables are not kept. */
  #hasTurned = false
  #keysToken: object

  /** @param options.setsMax Sets of tags that are kept apart for each workspace, and a few times as many spellings of them. */
  constructor({ setsMax = WORKSPACE_SETS_MAX, full = new FullNamespaces() } = {}, kept?: KeptTables) {
    this.#setsMax = setsMax
    this.#full = full
    this.#keys = new Counts(kept?.keys ?? new RowTable())
    this.#identifiers = new Counts(kept?.identifiers ?? new RowTable())
    this.#hour = kept?.hour ?? Number.NEGATIVE_INFINITY
    this.#keysToken = kept?.keysToken ?? {}
  }

  /** An empty accumulator for the events after this one's. */
  next(): UsageAccumulator {
    const keys = this.#tableToKeep(this.#keys)
    const identifiers = this.#tableToKeep(this.#identifiers)
    return new UsageAccumulator(
      { setsMax: this.#setsMax, full: this.#full },
      {
        keys: keys ?? new RowTable(),
        identifiers: identifiers ?? new RowTable(),
        hour: this.#hour,
        keysToken: keys === null ? {} : this.#keysToken,
      },
    )
  }

  #tableToKeep({ rows, isMostlyIdle }: Counts): RowTable | null {
    return this.#hasTurned || isMostlyIdle || rows.bytes > KEPT_BYTES_MAX ? null : rows
  }

  addVerification(event: VerificationEvent): void {
    this.#turnTo(event.atMs)
    const { tags, counterRef } = event
    const column = COLUMN_OF[event.outcome]
    if (tags !== null && tags.length > 0) this.#addTagged(event, tags, column)
    else {
      const row = counterRef?.usageRows === this.#keysToken ? counterRef.usageRow : this.#rowOfKey(event)
      if (this.#keys.add(row, column)) this.size++
    }
  }

  #rowOfKey({ workspaceId, keyspaceId, keyId, identityId, counterRef }: VerificationEvent): number {
    const { rows } = this.#keys
    const row = rows.rowOf(rows.groups.of(workspaceId, keyspaceId, this.#hour), keyId, identityId ?? '')
    if (counterRef !== undefined) {
      counterRef.usageRows = this.#keysToken
      counterRef.usageRow = row
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
    const isNamed =
      isNameable(identifier) && (this.#full.knownOf(namespaceId, this.#hour)?.has(identifier) ?? true)
    const row = isNamed ? rows.rowOf(group, identifier) : rows.rowOf(group, '', UNNAMED)
    if (this.#identifiers.add(row, passed ? PASSED : DENIED)) this.size++
  }

  /**
   * All counts, as columns of up to `BATCH_ROWS_MAX` rows each. Null = the next columns are not complete, but the caller should
   * let the thread do other work now. Nothing may be added meanwhile.
   */
  *columns(): Generator<UsageColumns | null, void> {
    const builder = new ColumnBuilder(this.#full)
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

  /** A {@link CounterRef} does not say the hour of its row, so a new hour gets a new token. */
  #turnTo(atMs: number): void {
    const since = atMs - this.#hour
    if (since >= 0 && since < HOUR_MS) return
    this.#hasTurned = this.#hour !== Number.NEGATIVE_INFINITY
    this.#hour = Math.floor(atMs / HOUR_MS) * HOUR_MS
    this.#keysToken = {}
  }
}

/** Of keys and of identifiers: some 150 000 rows of 20 characters each. */
const KEPT_BYTES_MAX = 32 * 2 ** 20

/** UTF-8 takes at most three bytes for each unit of a text, so the short ones need no counting. */
const isNameable = (identifier: string) =>
  identifier.length * 3 <= NAMED_IDENTIFIER_BYTES_MAX ||
  Buffer.byteLength(identifier) <= NAMED_IDENTIFIER_BYTES_MAX
