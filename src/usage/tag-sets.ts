import { Groups } from './row-table.ts'

/** Tag sets beyond the bound are counted as this one; as in sql/0013. */
export const OTHER_TAGS: readonly string[] = ['(other)']

export class TagSet {
  /** Rows that are counted with this set, by keyspace. */
  readonly groups = new Groups(this)

  constructor(
    /** The sorted tags as a JSON list: equal for equal sets only. */
    readonly name: string,
    readonly tags: readonly string[],
  ) {}
}

/** The tag sets of one workspace, found by the tags in any order. */
export class WorkspaceTags {
  /** By name. */
  readonly #sets = new Map<string, TagSet>()
  /** Sets and steps of spellings. */
  size = 0
  #charactersOfSets = 0
  #charactersOfSpellings = 0
  readonly #spellings = new Spelling()
  readonly #setsMax: number

  /** @param setsMax Bound of tag sets that are counted apart; of spellings, a few times as many are kept. */
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
    const known = this.#sets.get(name)
    const set = known ?? (this.#hasRoomFor(name) ? this.#add(name, sorted) : this.#others())
    // No spellings are kept of sets beyond the bound, and not every order of one set.
    if (set.name !== name || this.size > STEPS_A_SET * this.#setsMax) return set
    if (this.#charactersOfSpellings + name.length > WORKSPACE_CHARACTERS_MAX) return set
    this.#charactersOfSpellings += name.length
    let spelling = this.#spellings
    for (const tag of tags) spelling = spelling.next(tag)
    spelling.set = set
    this.size += tags.length
    return set
  }

  #hasRoomFor(name: string): boolean {
    return this.#sets.size < this.#setsMax && this.#charactersOfSets + name.length <= WORKSPACE_CHARACTERS_MAX
  }

  #others(): TagSet {
    const name = JSON.stringify(OTHER_TAGS)
    return this.#sets.get(name) ?? this.#add(name, OTHER_TAGS)
  }

  #add(name: string, tags: readonly string[]): TagSet {
    const set = new TagSet(name, tags)
    this.#sets.set(name, set)
    this.#charactersOfSets += name.length
    this.size++
    return set
  }
}

/** Several times the bound of an hour (`tagSets`), so that the most used sets are among them. */
export const WORKSPACE_SETS_MAX = 4_000
/** Of all sets, and as many of their spellings: 10 MB each. It is reached with more than 1 250 characters a set. */
const WORKSPACE_CHARACTERS_MAX = 5_000_000
/** Tags of spellings for each set: one order of 20 tags, or ten orders of two. */
const STEPS_A_SET = 20

/** A tree of tags in the order given: finds the set of a list seen before without sorting or joining it. */
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
