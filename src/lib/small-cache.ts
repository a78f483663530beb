/**
 * A cache of recently used entries in two generations. When the young one is full it becomes the old one; entries used from
 * the old one move to the young one. So entries in use are not evicted by others that fill the cache.
 */
export class SmallCache<Key, Value> {
  private young = new Map<Key, Value>()
  private old = new Map<Key, Value>()

  /** @param entriesMax Bound of both generations together. */
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
