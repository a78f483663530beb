import type { Deps } from '../deps.ts'
import type { Call } from '../http/endpoint.ts'
import { authenticate } from '../root-keys/authorize.ts'
import { decide, namespaceFor } from './limit.ts'
import type { Namespace } from './namespaces.ts'
import type { LimitReply, MultiLimitBody } from './schema.ts'

/**
 * Many `ratelimits.limit` calls in one: each is decided by itself, in the order given, and one that is refused does not
 * undo the others. What would fail the request, a bad element or a missing right, does so before anything is charged.
 */
export async function multiLimit(deps: Deps, call: Call, body: MultiLimitBody): Promise<LimitReply[]> {
  const actor = await authenticate(deps, call)
  const namespaces = new Map<string | undefined, Namespace>()
  for (const { namespace: name } of body) {
    if (!namespaces.has(name)) namespaces.set(name, await namespaceFor(deps, actor, name))
  }
  return await Promise.all(
    body.map((each) => {
      const namespace = namespaces.get(each.namespace)
      if (namespace === undefined) throw new Error('every namespace was looked up above')
      return decide(deps, actor, namespace, each)
    }),
  )
}
