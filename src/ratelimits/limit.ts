import { audit } from '../audit/log.ts'
import type { Deps } from '../deps.ts'
import { notFound } from '../errors.ts'
import type { Call } from '../http/endpoint.ts'
import { newId } from '../lib/ids.ts'
import { holdsPermissions } from '../lib/permission-query.ts'
import { type Actor, anyOf, authenticate, requirePermission } from '../root-keys/authorize.ts'
import type { Namespace } from './namespaces.ts'
import { findOverride } from './overrides.ts'
import type { LimitBody, LimitReply } from './schema.ts'
import { insertNamespace } from './store.ts'

/** Takes `cost` tokens from a window. A refusal is an answer, not an error. The order here is contract. */
export async function limit(deps: Deps, call: Call, body: LimitBody): Promise<LimitReply> {
  const actor = await authenticate(deps, call)
  const found = namespaceFor(deps, actor, body.namespace)
  return await decide(deps, actor, found instanceof Promise ? await found : found, body)
}

/**
 * The namespace to limit in, made when nobody has used it yet; at once where it is known.
 * @throws ApiError NOT_FOUND, INSUFFICIENT_PERMISSIONS
 */
export function namespaceFor(deps: Deps, actor: Actor, name = 'default'): Namespace | Promise<Namespace> {
  const found = deps.namespaces.find(actor.workspaceId, name)
  const check = (namespace: Namespace | null): Namespace | Promise<Namespace> => {
    if (namespace === null) return createNamespace(deps, actor, name)
    requirePermission(actor, mayLimit(namespace.id))
    return namespace
  }
  return found instanceof Promise ? found.then(check) : check(found)
}

/** Override, count, record, reply. */
export async function decide(
  deps: Deps,
  actor: Actor,
  namespace: Namespace,
  body: LimitBody,
): Promise<LimitReply> {
  const override = findOverride(namespace.overrides, body.identifier)
  const effective = override?.limit ?? body.limit
  const durationMs = override?.durationMs ?? body.duration
  // The requested limit names the counter, not the overridden one: an override must not hand out a fresh count.
  const counter = `${namespace.id}\n${body.limit}\n${durationMs}\n${body.identifier}`
  const take = { counter, limit: effective, durationMs, cost: body.cost ?? 1 }
  const taken = body.async === true ? deps.limiter.takeAsync(take) : await deps.limiter.take(take)

  const { passed, used, resetAtMs } = taken
  deps.measures.decided(actor.workspaceId, namespace, passed)
  deps.usage.recordRatelimit({
    workspaceId: actor.workspaceId,
    namespaceId: namespace.id,
    identifier: body.identifier,
    passed,
    atMs: deps.clock(),
  })
  if (body.resources !== undefined && body.resources.length > 0)
    await auditDecision(deps, actor, namespace, body, passed)
  return { success: passed, limit: effective, remaining: Math.max(0, effective - used), reset: resetAtMs }
}

const mayLimit = (namespaceId: string) => anyOf('*', 'ratelimit.*.limit', `ratelimit.${namespaceId}.limit`)

/**
 * A namespace nobody has used yet is made, when the root key may both make it and limit in it; else it is not found.
 * Two first uses at once end with one namespace.
 */
async function createNamespace(deps: Deps, actor: Actor, name: string): Promise<Namespace> {
  if (!holdsPermissions(actor.permissions, anyOf('*', 'ratelimit.*.create_namespace')))
    throw notFound(`namespace ${name}`)
  requirePermission(actor, anyOf('*', 'ratelimit.*.limit'))
  const id = newId('rlns')
  await deps.database.write(async (tx) => {
    const isNew = await insertNamespace(tx, { id, workspaceId: actor.workspaceId, name, now: deps.clock() })
    if (!isNew) return
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.create',
        description: `created namespace ${id} on first use`,
        resources: [{ type: 'ratelimitNamespace', id, name }],
      },
    ])
  })
  const namespace = await deps.namespaces.find(actor.workspaceId, name)
  if (namespace === null) throw notFound(`namespace ${name}`) // deleted again meanwhile
  return namespace
}

/** Only calls that name resources are audited: the others are counted, not kept one by one. */
async function auditDecision(
  deps: Deps,
  actor: Actor,
  namespace: Namespace,
  { identifier, resources = [], meta }: LimitBody,
  passed: boolean,
): Promise<void> {
  await audit(deps.sql, actor, [
    {
      event: passed ? 'ratelimit.success' : 'ratelimit.denied',
      description: `rate limit ${passed ? 'passed' : 'denied'} in namespace ${namespace.id}`,
      resources: [
        { type: 'ratelimitNamespace', id: namespace.id, name: namespace.name, meta: { identifier, ...meta } },
        ...resources,
      ],
    },
  ])
}
