import { startOfMonth } from '../lib/buckets.ts'
import { HOUR_MS } from '../lib/clock.ts'
import { BATCH_ROWS_MAX, emptyColumns, type Outcome, put, type UsageColumns } from './batch.ts'
import { IdentifierCounts, IdentifierRows } from './identifier-rows.ts'
import { type CounterRef, KeyCounts, KeyRows } from './key-rows.ts'

export type VerificationEvent = {
  workspaceId: string
  keyspaceId: string
  keyId: string
  identityId: string | null
  outcome: Outcome
  /** Up to 10 of up to 128 characters; their order and repetitions do not matter. Null = none. Too many sets are {@link OTHER_TAGS}. */
  tags: readonly string[] | null
  /** When it was decided (Unix ms): the hour it belongs to, whenever it is written. */
  atMs: number
  /** Kept with what is known of the key: spares the search for its cell. */
  slot?: CounterRef
}

export type RatelimitEvent = {
  workspaceId: string
  namespaceId: string
  identifier: string
  passed: boolean
  atMs: number
}

/** What sets of tags beyond those that are kept apart are counted as; as in sql/0013. */
export const OTHER_TAGS: readonly string[] = ['(other)']

/** Longer identifiers (bytes) get no row of their own: they would not fit an index entry. They count in the total. */
export const NAMED_IDENTIFIER_BYTES_MAX = 2_048

/**
 * Counts events by hour, key, identity and tag set, and by hour, namespace and identifier, in memory. Recording an event
 * whose cell exists is one lookup and one increment, and no text is built: that path runs for every request.
 */
export class Fold {
  /** How much it holds: cells, tag sets and spellings of them. What bounds on memory count. */
  size = 0
  readonly #keyCounts: KeyCounts
  /** A key with a slot got no row in it: the next fold begins with none. */
  #isKeyRowMissing = false
  readonly #untagged = new Map<string, VerificationCell>()
  /** By workspace: a flood of tags in one takes no room of another's. */
  readonly #tagged = new Map<string, WorkspaceTags>()
  readonly #setsMax: number
  readonly #namespaces = new Map<string, NamespaceCell>()
  /** By namespace: rows of the fold before. */
  readonly #keptRows: ReadonlyMap<string, KeptRows>
  #hour = 0

  /** @param options.setsMax Sets of tags that are kept apart for each workspace, and a few times as many spellings of them. */
  constructor(
    keyRows = new KeyRows(),
    keptRows: ReadonlyMap<string, KeptRows> = new Map(),
    { setsMax = WORKSPACE_SETS_MAX } = {},
  ) {
    this.#keyCounts = new KeyCounts(keyRows)
    this.#keptRows = keptRows
    this.#setsMax = setsMax
  }

