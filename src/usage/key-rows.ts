import { BATCH_ROWS_MAX, emptyColumns, type Outcome, put, type UsageColumns } from './batch.ts'

/**
 * Where one key's verifications without tags are counted: two fields of what is known of the key, with one identity. Fields
 * of its own record, not an object beside it, as that is not in the processor's cache when the record is. Set here only.
 */
export type CounterRef = {
  /** Names the rows it has one of; null = none yet. No reference to them: they are large. */
  usageRows: object | null
  usageRow: number
}

type Scope = { workspaceId: string; keyspaceId: string }
/** Whose row it is. */
export type RowOwner = Scope & {
  keyId: string
  identityId: string | null
}

/**
 * A row for each key that came with a slot, all of one hour. They outlast the flushes, while a good part of them is used,
 * so that a key verified again has only to be counted. All ids lie side by side, in the form in which they are sent: of
 * keys verified less than once a flush, each verification is a row to write, and by then nothing of their records is in
 * the processor's cache. A flush takes about 90 ns a row; with columns of ids, filled anew each time, it took 140 to 190
 * (40 000 keys, in a loop).
 *
 * A key may have several rows, when its record was read again; the database adds them up.
 */
export class KeyRows {
  readonly name = {}
  /** Which hour; undefined until there is a row. */
  hour: number | undefined
  /** How many. */
  size = 0
  readonly #scopes: Scope[] = []
  readonly #scopeAt = new Map<string, number>()
  /** By row. */
  readonly #scope: number[] = []
  /** By row; it may end early, where none has an identity. */
  readonly #identityIds: string[] = []
  /** By row, {@link ID_WORDS} each: the id's characters, blanks, a comma. */
  #words = new Uint32Array(ROWS_FIRST * ID_WORDS)

  /** @param rowsMax Beyond them no key gets one. */
  constructor(private readonly rowsMax = KEY_ROWS_MAX) {}

