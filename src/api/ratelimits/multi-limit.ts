import { type AuditEntry, audit } from '../../audit/log.ts'
import { Turns } from '../../lib/turns.ts'
import type { Take, Taken } from '../../limiter/threads/router.ts'
import type { Actor } from '../root-keys/authorize.ts'
import {
  type Decision,
  decisionEntry,
  isAudited,
  type LimitInput,
  type LimitServices,
  namespaceFor,
  recordDecision,
  takeFor,
} from './limit.ts'
import type { Namespace } from './namespaces.ts'

/**
 * Decides several `ratelimits.limit` calls, in order and each by itself: a refused call does not undo the others. Answers
 * from the last known counts only when all calls are `async`; otherwise an `async` call would be charged before earlier
 * calls. Everything that fails the request, such as a bad element or a missing right, does so before any charge. Long
 * requests yield to other clients in between.
 */
export async function multiLimit(
  services: LimitServices,
  actor: Actor,
  inputs: readonly LimitInput[],
): Promise<Decision[]> {
  const namespaces = new Map<string | undefined, Namespace>()
  for (const { namespace: name } of inputs) {
    if (!namespaces.has(name)) namespaces.set(name, await namespaceFor(services, actor, name))
  }
  const turns = new Turns()
  const calls: { each: LimitInput; namespace: Namespace; take: Take }[] = []
  for (const [i, each] of inputs.entries()) {
    const namespace = namespaces.get(each.namespace)
    if (namespace === undefined) throw new Error('every namespace was looked up above')
    calls.push({ each, namespace, take: takeFor(services, actor, namespace, each, i) })
    const turn = turns.next()
    if (turn !== null) await turn
  }
  const takes = calls.map(({ take }) => take)
  const answers = inputs.every(({ async }) => async === true)
    ? takes.map((take) => services.limiter.takeAsync(take))
    : await services.limiter.takeAll(takes)
  const entries: AuditEntry[] = []
  const decisions: Decision[] = []
  for (const [i, { each, namespace, take }] of calls.entries()) {
    const taken = answers[i] as Taken // one for each charge
    recordDecision(services, actor, namespace, each, taken)
    if (isAudited(each)) entries.push(decisionEntry(namespace, each, taken.passed))
    decisions.push({ namespace, take, taken })
    const turn = turns.next()
    if (turn !== null) await turn
  }
  if (entries.length > 0) await audit(services.sql, actor, entries)
  return decisions
}