  /** An empty one, to be filled after this. */
  next(): Fold {
    const { rows, isMostlyIdle } = this.#keyCounts
    return new Fold(this.#isKeyRowMissing || isMostlyIdle ? undefined : rows, this.#rowsToKeep(), {
      setsMax: this.#setsMax,
    })
  }

  #rowsToKeep(): Map<string, KeptRows> {
    const kept = new Map<string, KeptRows>()
    let bytes = 0
    for (const [namespaceId, { hour, identifiers }] of this.#namespaces) {
      const { rows, isMostlyIdle } = identifiers
      if (isMostlyIdle || bytes + rows.bytes > KEPT_ROWS_BYTES_MAX) continue
      bytes += rows.bytes
      kept.set(namespaceId, { hour, rows })
    }
    return kept
  }

  addVerification(event: VerificationEvent): void {
    const hour = this.#hourOf(event.atMs)
    const { tags, slot } = event
    const isTagged = tags !== null && tags.length > 0
    if (slot !== undefined && !isTagged) {
      const { rows } = this.#keyCounts
      const hasRow = slot.usageRows === rows.name && rows.hour === hour
      if (hasRow || rows.add(event, hour, slot)) {
        if (this.#keyCounts.add(slot.usageRow, event.outcome)) this.size++
        return
      }
      this.#isKeyRowMissing = true
    }
    const cells = isTagged ? this.#tagSet(event.workspaceId, tags).cells : this.#untagged
    const cell = this.#cellOfKey(cells, hour, event)
    switch (event.outcome) {
      case 'VALID':
        cell.valid++
        break
      case 'RATE_LIMITED':
        cell.rateLimited++
        break
      case 'EXPIRED':
        cell.expired++
        break
      case 'DISABLED':
        cell.disabled++
        break
      case 'FORBIDDEN':
        cell.forbidden++
        break
      case 'USAGE_EXCEEDED':
        cell.usageExceeded++
        break
      case 'INSUFFICIENT_PERMISSIONS':
        cell.insufficientPermissions++
        break
      default:
        event.outcome satisfies never
    }
  }

  addRatelimit({ workspaceId, namespaceId, identifier, passed, atMs }: RatelimitEvent): void {
    const hour = this.#hourOf(atMs)
    let namespace = this.#namespaces.get(namespaceId)
    if (namespace === undefined || namespace.hour !== hour)
      namespace = this.#namespaceCell(namespace, hour, namespaceId, workspaceId)
    if (isNameable(identifier)) {
      if (namespace.identifiers.add(identifier, passed)) this.size++
    } else if (passed) namespace.unnamed.passed++
    else namespace.unnamed.denied++
  }

  /**
   * Everything in it as columns of up to {@link BATCH_ROWS_MAX} rows each, built one at a time. Null = the next are not
   * complete, but whoever builds them has held the thread long enough. Nothing may be added meanwhile.
   */
  *columns(): Generator<UsageColumns | null, void> {
    // One that is not full is kept for what comes behind it: a batch is a transaction. Rows of other cells do not fit to it.
    let ofKeys: UsageColumns | null = null
    for (const columns of this.#keyCounts.columns()) {
      yield ofKeys
      ofKeys = columns
    }
    const hasCells = this.#untagged.size > 0 || this.#tagged.size > 0
    if (ofKeys !== null && (hasCells || rowsOfKeys(ofKeys) >= BATCH_ROWS_MAX)) {
      yield ofKeys
      ofKeys = null
    }
    let builder = new ColumnBuilder(ofKeys ?? undefined)
    const takeFull = () => {
      if (!builder.isFull()) return null
      const { columns } = builder
      builder = new ColumnBuilder()
      return columns
    }
    for (const set of this.#allSets()) {
      for (const first of (set === null ? this.#untagged : set.cells).values()) {
        for (let cell: VerificationCell | null = first; cell !== null; cell = cell.other) {
          builder.addVerifications(cell, set)
          if (builder.isPauseDue()) yield takeFull()
        }
      }
    }
    for (const first of this.#namespaces.values()) {
      for (let cell: NamespaceCell | null = first; cell !== null; cell = cell.other) {
        builder.addRatelimits(cell, { identifier: null, ...cell.unnamed })
        if (builder.isPauseDue()) yield takeFull()
        for (let i = 0; i < cell.identifiers.size; i++) {
          builder.addRatelimits(cell, cell.identifiers.at(i))
          if (builder.isPauseDue()) yield takeFull()
        }
      }
    }
    if (!builder.isEmpty()) yield builder.columns
  }

  #hourOf(atMs: number): number {
    const since = atMs - this.#hour
    if (!(since >= 0 && since < HOUR_MS)) this.#hour = Math.floor(atMs / HOUR_MS) * HOUR_MS
    return this.#hour
  }

  #cellOfKey(cells: Map<string, VerificationCell>, hour: number, event: VerificationEvent): VerificationCell {
    const cell = cells.get(event.keyId)
    return cell !== undefined && cell.hour === hour && cell.identityId === event.identityId
      ? cell
      : this.#verificationCell(cells, cell, hour, event)
  }

  /** Another hour or identity of the same key: found behind the latest cell, and put in front of it. */
  #verificationCell(
    cells: Map<string, VerificationCell>,
    latest: VerificationCell | undefined,
    hour: number,
    event: VerificationEvent,
  ): VerificationCell {
    const { keyId, identityId } = event
    let before = latest
    for (
      let cell = latest?.other ?? null;
      cell !== null && before !== undefined;
      before = cell, cell = cell.other
    ) {
      if (cell.hour !== hour || cell.identityId !== identityId) continue
      before.other = cell.other
      cell.other = latest ?? null
      cells.set(keyId, cell)
      return cell
    }
    const cell = newCell(event, hour, latest ?? null)
    cells.set(keyId, cell)
    this.size++
    return cell
  }

  #namespaceCell(
    latest: NamespaceCell | undefined,
    hour: number,
    namespaceId: string,
    workspaceId: string,
  ): NamespaceCell {
    for (let cell = latest ?? null; cell !== null; cell = cell.other) if (cell.hour === hour) return cell
    const unnamed = { passed: 0, denied: 0 }
    const kept = this.#keptRows.get(namespaceId)
    const identifiers = new IdentifierCounts(kept?.hour === hour ? kept.rows : new IdentifierRows())
    const cell = { workspaceId, namespaceId, hour, unnamed, identifiers, other: latest ?? null }
    this.#namespaces.set(namespaceId, cell)
    this.size++
    return cell
  }

  #tagSet(workspaceId: string, tags: readonly string[]): TagSet {
    let workspace = this.#tagged.get(workspaceId)
    if (workspace === undefined) {
      workspace = new WorkspaceTags(this.#setsMax)
      this.#tagged.set(workspaceId, workspace)
    }
    const before = workspace.size
    const set = workspace.setOf(tags)
    this.size += workspace.size - before
    return set
  }

  /** Null = no tags. */
  *#allSets(): Generator<TagSet | null, void> {
    yield null
    for (const { sets } of this.#tagged.values()) yield* sets.values()
  }
}

