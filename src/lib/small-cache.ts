/**
 * Keeps what was used lately, up to so many entries, in two generations: when the young one is full it becomes the old one,
 * and what is used of the old one moves on to the young. What is in use is never forgotten because others fill the cache.
 */
export class SmallCache<Key, Value> {
  private young = new Map<Key, Value>()
  private old = new Map<Key, Value>()

  /** @param entriesMax Of both generations together. */
  constructor(private readonly entriesMax: number) {}

  get(key: Key): Value | undefined {
    const value = this.young.get(key)
    if (value !== undefined) return value
    const old = this.old.get(key)
    if (old !== undefined) this.set(key, old)
    return old
  }

  set(key: Key, value: Value): void {
    if (this.young.size >= this.entriesMax / 2) {
      this.old = this.young
      this.young = new Map()
    }
    this.young.set(key, value)
  }
}
