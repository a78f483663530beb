import type { Decision } from '../../limiter/threads/router.ts'
import { type Actor, requirePermission } from '../root-keys/authorize.ts'
import { createNamespaces, type LimitServices, recordDecision, requireLimit } from './limit.ts'
import {
  findMade,
  requireCreatable,
  type SharedLimitDecision,
  type SharedLimitInput,
  sharedLimitOf,
} from './limit-by-id-or-name.ts'
import type { Namespace } from './namespaces.ts'

/**
 * Decides several limits as one: when one refuses, none is charged. Each decision tells whether it passes by itself, after
 * those before it on the same counter. What fails the request does so before any charge and before any namespace is created.
 * @throws ApiError as `limitByIdOrName`.
 */
export async function limitTogether(
  services: LimitServices,
  actor: Actor,
  inputs: readonly SharedLimitInput[],
): Promise<SharedLimitDecision[]> {
  const namespaces = await namespacesOf(services, actor, inputs)
  const limits = inputs.map((input, i) => {
    const namespace = namespaces.get(input.namespace)
    if (namespace === undefined) throw new Error('every namespace was looked up above')
    return sharedLimitOf(services, actor, namespace, input, i)
  })
  const decisions = await services.limiter.chargeTogether(limits.map(({ charge }) => charge))
  return limits.map((limit, i) => {
    const decision = decisions[i] as Decision // one for each charge
    const limited = { ...limit, decision }
    recordDecision(services, actor, inputs[i] as SharedLimitInput, limited, true) // one for each limit
    return limited
  })
}

/** The namespaces of all inputs, by what they are named. Missing ones are created. */
async function namespacesOf(
  services: LimitServices,
  actor: Actor,
  inputs: readonly SharedLimitInput[],
): Promise<Map<string, Namespace>> {
  const named = [...new Set(inputs.map(({ namespace }) => namespace))]
  const found = await Promise.all(
    named.map((text) => services.namespaces.findByIdOrName(actor.workspaceId, text)),
  )
  const namespaces = new Map<string, Namespace>()
  const missing: string[] = []
  for (const [i, namespace] of found.entries()) {
    const text = named[i] as string // one for each
    if (namespace === null) missing.push(text)
    else namespaces.set(text, namespace)
  }
  for (const { mayLimit } of namespaces.values()) requirePermission(actor, mayLimit)
  if (missing.length === 0) return namespaces
  for (const text of missing) await requireCreatable(services, actor, text)
  for (const [i, input] of inputs.entries()) {
    const override = namespaces.get(input.namespace)?.overrides.find(input.identifier) ?? null
    requireLimit(services, input, override, i)
  }
  await createNamespaces(services, actor, missing)
  for (const text of missing) namespaces.set(text, await findMade(services, actor, text))
  return namespaces
}
