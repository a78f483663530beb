/**
 * The beginning of the names of a namespace's counters for one limit. Successive calls with the same limit get the same
 * string, which the limiter recognises (`KeyedHash.updateAfter`); another limit replaces it.
 */
export class CounterPrefix {
  private limit = Number.NaN
  private durationMs = Number.NaN
  private text = ''
  private sharedDurationMs = Number.NaN
  private sharedText = ''

  constructor(private readonly namespaceId: string) {}

  /** @param limit The requested one, not an override's: an override must not start a fresh count. */
  of(limit: number, durationMs: number): string {
    if (limit !== this.limit || durationMs !== this.durationMs) {
      this.limit = limit
      this.durationMs = durationMs
      this.text = `${this.namespaceId}\n${limit}\n${durationMs}\n`
    }
    return this.text
  }

  /** For counters that calls with any limit share. No limit is empty, so these names are none of the others. */
  ofAnyLimit(durationMs: number): string {
    if (durationMs !== this.sharedDurationMs) {
      this.sharedDurationMs = durationMs
      this.sharedText = `${this.namespaceId}\n\n${durationMs}\n`
    }
    return this.sharedText
  }
}
