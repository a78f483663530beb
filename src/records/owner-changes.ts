/** What a cache asks of it. */
export type RecordChanges<V> = {
  add(owner: string, name: string): void
  admit(record: V): void
  concern(record: V): boolean
  isConcernedBy(record: V, owner: string, name: string): boolean
}

/**
 * Changes that concern some records of one owner, such as those of all keys with a role. Which records they are is not looked
 * up when the change is made: each record is checked when it is next read. So a change costs the same however many records
 * are cached, and drops only those it concerns.
 *
 * Changes are numbered. A record remembers up to which number it was checked (`changesSeen`). Of an owner the latest
 * {@link CHANGES_MAX} changes are kept, and the owners that changed last, {@link OWNERS_MAX} of them: a record that was checked
 * before what is kept counts as concerned.
 */
export class OwnerChanges<V extends { changesSeen: number }> implements RecordChanges<V> {
  readonly #ownerOf: (record: V) => string
  readonly #isConcerned: (record: V, name: string) => boolean
  readonly #byOwner = new Map<string, { names: string[]; numbers: number[]; keptSince: number }>()
  #latest = 0
  /** Of owners that are not in the map, changes up to this number are forgotten. */
  #forgottenUpTo = 0

  constructor(options: {
    /** The owner of a record. */
    ownerOf: (record: V) => string
    /** Whether the change concerns the record. Both have the same owner. */
    isConcerned: (record: V, name: string) => boolean
  }) {
    this.#ownerOf = options.ownerOf
    this.#isConcerned = options.isConcerned
  }

  add(owner: string, name: string): void {
    const number = ++this.#latest
    let changes = this.#byOwner.get(owner)
    this.#byOwner.delete(owner)
    changes ??= { names: [], numbers: [], keptSince: this.#forgottenUpTo }
    this.#byOwner.set(owner, changes) // the last to change is the last of the map
    changes.names.push(name)
    changes.numbers.push(number)
    if (changes.names.length > CHANGES_MAX) {
      changes.names.shift()
      changes.keptSince = changes.numbers.shift() ?? 0
    }
    if (this.#byOwner.size <= OWNERS_MAX) return
    for (const [oldest, { numbers }] of this.#byOwner) {
      this.#byOwner.delete(oldest)
      this.#forgottenUpTo = Math.max(this.#forgottenUpTo, numbers.at(-1) ?? 0)
      return
    }
  }

  /** Marks a record that has just been read from the database. */
  admit(record: V): void {
    record.changesSeen = this.#latest
  }

  /** Whether something has changed that concerns the record, since it was read or last checked. */
  concern(record: V): boolean {
    const seen = record.changesSeen
    if (seen === this.#latest) return false
    const changes = this.#byOwner.get(this.#ownerOf(record))
    if (seen < (changes?.keptSince ?? this.#forgottenUpTo)) return true
    if (changes !== undefined)
      for (let i = changes.names.length - 1; i >= 0; i--) {
        if ((changes.numbers[i] as number) <= seen) break // both lists have the same length
        if (this.#isConcerned(record, changes.names[i] as string)) return true // as above
      }
    record.changesSeen = this.#latest
    return false
  }

  /** As {@link concern}, for one change that is being made. */
  isConcernedBy(record: V, owner: string, name: string): boolean {
    return this.#ownerOf(record) === owner && this.#isConcerned(record, name)
  }
}

const CHANGES_MAX = 256
const OWNERS_MAX = 10_000

/** A change of this kind among the names that a write touched: `owner` and `name` as {@link OwnerChanges} takes them. */
export const ownerChange = (owner: string, name: string): string => `${PREFIX}${owner}\n${name}`

/** What {@link ownerChange} was made of; null = the name is one of a record. */
export function readOwnerChange(touched: string): { owner: string; name: string } | null {
  if (!touched.startsWith(PREFIX)) return null
  const end = touched.indexOf('\n')
  return { owner: touched.slice(PREFIX.length, end), name: touched.slice(end + 1) }
}

/** No id and no hash of a key can hold it: Postgres stores no text with it. */
const PREFIX = '\u0000'
