import { type AuditEntry, type AuditResource, audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import { badRequest, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { readMeta } from '../../lib/meta.ts'
import { ratelimitHeaders } from '../../lib/ratelimit-headers.ts'
import type { Take, Taken } from '../../limiter/threads/router.ts'
import type { Deps } from '../../server/deps.ts'
import { holdsPermissions } from '../../verify/permission-query.ts'
import { type Actor, anyOf, authenticate, requireOn, requirePermission } from '../root-keys/authorize.ts'
import type { Namespace } from './namespaces.ts'
import { findOverride } from './overrides.ts'
import type { LimitBody, LimitReply } from './schema.ts'
import { insertNamespace } from './store.ts'

/** Takes `cost` tokens from a window. A refusal is an answer, not an error. The order here is contract. */
export async function limit(deps: Deps, call: Call, body: LimitBody): Promise<LimitReply> {
  // Asked whether they are promises: a warm call waits for nothing but its shard.
  const known = authenticate(deps, call)
  const actor = known instanceof Promise ? await known : known
  const found = namespaceFor(deps, actor, body.namespace)
  const namespace = found instanceof Promise ? await found : found
  const take = takeFor(deps, actor, namespace, body)
  let taken: Taken
  if (body.async === true) taken = deps.limiter.takeAsync(take)
  else {
    const asked = deps.limiter.ask(take)
    await asked.answered
    taken = asked.taken
  }
  recordDecision(deps, actor, namespace, body, taken)
  if (isAudited(body)) await audit(deps.sql, actor, [decisionEntry(namespace, body, taken.passed)])
  const reply = replyOf(take, taken)
  if (deps.config.sendsRatelimitHeaders) {
    const { limit, remaining, reset: resetAtMs } = reply
    const state = { name: namespace.name, limit, remaining, resetAtMs, durationMs: take.durationMs }
    Object.assign(call.headers, ratelimitHeaders(state, deps.clock()))
  }
  return reply
}

/**
 * The namespace to limit in, made when nobody has used it yet; at once where it is known.
 * @throws ApiError NOT_FOUND, INSUFFICIENT_PERMISSIONS
 */
export function namespaceFor(deps: Deps, actor: Actor, name = 'default'): Namespace | Promise<Namespace> {
  const found = deps.namespaces.find(actor.workspaceId, name)
  return found instanceof Promise
    ? admittedLater(deps, actor, name, found)
    : admitted(deps, actor, name, found)
}

function admitted(
  deps: Deps,
  actor: Actor,
  name: string,
  namespace: Namespace | null,
): Namespace | Promise<Namespace> {
  if (namespace === null) return createNamespace(deps, actor, name)
  requirePermission(actor, namespace.mayLimit)
  return namespace
}

const admittedLater = async (deps: Deps, actor: Actor, name: string, found: Promise<Namespace | null>) =>
  admitted(deps, actor, name, await found)

/**
 * What to ask the limiter for; an override beats the caller.
 * @param path Where the body stands in the request, for messages.
 * @throws ApiError BAD_REQUEST for too much to audit, and for a window that lasts too long without an override.
 */
export function takeFor(
  { config }: Deps,
  { workspaceId }: Actor,
  { counterPrefix, overrides }: Namespace,
  body: LimitBody,
  path = '',
): Take {
  if (isAudited(body)) readMeta(body.resources, 'resources') // the audit log keeps them
  const override = findOverride(overrides, body.identifier)
  const durationMs = override?.durationMs ?? body.duration
  if (override === null && durationMs > config.windowMsMax)
    throw badRequest(
      `${path}duration: Number must be less than or equal to ${config.windowMsMax}; only an override may last longer`,
    )
  return {
    prefix: counterPrefix.of(body.limit, durationMs),
    counter: body.identifier,
    workspaceId,
    limit: override?.limit ?? body.limit,
    durationMs,
    cost: body.cost ?? 1,
  }
}

/** A look, with cost 0, decides nothing and is not counted. */
export function recordDecision(
  deps: Deps,
  { workspaceId }: Actor,
  namespace: Namespace,
  { identifier, cost }: LimitBody,
  { passed, atMs }: Taken,
): void {
  if (cost === 0) return
  deps.measures.decided(workspaceId, namespace, passed)
  const namespaceId = namespace.id
  deps.usage.recordRatelimit({ workspaceId, namespaceId, identifier, passed, atMs })
}

export const replyOf = ({ limit }: Take, { passed, used, resetAtMs }: Taken): LimitReply => ({
  success: passed,
  limit,
  remaining: Math.max(0, limit - used),
  reset: resetAtMs,
})

/**
 * A namespace nobody has used yet is made, when the root key may both make it and limit in it; for who may only limit it is
 * not found.
 * Two first uses at once end with one namespace.
 */
async function createNamespace(deps: Deps, actor: Actor, name: string): Promise<Namespace> {
  // First, and as where it exists: who may not limit in all of them does not learn that it is not there.
  requireOn(actor, { resource: 'ratelimit', action: 'limit' }, null)
  if (!holdsPermissions(actor.permissions, anyOf('*', 'ratelimit.*.create_namespace')))
    throw notFound(`namespace ${name}`)
  await deps.namespaces.makeOnce(actor.workspaceId, name, () => insertOnFirstUse(deps, actor, name))
  const namespace = await deps.namespaces.find(actor.workspaceId, name)
  if (namespace === null) throw notFound(`namespace ${name}`) // deleted again meanwhile
  return namespace
}

async function insertOnFirstUse(deps: Deps, actor: Actor, name: string): Promise<void> {
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
}

/** Only calls that name resources are audited: the others are counted, not kept one by one. */
export const isAudited = ({ resources }: LimitBody): boolean =>
  resources !== undefined && resources.length > 0

export const decisionEntry = (
  namespace: Namespace,
  { identifier, resources = [] }: LimitBody,
  passed: boolean,
): AuditEntry => ({
  event: passed ? 'ratelimit.success' : 'ratelimit.denied',
  description: `rate limit ${passed ? 'passed' : 'denied'} in namespace ${namespace.id}`,
  resources: [
    { type: 'ratelimitNamespace', id: namespace.id, name: namespace.name, meta: { identifier } },
    // As it came, a resource may hold more than is known of one.
    ...resources.map(({ type, id, name, meta }) => {
      const resource: AuditResource = { type, id }
      if (name !== undefined) resource.name = name
      if (meta !== undefined) resource.meta = meta
      return resource
    }),
  ],
})
