import { type AuditEntry, audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { Turns } from '../../lib/turns.ts'
import type { Take, Taken } from '../../limiter/threads/router.ts'
import type { Deps } from '../../server/deps.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { decisionEntry, isAudited, namespaceFor, recordDecision, replyOf, takeFor } from './limit.ts'
import type { Namespace } from './namespaces.ts'
import type { LimitBody, LimitReply, MultiLimitBody } from './schema.ts'

/**
 * Many `ratelimits.limit` calls in one: each is decided by itself, in the order given, and one that is refused does not
 * undo the others. They are answered at once only when all ask for it: else one that does would be charged before those in
 * front of it. A long one gives other clients their turn in between. What would fail the request, a bad element or a missing right, does so before anything is charged.
 */
export async function multiLimit(deps: Deps, call: Call, body: MultiLimitBody): Promise<LimitReply[]> {
  const actor = await authenticate(deps, call)
  const namespaces = new Map<string | undefined, Namespace>()
  for (const { namespace: name } of body) {
    if (!namespaces.has(name)) namespaces.set(name, await namespaceFor(deps, actor, name))
  }
  const turns = new Turns()
  const calls: { each: LimitBody; namespace: Namespace; take: Take }[] = []
  for (const [i, each] of body.entries()) {
    const namespace = namespaces.get(each.namespace)
    if (namespace === undefined) throw new Error('every namespace was looked up above')
    calls.push({ each, namespace, take: takeFor(deps, actor, namespace, each, `${i}.`) })
    const turn = turns.next()
    if (turn !== null) await turn
  }
  const takes = calls.map(({ take }) => take)
  const answers = body.every(({ async }) => async === true)
    ? takes.map((take) => deps.limiter.takeAsync(take))
    : await deps.limiter.takeAll(takes)
  const entries: AuditEntry[] = []
  const replies: LimitReply[] = []
  for (const [i, { each, namespace, take }] of calls.entries()) {
    const taken = answers[i] as Taken // one for each
    recordDecision(deps, actor, namespace, each, taken)
    if (isAudited(each)) entries.push(decisionEntry(namespace, each, taken.passed))
    replies.push(replyOf(take, taken))
    const turn = turns.next()
    if (turn !== null) await turn
  }
  if (entries.length > 0) await audit(deps.sql, actor, entries)
  return replies
}
