/** A counter that has little or nothing left. */
export type NearLimitEntry = {
  workspaceId: string
  namespaceId: string
  namespaceName: string
  identifier: string
  limit: number
  durationMs: number
  /** Tokens used, as the last decision of this thread saw it. */
  used: number
  /** End of the window, Unix ms. */
  resetAtMs: number
  /** Calls of this window that this thread saw refused. */
  refused: number
  /** Of the last decision, Unix ms. */
  at: number
}

/** A decision leaves little when at most this share of the limit is left. */
const isNear = (used: number, limit: number) => (limit - used) * 10 <= limit

/**
 * Counters near their limit. A place is found by a hash of the identifier's last characters; a set of four places keeps the
 * counters that were decided last. So one workspace's counters can push out others', but nothing grows or is searched.
 */
export class NearLimits {
  private readonly entries: (NearLimitEntry | null)[] = Array(SETS * WAYS).fill(null)

  note(
    workspaceId: string,
    namespace: { id: string; name: string },
    identifier: string,
    charge: { limit: number; durationMs: number },
    decision: { passed: boolean; used: number; resetAtMs: number; atMs: number },
  ): void {
    const { limit, durationMs } = charge
    if (decision.passed && !isNear(decision.used, limit)) return
    const first = (hashOf(identifier) % SETS) * WAYS
    let place = first
    let oldest = Number.POSITIVE_INFINITY
    for (let way = first; way < first + WAYS; way++) {
      const entry = this.entries[way] ?? null
      if (
        entry !== null &&
        entry.identifier === identifier &&
        entry.namespaceId === namespace.id &&
        entry.limit === limit &&
        entry.durationMs === durationMs
      ) {
        update(entry, decision)
        return
      }
      const age = entry === null ? -1 : entry.at
      if (age < oldest) {
        oldest = age
        place = way
      }
    }
    const made: NearLimitEntry = {
      workspaceId,
      namespaceId: namespace.id,
      namespaceName: namespace.name,
      identifier,
      limit,
      durationMs,
      used: 0,
      resetAtMs: 0,
      refused: 0,
      at: 0,
    }
    update(made, decision)
    this.entries[place] = made
  }

  /** Those whose window is open. */
  of(workspaceId: string, namespaceId: string | null, now: number): NearLimitEntry[] {
    return this.entries.filter(
      (entry): entry is NearLimitEntry =>
        entry !== null &&
        entry.workspaceId === workspaceId &&
        entry.resetAtMs > now &&
        (namespaceId === null || entry.namespaceId === namespaceId),
    )
  }
}

export const NEAR_LIMIT_MAX = 1024
const WAYS = 4
const SETS = NEAR_LIMIT_MAX / WAYS

function update(
  entry: NearLimitEntry,
  { passed, used, resetAtMs, atMs }: { passed: boolean; used: number; resetAtMs: number; atMs: number },
): void {
  if (entry.resetAtMs !== resetAtMs) entry.refused = 0
  if (!passed) entry.refused++
  entry.used = used
  entry.resetAtMs = resetAtMs
  entry.at = atMs
}

/** Identifiers of one kind mostly differ at their end. */
function hashOf(identifier: string): number {
  let hash = identifier.length
  for (let at = Math.max(0, identifier.length - HASHED_CHARACTERS); at < identifier.length; at++)
    hash = (Math.imul(hash, 31) + identifier.charCodeAt(at)) | 0
  return (hash ^ (hash >>> 15)) >>> 0
}
const HASHED_CHARACTERS = 12
