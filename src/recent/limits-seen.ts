/** A limit that calls of a namespace asked for. */
export type SeenLimit = {
  limit: number
  durationMs: number
  /** True = counted whatever the limit (v2): the limit is the last one seen. */
  isShared: boolean
  /** Of the last call, Unix ms. */
  at: number
}

/** The last {@link LIMITS_SEEN_MAX} limits that a namespace was asked for. Mostly the next call asks for the same. */
export class SeenLimits {
  private readonly seen: SeenLimit[] = []
  private latest: SeenLimit = { limit: -1, durationMs: -1, isShared: false, at: 0 }
  /** False = it was given up for another namespace. */
  isKept = true

  note(limit: number, durationMs: number, isShared: boolean, at: number): void {
    const { latest } = this
    if (latest.limit === limit && latest.durationMs === durationMs && latest.isShared === isShared)
      latest.at = at
    else this.latest = this.find(limit, durationMs, isShared, at)
  }

  private find(limit: number, durationMs: number, isShared: boolean, at: number): SeenLimit {
    const { seen } = this
    let found = seen.find(
      (each) =>
        each.durationMs === durationMs && each.isShared === isShared && (isShared || each.limit === limit),
    )
    if (found === undefined) {
      found = { limit, durationMs, isShared, at }
      if (seen.length < LIMITS_SEEN_MAX) seen.push(found)
      else seen[seen.indexOf(seen.reduce((a, b) => (b.at < a.at ? b : a)))] = found
    }
    found.limit = limit
    found.at = at
    return found
  }

  list(): SeenLimit[] {
    return this.seen.map((each) => ({ ...each }))
  }
}

export const LIMITS_SEEN_MAX = 16

/** {@link SeenLimits} by namespace, of the namespaces that this thread began to see last. */
export class LimitsSeen {
  private readonly byNamespace = new Map<string, SeenLimits>()

  constructor(private readonly namespacesMax = NAMESPACES_MAX) {}

  of(namespaceId: string): SeenLimits {
    let seen = this.byNamespace.get(namespaceId)
    if (seen !== undefined) return seen
    seen = new SeenLimits()
    this.byNamespace.set(namespaceId, seen)
    if (this.byNamespace.size > this.namespacesMax) {
      for (const [firstId, first] of this.byNamespace) {
        first.isKept = false
        this.byNamespace.delete(firstId)
        break
      }
    }
    return seen
  }

  list(namespaceId: string): SeenLimit[] {
    return this.byNamespace.get(namespaceId)?.list() ?? []
  }
}

/** Each takes up to 1 KB. */
const NAMESPACES_MAX = 4096
