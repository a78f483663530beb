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
  const name = body.namespace ?? 'default'
  const known = deps.namespaces.find(actor.workspaceId, name)
  const found = known instanceof Promise ? await known : known
  if (found !== null) requirePermission(actor, mayLimit(found.id))
  const namespace = found ?? (await createNamespace(deps, actor, name))

  const override = findOverride(namespace.overrides, body.identifier)
  const effective = override?.limit ?? body.limit
  const durationMs = override?.durationMs ?? body.duration
  // The requested limit names the counter, not the overridden one: an override must not hand out a fresh count.
  const counter = `${namespace.id}\n${body.limit}\n${durationMs}\n${body.identifier}`
  const take = { counter, limit: effective, durationMs, cost: body.cost ?? 1 }
  const taken = body.async === true ? deps.limiter.takeAsync(take) : await deps.limiter.take(take)

  deps.usage.recordRatelimit({
    workspaceId: actor.workspaceId,
    namespaceId: namespace.id,
    identifier: body.identifier,
    passed: taken.passed,
    atMs: deps.clock(),
  })
  if (body.resources !== undefined && body.resources.length > 0)
    await auditDecision(deps, actor, namespace, body, taken.passed)
  return {
    success: taken.passed,
    limit: effective,
    remaining: Math.max(0, effective - taken.used),
    reset: taken.resetAtMs,
  }
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