/** The sets of tags of one workspace, and how they were spelled. */
class WorkspaceTags {
  readonly sets = new Map<string, TagSet>()
  /** Sets and steps of spellings. */
  size = 0
  readonly #spellings = new Spelling()
  readonly #setsMax: number

  constructor(setsMax: number) {
    this.#setsMax = setsMax
  }

  setOf(tags: readonly string[]): TagSet {
    let spelling: Spelling | null = this.#spellings
    for (const tag of tags) {
      spelling = spelling.find(tag)
      if (spelling === null) return this.#newSpelling(tags)
    }
    return spelling.set ?? this.#newSpelling(tags)
  }

  #newSpelling(tags: readonly string[]): TagSet {
    const sorted = [...new Set(tags)].sort()
    const name = JSON.stringify(sorted)
    const known = this.sets.get(name)
    const set = known ?? (this.sets.size < this.#setsMax ? this.#add(name, sorted) : this.#others())
    // Of what is counted as the others nothing is kept, nor of one set in all the orders it can be given in.
    if (set.name !== name || this.size > STEPS_A_SET * this.#setsMax) return set
    let spelling = this.#spellings
    for (const tag of tags) spelling = spelling.next(tag)
    spelling.set = set
    this.size += tags.length
    return set
  }

  #others(): TagSet {
    const name = JSON.stringify(OTHER_TAGS)
    return this.sets.get(name) ?? this.#add(name, OTHER_TAGS)
  }

  #add(name: string, tags: readonly string[]): TagSet {
    const set = { name, tags, cells: new Map() }
    this.sets.set(name, set)
    this.size++
    return set
  }
}

/** Some times what an hour keeps (bound `tagSets`), so that what comes most is among them: 10 MB of the longest tags. */
const WORKSPACE_SETS_MAX = 4_000
/** Of spellings: ten tags, or one in ten orders of two. */
const STEPS_A_SET = 20

const newCell = (
  { workspaceId, keyspaceId, keyId, identityId }: VerificationEvent,
  hour: number,
  other: VerificationCell | null,
): VerificationCell => ({
  workspaceId,
  keyspaceId,
  keyId,
  identityId,
  hour,
  valid: 0,
  rateLimited: 0,
  expired: 0,
  disabled: 0,
  forbidden: 0,
  usageExceeded: 0,
  insufficientPermissions: 0,
  other,
})

/** Of identifiers whose rows outlast a flush: some 150 000 of 20 characters. */
const KEPT_ROWS_BYTES_MAX = 32 * 2 ** 20

/** Rows whose columns are built in one go, for some 0.2 ms. Divides {@link BATCH_ROWS_MAX}. */
const SLICE_ROWS = 250

/** UTF-8 takes at most three bytes for each unit of a text, so the short ones need no counting. */
const isNameable = (identifier: string) =>
  identifier.length * 3 <= NAMED_IDENTIFIER_BYTES_MAX ||
  Buffer.byteLength(identifier) <= NAMED_IDENTIFIER_BYTES_MAX

type VerificationCell = {
  readonly workspaceId: string
  readonly keyspaceId: string
  readonly keyId: string
  readonly identityId: string | null
  readonly hour: number
  valid: number
  rateLimited: number
  expired: number
  disabled: number
  forbidden: number
  usageExceeded: number
  insufficientPermissions: number
  /** The same key and tags in another hour or with another identity. */
  other: VerificationCell | null
}

type PassedDenied = { passed: number; denied: number }
type KeptRows = { hour: number; rows: IdentifierRows }
type NamespaceCell = {
  readonly workspaceId: string
  readonly namespaceId: string
  readonly hour: number
  readonly unnamed: PassedDenied
  readonly identifiers: IdentifierCounts
  /** The same namespace in another hour. */
  readonly other: NamespaceCell | null
}

type TagSet = {
  /** The sorted tags as a JSON list: equal for equal sets only. */
  readonly name: string
  readonly tags: readonly string[]
  readonly cells: Map<string, VerificationCell>
}

/** Tags in the order given, one step a tag: finds the set of a list seen before without sorting or joining anything. */
class Spelling {
  set: TagSet | null = null
  #next: Map<string, Spelling> | null = null