  /**
   * Gives the slot a row.
   * @returns false when it gets none: it is of another hour, there are too many rows, or its id is no word of up to
   *   {@link ID_LENGTH_MAX} characters.
   */
  add({ workspaceId, keyspaceId, keyId, identityId }: RowOwner, hour: number, slot: CounterRef): boolean {
    if (this.size >= this.rowsMax || (this.hour !== undefined && this.hour !== hour)) return false
    if (!ID.test(keyId)) return false
    this.hour = hour
    const row = this.size++
    this.#writeId(row, keyId)
    let scope = this.#scopeAt.get(keyspaceId)
    if (scope === undefined) {
      scope = this.#scopes.push({ workspaceId, keyspaceId }) - 1
      this.#scopeAt.set(keyspaceId, scope)
    }
    this.#scope.push(scope)
    if (identityId !== null) {
      while (this.#identityIds.length < row) this.#identityIds.push('')
      this.#identityIds.push(identityId)
    }
    slot.usageRows = this.name
    slot.usageRow = row
    return true
  }

  /** Columns of these rows with what is to be told of their keys, and no counts. */
  columnsOf(rows: Uint32Array): UsageColumns {
    const columns = emptyColumns()
    const { scopes, verifications } = columns
    const words = new Uint32Array(rows.length * ID_WORDS)
    const places = new Map<number, number>()
    let lastScope = -1
    let place = 0
    for (let i = 0; i < rows.length; i++) {
      const row = rows[i] as number // in range
      const from = row * ID_WORDS
      const to = i * ID_WORDS
      for (let word = 0; word < ID_WORDS; word++) words[to + word] = this.#words[from + word] as number // in range
      const scope = this.#scope[row] as number // each row has one
      if (scope !== lastScope) {
        lastScope = scope
        place = places.get(scope) ?? 0
        if (place === 0) {
          const { workspaceId, keyspaceId } = this.#scopes[scope] as Scope // as pushed
          scopes.workspaceId.push(workspaceId)
          place = scopes.keyspaceId.push(keyspaceId)
          places.set(scope, place)
        }
      }
      verifications.scope.push(place)
      if (row < this.#identityIds.length) {
        const identityId = this.#identityIds[row] as string // in range
        if (identityId !== '') put(verifications.identityId, i, identityId, '')
      }
    }
    if (places.size === 1) verifications.scope = [1]
    if (this.hour !== undefined) verifications.hour.push(this.hour)
    const list = Buffer.from(words.buffer)
    verifications.keyIds = { rows: rows.length, list: list.toString('latin1', 0, list.length - 1) }
    return columns
  }

  #writeId(row: number, keyId: string): void {
    if ((row + 1) * ID_WORDS > this.#words.length) {
      const words = new Uint32Array(2 * this.#words.length)
      words.set(this.#words)
      this.#words = words
    }
    const bytes = new Uint8Array(this.#words.buffer, row * ID_WORDS * 4, ID_WORDS * 4)
    bytes.fill(BLANK)
    for (let i = 0; i < keyId.length; i++) bytes[i] = keyId.charCodeAt(i)
    bytes[bytes.length - 1] = COMMA
  }
}

/** What was counted of {@link KeyRows} since the last flush. */
export class KeyCounts {
  /** By outcome, of those there are, and row. */
  readonly #counts: (Uint32Array<ArrayBuffer> | undefined)[] = []
  /** By row: whether it has a count. Its length is for how many rows there is room. */
  #isCounted: Uint8Array<ArrayBuffer>
  /** Rows with counts, in the order they came. */
  #counted = new Uint32Array(ROWS_FIRST)
  #size = 0

  constructor(readonly rows: KeyRows) {
    this.#isCounted = new Uint8Array(Math.max(rows.size, ROWS_FIRST))
  }

  /** Most rows are of keys that nobody has verified since, gone ones perhaps: it is cheaper to begin anew than to keep them. */
  get isMostlyIdle(): boolean {
    return this.rows.size > IDLE_ROWS_MIN && this.rows.size > 4 * this.#size
  }

  /** @returns whether it is the row's first. */
  add(row: number, outcome: Outcome): boolean {
    if (row >= this.#isCounted.length) this.#makeRoom()
    const place = PLACE[outcome]
    this.#counts[place] ??= new Uint32Array(this.#isCounted.length)
    const counts = this.#counts[place]
    counts[row] = (counts[row] as number) + 1 // there is room for all rows
    if (this.#isCounted[row] === 1) return false
    this.#isCounted[row] = 1
    if (this.#size === this.#counted.length)
      this.#counted = copied(this.#counted, new Uint32Array(2 * this.#size))
    this.#counted[this.#size++] = row
    return true
  }

  *columns(): Generator<UsageColumns, void> {
    for (let from = 0; from < this.#size; from += BATCH_ROWS_MAX) {
      const rows = this.#counted.subarray(from, Math.min(from + BATCH_ROWS_MAX, this.#size))
      const columns = this.rows.columnsOf(rows)
      for (const [place, counts] of this.#counts.entries()) {
        if (counts === undefined) continue
        const column = columns.verifications[COLUMNS[place] as (typeof COLUMNS)[number]] // one for each outcome
        for (let i = 0; i < rows.length; i++) {
          const count = counts[rows[i] as number] as number // both in range
          if (count > 0) put(column, i, count, 0)
        }
      }
      yield columns
    }
  }

  #makeRoom(): void {
    const rows = 2 * this.rows.size
    this.#isCounted = copied(this.#isCounted, new Uint8Array(rows))
    for (const [place, counts] of this.#counts.entries())
      if (counts !== undefined) this.#counts[place] = copied(counts, new Uint32Array(rows))
  }
}

function copied<T extends Uint8Array | Uint32Array>(from: T, to: T): T {
  to.set(from)
  return to
}

/** Beyond them a fold counts by key, which is slower and loses nothing. */
const KEY_ROWS_MAX = 65_536
const ROWS_FIRST = 256
/** Fewer take less than 200 KiB, counts included. */
const IDLE_ROWS_MIN = 4_096
const ID_WORDS = 6
const ID_LENGTH_MAX = ID_WORDS * 4 - 1
const ID = new RegExp(`^\\w{1,${ID_LENGTH_MAX}}$`)
const BLANK = 32
const COMMA = 44

/** What each outcome is counted in. */
const COLUMN = {
  VALID: 'valid',
  RATE_LIMITED: 'rateLimited',
  EXPIRED: 'expired',
  DISABLED: 'disabled',
  FORBIDDEN: 'forbidden',
  USAGE_EXCEEDED: 'usageExceeded',
  INSUFFICIENT_PERMISSIONS: 'insufficientPermissions',
} as const satisfies Record<Outcome, keyof UsageColumns['verifications']>
const COLUMNS = Object.values(COLUMN)
/** Where in that list. */
const PLACE = Object.fromEntries(Object.keys(COLUMN).map((outcome, place) => [outcome, place])) as Readonly<
  Record<Outcome, number>
> // an entry for each key
