import { type AuditEntry, audit } from '../../audit/log.ts'
import { Turns } from '../../lib/turns.ts'
import type { Charge, Decision } from '../../limiter/threads/router.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  chargeFor,
  createNamespaces,
  DEFAULT_NAMESPACE,
  decisionEntry,
  findCreated,
  findNamespace,
  isAudited,
  type LimitDecision,
  type LimitInput,
  type LimitServices,
  recordDecision,
  requireLimit,
} from './limit.ts'
import type { Namespace } from './namespaces.ts'

/**
 * Decides several `ratelimits.limit` calls, in order and each by itself: a refused call does not undo the others. Answers
 * from the last known counts only when all calls are `async`; otherwise an `async` call would be charged before earlier
 * calls. Everything that fails the request, such as a bad element or a missing right, does so before any charge and before
 * any namespace is created. Long requests yield to other clients in between.
 */
export async function multiLimit(
  services: LimitServices,
  actor: Actor,
  inputs: readonly LimitInput[],
): Promise<LimitDecision[]> {
  const namespaces = await namespacesOf(services, actor, inputs)
  const turns = new Turns()
  const calls: { each: LimitInput; namespace: Namespace; charge: Charge }[] = []
  for (const [i, each] of inputs.entries()) {
    const namespace = namespaces.get(each.namespace ?? DEFAULT_NAMESPACE)
    if (namespace === undefined) throw new Error('every namespace was looked up above')
    calls.push({ each, namespace, charge: chargeFor(services, actor, namespace, each, i) })
    const turn = turns.next()
    if (turn !== null) await turn
  }
  const charges = calls.map(({ charge }) => charge)
  const answers = inputs.every(({ async }) => async === true)
    ? charges.map((charge) => services.limiter.chargeLater(charge))
    : await services.limiter.submitAll(charges)
  const entries: AuditEntry[] = []
  const decisions: LimitDecision[] = []
  for (const [i, { each, namespace, charge }] of calls.entries()) {
    const decision = answers[i] as Decision // one for each charge
    const limited = { namespace, charge, decision }
    recordDecision(services, actor, each, limited)
    if (isAudited(each)) entries.push(decisionEntry(namespace, each, decision.passed))
    decisions.push(limited)
    const turn = turns.next()
    if (turn !== null) await turn
  }
  if (entries.length > 0) await audit(services.sql, actor, entries)
  return decisions
}

/** The namespaces of all inputs, by name. Missing ones are created, unless an input is bad. */
async function namespacesOf(
  services: LimitServices,
  actor: Actor,
  inputs: readonly LimitInput[],
): Promise<Map<string, Namespace>> {
  const namespaces = new Map<string, Namespace>()
  const missing = new Set<string>()
  for (const { namespace: name = DEFAULT_NAMESPACE } of inputs) {
    if (namespaces.has(name) || missing.has(name)) continue
    const namespace = await findNamespace(services, actor, name)
    if (namespace === null) missing.add(name)
    else namespaces.set(name, namespace)
  }
  if (missing.size === 0) return namespaces
  const turns = new Turns()
  for (const [i, each] of inputs.entries()) {
    const namespace = namespaces.get(each.namespace ?? DEFAULT_NAMESPACE)
    const override = namespace?.overrides.find(each.identifier) ?? null
    requireLimit(services, each, override, i)
    const turn = turns.next()
    if (turn !== null) await turn
  }
  await createNamespaces(services, actor, [...missing])
  for (const name of missing) namespaces.set(name, await findCreated(services, actor, name))
  return namespaces
}