  find(tag: string): Spelling | null {
    return this.#next?.get(tag) ?? null
  }

  next(tag: string): Spelling {
    this.#next ??= new Map()
    let next = this.#next.get(tag)
    if (next === undefined) {
      next = new Spelling()
      this.#next.set(tag, next)
    }
    return next
  }
}

/** Of such as {@link KeyCounts} makes. */
const rowsOfKeys = ({ verifications }: UsageColumns): number => verifications.keyIds?.rows ?? 0

class ColumnBuilder {
  /** Of all tables together. */
  #rows: number
  #pauseAt: number
  readonly #scopes = new Map<string, number>()
  readonly #sets = new Map<string, number>()
  /** Cells come set by set and mostly from one keyspace and hour: what was found for the last one is found again. */
  #lastScope: { keyspaceId: string; at: number } | null = null
  #lastSet: { set: TagSet; workspaceId: string; hour: number; at: number } | null = null
  #total: NamespaceCell | null = null

  /** @param columns What it goes on with: of keys, and not full. */
  constructor(readonly columns = emptyColumns()) {
    this.#rows = rowsOfKeys(columns)
    this.#pauseAt = (Math.floor(this.#rows / SLICE_ROWS) + 1) * SLICE_ROWS
  }

  isFull(): boolean {
    return this.#rows >= BATCH_ROWS_MAX
  }

  /** Also when it is full. */
  isPauseDue(): boolean {
    if (this.#rows < this.#pauseAt) return false
    this.#pauseAt = this.#rows + SLICE_ROWS
    return true
  }

  isEmpty(): boolean {
    return this.#rows === 0
  }

  addVerifications(cell: VerificationCell, set: TagSet | null): void {
    const to = this.columns.verifications
    const row = to.keyId.push(cell.keyId) - 1
    to.scope.push(this.#scopeOf(cell))
    to.hour.push(cell.hour)
    // Most rows are of a key without tags and identity that was valid: the other columns come to be when they are needed.
    if (set !== null) put(to.set, row, this.#setOf(cell, set), 0)
    if (cell.identityId !== null) put(to.identityId, row, cell.identityId, '')
    if (cell.valid > 0) put(to.valid, row, cell.valid, 0)
    if (cell.rateLimited > 0) put(to.rateLimited, row, cell.rateLimited, 0)
    if (cell.expired > 0) put(to.expired, row, cell.expired, 0)
    if (cell.disabled > 0) put(to.disabled, row, cell.disabled, 0)
    if (cell.forbidden > 0) put(to.forbidden, row, cell.forbidden, 0)
    if (cell.usageExceeded > 0) put(to.usageExceeded, row, cell.usageExceeded, 0)
    if (cell.insufficientPermissions > 0)
      put(to.insufficientPermissions, row, cell.insufficientPermissions, 0)
    this.#rows++
  }

  /** Totals of this batch cover its own identifiers, so that a total is never less than the sum of its parts. */
  addRatelimits(
    cell: NamespaceCell,
    { identifier, passed, denied }: PassedDenied & { identifier: string | null },
  ): void {
    const { totals, identifiers } = this.columns
    if (passed + denied === 0) return
    if (this.#total !== cell) {
      this.#total = cell
      totals.workspaceId.push(cell.workspaceId)
      totals.namespaceId.push(cell.namespaceId)
      totals.hour.push(cell.hour)
      totals.passed.push(0)
      totals.denied.push(0)
      this.#rows++
    }
    const at = totals.hour.length - 1
    totals.passed[at] = (totals.passed[at] ?? 0) + passed
    totals.denied[at] = (totals.denied[at] ?? 0) + denied
    if (identifier === null) return
    identifiers.total.push(at + 1)
    identifiers.identifier.push(identifier)
    identifiers.passed.push(passed)
    identifiers.denied.push(denied)
    this.#rows++
  }

  #scopeOf({ workspaceId, keyspaceId }: VerificationCell): number {
    if (this.#lastScope?.keyspaceId === keyspaceId) return this.#lastScope.at
    let at = this.#scopes.get(keyspaceId)
    if (at === undefined) {
      const { scopes } = this.columns
      scopes.keyspaceId.push(keyspaceId)
      at = scopes.workspaceId.push(workspaceId)
      this.#scopes.set(keyspaceId, at)
    }
    this.#lastScope = { keyspaceId, at }
    return at
  }

  #setOf({ workspaceId, hour }: VerificationCell, set: TagSet): number {
    const last = this.#lastSet
    if (last !== null && last.set === set && last.hour === hour && last.workspaceId === workspaceId)
      return last.at
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
    }
    this.#lastSet = { set, workspaceId, hour, at }
    return at
  }
}
