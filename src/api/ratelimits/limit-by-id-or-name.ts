import { ApiError } from '../../errors.ts'
import type { Charge, Decision } from '../../limiter/threads/router.ts'
import { type Actor, anyOf, requireOn, requirePermission } from '../root-keys/authorize.ts'
import {
  createNamespaces,
  type LimitDecision,
  type LimitInput,
  type LimitServices,
  recordDecision,
  requireLimit,
} from './limit.ts'
import type { Namespace } from './namespaces.ts'
import { findDeletedNamespaceId } from './store.ts'

/** A limit of a namespace that is named by its id or its name. It counts the same whatever limit the caller asks for. */
export type SharedLimitInput = Required<Pick<LimitInput, 'namespace'>> &
  Pick<LimitInput, 'identifier' | 'limit' | 'duration' | 'cost'>

/** A decision, and the override that replaced the caller's values; null = none did. */
export type SharedLimitDecision = LimitDecision & { overrideId: string | null }

/** What a call asks of a counter, before it is decided. */
export type SharedLimit = Omit<SharedLimitDecision, 'decision'>

/**
 * Takes `cost` tokens from a window. A refused call is a normal result, not an error.
 * @param answerOf Turns the decision into the caller's answer. Done here to save a promise for each call.
 * @throws ApiError as {@link requireCreatable}; INSUFFICIENT_PERMISSIONS; InvalidInput as {@link requireLimit}.
 */
export async function limitByIdOrName<A>(
  services: LimitServices,
  actor: Actor,
  input: SharedLimitInput,
  answerOf: (decision: SharedLimitDecision) => A,
): Promise<A> {
  // No `await` on a cached namespace: such a call waits for its shard only.
  const found = services.namespaces.findByIdOrName(actor.workspaceId, input.namespace)
  let namespace = found instanceof Promise ? await found : found
  if (namespace === null) {
    await requireCreatable(services, actor, input.namespace)
    requireLimit(services, input, null) // a refused call creates no namespace
    await createNamespaces(services, actor, [input.namespace])
    namespace = await findMade(services, actor, input.namespace)
  } else requirePermission(actor, namespace.mayLimit)
  const { charge, overrideId } = sharedLimitOf(services, actor, namespace, input)
  const pending = services.limiter.submit(charge)
  let decision: Decision | null = null
  while (decision === null) {
    await pending.answered
    decision = pending.decision
  }
  const limited = { namespace, charge, decision, overrideId }
  recordDecision(services, actor, input, limited, true)
  return answerOf(limited)
}

/**
 * Requires that a namespace that does not exist may be created, and limited in: before anything is created.
 * @throws ApiError INSUFFICIENT_PERMISSIONS; GONE when one of that name or id was deleted.
 */
export async function requireCreatable(
  { sql }: Pick<LimitServices, 'sql'>,
  actor: Actor,
  idOrName: string,
): Promise<void> {
  const deletedId = await findDeletedNamespaceId(sql, actor.workspaceId, idOrName)
  requireOn(actor, { resource: 'ratelimit', action: 'limit' }, deletedId)
  if (deletedId !== null) throw new ApiError('GONE', `namespace ${idOrName} was deleted`)
  requirePermission(actor, anyOf('*', 'ratelimit.*.create_namespace'))
}

/** A namespace that was just created. @throws ApiError GONE if it was deleted meanwhile. */
export async function findMade(
  { namespaces }: Pick<LimitServices, 'namespaces'>,
  { workspaceId }: Actor,
  idOrName: string,
): Promise<Namespace> {
  const namespace = await namespaces.findByIdOrName(workspaceId, idOrName)
  if (namespace === null) throw new ApiError('GONE', `namespace ${idOrName} was deleted`)
  return namespace
}

/**
 * The charge to send to the limiter. An override replaces the caller's limit and duration.
 * @param index Position of the input among several; null = there is only one.
 * @throws InvalidInput as {@link requireLimit}.
 */
export function sharedLimitOf(
  services: Pick<LimitServices, 'config'>,
  { workspaceId }: Actor,
  namespace: Namespace,
  input: SharedLimitInput,
  index: number | null = null,
): SharedLimit {
  const override = namespace.overrides.find(input.identifier)
  requireLimit(services, input, override, index)
  const durationMs = override?.durationMs ?? input.duration
  const charge: Charge = {
    prefix: namespace.counterPrefix.ofAnyLimit(durationMs),
    counter: input.identifier,
    workspaceId,
    limit: override?.limit ?? input.limit,
    durationMs,
    cost: input.cost ?? 1,
  }
  if (namespace.sharing !== null) charge.sharing = namespace.sharing
  return { namespace, charge, overrideId: override?.id ?? null }
}
