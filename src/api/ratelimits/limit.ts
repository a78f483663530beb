import { type AuditEntry, type AuditResource, audit } from '../../audit/log.ts'
import { InvalidInput, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { readMeta } from '../../lib/meta.ts'
import type { Take, Taken } from '../../limiter/threads/router.ts'
import { holdsPermissions } from '../../verify/permission-query.ts'
import type { Services } from '../parts.ts'
import { type Actor, anyOf, requireOn, requirePermission } from '../root-keys/authorize.ts'
import type { Namespace } from './namespaces.ts'
import { findOverride } from './overrides.ts'
import { insertNamespace } from './store.ts'

/** A call of `ratelimits.limit`. */
export type LimitInput = {
  /** Name of the namespace; `default` when absent. */
  namespace?: string
  /** User id, address or other text that the limit counts. */
  identifier: string
  /** Tokens allowed in a window. An override beats it and `duration`. */
  limit: number
  /** Length of the window in ms. */
  duration: number
  /** Tokens to take; 1 when absent. 0 reads the window and takes nothing. */
  cost?: number
  /** Answer from this thread's last known count, and count afterwards. */
  async?: boolean
  /** Resources of the call. With any, the call is written to the audit log. */
  resources?: readonly AuditResource[]
}

type NamespaceServices = Pick<Services, 'namespaces' | 'database' | 'clock'>

export type LimitServices = NamespaceServices &
  Pick<Services, 'config' | 'sql' | 'limiter' | 'usage' | 'measures'>

/** A decision, with the namespace and the charge that it was made for. */
export type Decision = { namespace: Namespace; take: Take; taken: Taken }

/**
 * Takes `cost` tokens from a window. A refused call is a normal result, not an error.
 * @param answerOf Turns the decision into the caller's answer. Done here to save a promise for each call.
 * @throws ApiError as {@link namespaceFor} and {@link takeFor}.
 */
export async function limit<A>(
  services: LimitServices,
  actor: Actor,
  input: LimitInput,
  answerOf: (decision: Decision) => A,
): Promise<A> {
  // No `await` on a cached namespace: the call then waits for its shard only.
  const found = namespaceFor(services, actor, input.namespace)
  const namespace = found instanceof Promise ? await found : found
  const take = takeFor(services, actor, namespace, input)
  let taken: Taken
  if (input.async === true) taken = services.limiter.takeAsync(take)
  else {
    const asked = services.limiter.ask(take)
    await asked.answered
    taken = asked.taken
  }
  recordDecision(services, actor, namespace, input, taken)
  if (isAudited(input)) await audit(services.sql, actor, [decisionEntry(namespace, input, taken.passed)])
  return answerOf({ namespace, take, taken })
}

/**
 * The namespace to limit in. Created on first use. Not a promise when it is cached.
 * @throws ApiError NOT_FOUND, INSUFFICIENT_PERMISSIONS
 */
export function namespaceFor(
  services: NamespaceServices,
  actor: Actor,
  name = 'default',
): Namespace | Promise<Namespace> {
  const found = services.namespaces.find(actor.workspaceId, name)
  return found instanceof Promise
    ? admittedLater(services, actor, name, found)
    : admitted(services, actor, name, found)
}

function admitted(
  services: NamespaceServices,
  actor: Actor,
  name: string,
  namespace: Namespace | null,
): Namespace | Promise<Namespace> {
  if (namespace === null) return createNamespace(services, actor, name)
  requirePermission(actor, namespace.mayLimit)
  return namespace
}

const admittedLater = async (
  services: NamespaceServices,
  actor: Actor,
  name: string,
  found: Promise<Namespace | null>,
) => admitted(services, actor, name, await found)

/**
 * The charge to send to the limiter. An override replaces the caller's limit and duration.
 * @param index Position of the input among several; null = there is only one.
 * @throws ApiError BAD_REQUEST for resources that are too large to audit, and for a window longer than `windowMsMax`
 *   without an override.
 */
export function takeFor(
  { config }: Pick<Services, 'config'>,
  { workspaceId }: Actor,
  { counterPrefix, overrides }: Namespace,
  body: LimitInput,
  index: number | null = null,
): Take {
  if (isAudited(body)) readMeta(body.resources, 'resources') // the audit log keeps them
  const override = findOverride(overrides, body.identifier)
  const durationMs = override?.durationMs ?? body.duration
  if (override === null && durationMs > config.windowMsMax)
    throw new InvalidInput(
      'duration',
      `Number must be less than or equal to ${config.windowMsMax}; only an override may last longer`,
      index,
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

/** Counts a decision for usage and metrics. A call with cost 0 decides nothing and is not counted. */
export function recordDecision(
  { measures, usage }: Pick<Services, 'measures' | 'usage'>,
  { workspaceId }: Actor,
  namespace: Namespace,
  { identifier, cost }: LimitInput,
  { passed, atMs }: Taken,
): void {
  if (cost === 0) return
  measures.decided(workspaceId, namespace, passed)
  const namespaceId = namespace.id
  usage.recordRatelimit({ workspaceId, namespaceId, identifier, passed, atMs })
}

/**
 * Creates a namespace on its first use. Needs the rights to create it and to limit in it; without the right to create it,
 * the answer is NOT_FOUND. Two first uses at once end with one namespace.
 */
async function createNamespace(services: NamespaceServices, actor: Actor, name: string): Promise<Namespace> {
  // First, and the same as for an existing namespace: a caller without the right on all must not learn that it is missing.
  requireOn(actor, { resource: 'ratelimit', action: 'limit' }, null)
  if (!holdsPermissions(actor.permissions, anyOf('*', 'ratelimit.*.create_namespace')))
    throw notFound(`namespace ${name}`)
  await services.namespaces.makeOnce(actor.workspaceId, name, () => insertOnFirstUse(services, actor, name))
  const namespace = await services.namespaces.find(actor.workspaceId, name)
  if (namespace === null) throw notFound(`namespace ${name}`) // deleted again meanwhile
  return namespace
}

async function insertOnFirstUse(services: NamespaceServices, actor: Actor, name: string): Promise<void> {
  const id = newId('rlns')
  await services.database.write(async (tx) => {
    const isNew = await insertNamespace(tx, {
      id,
      workspaceId: actor.workspaceId,
      name,
      now: services.clock(),
    })
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

/** Only calls that name resources are audited. Other calls are only counted. */
export const isAudited = ({ resources }: LimitInput): boolean =>
  resources !== undefined && resources.length > 0

export const decisionEntry = (
  namespace: Namespace,
  { identifier, resources = [] }: LimitInput,
  passed: boolean,
): AuditEntry => ({
  event: passed ? 'ratelimit.success' : 'ratelimit.denied',
  description: `rate limit ${passed ? 'passed' : 'denied'} in namespace ${namespace.id}`,
  resources: [
    { type: 'ratelimitNamespace', id: namespace.id, name: namespace.name, meta: { identifier } },
    // A resource as sent may have unknown fields.
    ...resources.map(({ type, id, name, meta }) => {
      const resource: AuditResource = { type, id }
      if (name !== undefined) resource.name = name
      if (meta !== undefined) resource.meta = meta
      return resource
    }),
  ],
})
