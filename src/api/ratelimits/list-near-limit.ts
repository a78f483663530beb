import type { NearLimitEntry } from '../../recent/near-limit.ts'
import { type RecallServices, requireRecall } from '../events/recall.ts'
import type { Services } from '../parts.ts'
import { type Actor, requireOn } from '../root-keys/authorize.ts'
import { namespaceNotFound } from './namespace-name.ts'
import { findNamespace, type NamespaceName } from './store.ts'

/**
 * Identifiers whose open window has at most a tenth of its limit left, those refused most first. Of what the threads of this
 * process remember.
 * @param by Null = of all namespaces.
 * @throws ApiError INSUFFICIENT_PERMISSIONS, NOT_FOUND; as `requireRecall`.
 */
export async function listNearLimit(
  services: RecallServices & Pick<Services, 'sql'>,
  actor: Actor,
  by: NamespaceName | null,
  limit: number,
): Promise<NearLimitEntry[]> {
  const { workspaceId } = actor
  const found = by === null ? null : await findNamespace(services.sql, workspaceId, by)
  const askedId = by !== null && 'id' in by ? by.id : null
  requireOn(actor, { resource: 'ratelimit', action: 'read_namespace' }, found?.id ?? askedId)
  if (by !== null && found === null) throw namespaceNotFound(by)
  const recall = requireRecall(services)
  const { answers } = await recall('near', { workspaceId, namespaceId: found?.id ?? null })
  const merged = new Map<string, NearLimitEntry>()
  for (const entry of answers.flat()) {
    const { namespaceId, identifier, durationMs, resetAtMs } = entry
    const name = [namespaceId, entry.limit, durationMs, identifier].join('\n')
    const known = merged.get(name)
    if (known === undefined || known.resetAtMs < resetAtMs) merged.set(name, { ...entry })
    else if (known.resetAtMs === resetAtMs) {
      known.used = Math.max(known.used, entry.used)
      known.refused += entry.refused
      known.at = Math.max(known.at, entry.at)
    }
  }
  return [...merged.values()].sort((a, b) => b.refused - a.refused || b.at - a.at).slice(0, limit)
}
