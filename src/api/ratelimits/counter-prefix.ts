/**
 * What the names of a namespace's counters of one limit begin with. One string for call after call of the same limit, which
 * the limiter knows again (`KeyedHash.updateAfter`); another limit makes another.
 */
export class CounterPrefix {
  private limit = Number.NaN
  private durationMs = Number.NaN
  private text = ''

  constructor(private readonly namespaceId: string) {}

  /** @param limit As requested, not as overridden: an override must not hand out a fresh count. */
  of(limit: number, durationMs: number): string {
    if (limit !== this.limit || durationMs !== this.durationMs) {
      this.limit = limit
      this.durationMs = durationMs
      this.text = `${this.namespaceId}\n${limit}\n${durationMs}\n`
    }
    return this.text
  }
}
