import type { Charge } from '../../limiter/threads/router.ts'
import type { SeenLimit } from '../../recent/limits-seen.ts'
import { type RecallServices, requireRecall } from '../events/recall.ts'
import type { Services } from '../parts.ts'
import { type Actor, holdsOn, requireOn } from '../root-keys/authorize.ts'
import { CounterPrefix } from './counter-prefix.ts'
import { namespaceNotFound } from './namespace-name.ts'
import type { Override } from './overrides.ts'
import { findNamespace, type NamespaceName, type NamespaceSummary } from './store.ts'

/** The open window of an identifier for one of the limits that its namespace was asked for lately. */
export type IdentifierWindow = {
  /** The limit that calls asked for; an override may replace it. */
  askedLimit: number
  askedDurationMs: number
  limit: number
  durationMs: number
  used: number
  resetAtMs: number
  /** True = calls with any limit share the counter, as in the v2 API. */
  isShared: boolean
}

export type IdentifierWindows = {
  namespace: NamespaceSummary
  /** Those with something used first. */
  windows: IdentifierWindow[]
  /** The override that calls with this identifier get; null = none, or the actor may not read it. */
  override: Override | null
}

/**
 * The windows of an identifier now, for the limits that calls of its namespace asked this process for lately. Takes and
 * counts nothing.
 * @throws ApiError INSUFFICIENT_PERMISSIONS, NOT_FOUND; as `requireRecall`. Error when a shard does not answer.
 */
export async function getWindows(
  services: RecallServices & Pick<Services, 'sql' | 'namespaces' | 'limiter'>,
  actor: Actor,
  by: NamespaceName,
  identifier: string,
): Promise<IdentifierWindows> {
  const { workspaceId } = actor
  const found = await findNamespace(services.sql, workspaceId, by)
  requireOn(
    actor,
    { resource: 'ratelimit', action: 'read_namespace' },
    found?.id ?? ('id' in by ? by.id : null),
  )
  const namespace = found === null ? null : await services.namespaces.find(workspaceId, found.name)
  if (found === null || namespace === null) throw namespaceNotFound(by)
  const recall = requireRecall(services)
  const { answers } = await recall('limits', { namespaceId: namespace.id })
  const override = namespace.overrides.find(identifier)
  const asked = new Map<string, { seen: SeenLimit; charge: Charge }>()
  for (const seen of answers.flat().sort((a, b) => b.at - a.at)) {
    const durationMs = override?.durationMs ?? seen.durationMs
    const counters = new CounterPrefix(namespace.id)
    const prefix = seen.isShared ? counters.ofAnyLimit(durationMs) : counters.of(seen.limit, durationMs)
    if (asked.has(prefix)) continue
    const limit = override?.limit ?? seen.limit
    asked.set(prefix, {
      seen,
      charge: {
        prefix,
        counter: identifier,
        workspaceId,
        limit,
        durationMs,
        cost: 0,
        sharing: namespace.sharing,
      },
    })
  }
  const pairs = [...asked.values()]
  const decisions = await services.limiter.submitAll(pairs.map(({ charge }) => charge))
  const windows = pairs.map(({ seen, charge }, i): IdentifierWindow => {
    const { used = 0, resetAtMs = 0 } = decisions[i] ?? {}
    const { limit: askedLimit, durationMs: askedDurationMs, isShared } = seen
    return {
      askedLimit,
      askedDurationMs,
      limit: charge.limit,
      durationMs: charge.durationMs,
      used,
      resetAtMs,
      isShared,
    }
  })
  const mayRead = holdsOn(actor, { resource: 'ratelimit', action: 'read_override' }, namespace.id)
  return {
    namespace: found,
    windows: windows.sort((a, b) => Number(b.used > 0) - Number(a.used > 0)),
    override: mayRead ? override : null,
  }
}
