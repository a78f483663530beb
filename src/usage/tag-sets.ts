import { Groups } from './row-table.ts'

/** What sets of tags beyond those that are kept apart are counted as; as in sql/0013. */
export const OTHER_TAGS: readonly string[] = ['(other)']

export class TagSet {
  /** What was counted with it, by keyspace. */
  readonly groups = new Groups(this)

  constructor(
    /** The sorted tags as a JSON list: equal for equal sets only. */
    readonly name: string,
    readonly tags: readonly string[],
  ) {}
}

/** The sets of tags of one workspace, and how they were spelled. */
export class WorkspaceTags {
  /** By name. */
  readonly #sets = new Map<string, TagSet>()
  /** Sets and steps of spellings. */
  size = 0
  readonly #spellings = new Spelling()
  readonly #setsMax: number

  /** @param setsMax How many are kept apart, and a few times as many spellings. */
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
    const set = known ?? (this.#sets.size < this.#setsMax ? this.#add(name, sorted) : this.#others())
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
    return this.#sets.get(name) ?? this.#add(name, OTHER_TAGS)
  }

  #add(name: string, tags: readonly string[]): TagSet {
    const set = new TagSet(name, tags)
    this.#sets.set(name, set)
    this.size++
    return set
  }
}

/** Some times what an hour keeps (bound `tagSets`), so that what comes most is among them: 10 MB of the longest tags. */
export const WORKSPACE_SETS_MAX = 4_000
/** Of spellings: ten tags, or one in ten orders of two. */
const STEPS_A_SET = 20

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
