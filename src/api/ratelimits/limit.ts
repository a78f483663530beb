import { type AuditEntry, type AuditResource, audit } from '../../audit/log.ts'
import { InvalidInput, notFound } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { readMeta } from '../../lib/meta.ts'
import type { Charge, Decision } from '../../limiter/threads/router.ts'
import { holdsPermissions } from '../../verify/permission-query.ts'
import type { Services } from '../parts.ts'
import { type Actor, anyOf, requireOn, requirePermission } from '../root-keys/authorize.ts'
import type { Namespace } from './namespaces.ts'
import type { Override } from './overrides.ts'
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
  Pick<Services, 'config' | 'sql' | 'limiter' | 'usage' | 'measures' | 'recent'>

/** A decision, with the namespace and the charge that it was made for. */
export type LimitDecision = { namespace: Namespace; charge: Charge; decision: Decision }

/**
 * Takes `cost` tokens from a window. A refused call is a normal result, not an error.
 * @param answerOf Turns the decision into the caller's answer. Done here to save a promise for each call.
 * @throws ApiError as {@link findNamespace} and {@link chargeFor}.
 */
export async function limit<A>(
  services: LimitServices,
  actor: Actor,
  input: LimitInput,
  answerOf: (decision: LimitDecision) => A,
): Promise<A> {
  // No `await` on a cached namespace: such a call waits for its shard only.
  const found = findNamespace(services, actor, input.namespace)
  let namespace = found instanceof Promise ? await found : found
  if (namespace === null) {
    requireLimit(services, input, null) // a refused call creates no namespace
    const name = input.namespace ?? DEFAULT_NAMESPACE
    await createNamespaces(services, actor, [name])
    namespace = await findCreated(services, actor, name)
  }
  const charge = chargeFor(services, actor, namespace, input)
  let decision: Decision | null = null
  if (input.async === true) decision = services.limiter.chargeLater(charge)
  else {
    const pending = services.limiter.submit(charge)
    while (decision === null) {
      await pending.answered
      decision = pending.decision
    }
  }
  recordDecision(services, actor, input, { namespace, charge, decision })
  if (isAudited(input)) await audit(services.sql, actor, [decisionEntry(namespace, input, decision.passed)])
  return answerOf({ namespace, charge, decision })
}

export const DEFAULT_NAMESPACE = 'default'

/**
 * The namespace to limit in. Not a promise when it is cached.
 * @returns null if it does not exist and the actor may create it.
 * @throws ApiError NOT_FOUND, INSUFFICIENT_PERMISSIONS
 */
export function findNamespace(
  services: NamespaceServices,
  actor: Actor,
  name = DEFAULT_NAMESPACE,
): Namespace | null | Promise<Namespace | null> {
  const found = services.namespaces.find(actor.workspaceId, name)
  return found instanceof Promise ? admittedLater(actor, name, found) : admitted(actor, name, found)
}

function admitted(actor: Actor, name: string, namespace: Namespace | null): Namespace | null {
  if (namespace === null) requireCreation(actor, name)
  else requirePermission(actor, namespace.mayLimit)
  return namespace
}

const admittedLater = async (actor: Actor, name: string, found: Promise<Namespace | null>) =>
  admitted(actor, name, await found)

/** Creating a namespace on first use needs the rights to limit in all and to create; without the second, NOT_FOUND. */
function requireCreation(actor: Actor, name: string): void {
  // First, and the same as for an existing namespace: a caller without the right on all must not learn that it is missing.
  requireOn(actor, { resource: 'ratelimit', action: 'limit' }, null)
  if (!holdsPermissions(actor.permissions, anyOf('*', 'ratelimit.*.create_namespace')))
    throw notFound('namespace', name)
}

/**
 * Refuses an input that cannot be decided.
 * @param override Replaces the caller's limit and duration; null = none does.
 * @param index Position of the input among several; null = there is only one.
 * @throws InvalidInput for resources that are too large to audit, and for a window longer than `windowMsMax` without an
 *   override.
 */
export function requireLimit(
  { config }: Pick<Services, 'config'>,
  body: LimitInput,
  override: Override | null,
  index: number | null = null,
): void {
  if (isAudited(body)) readMeta(body.resources, 'resources') // the audit log keeps them
  if (override === null && body.duration > config.windowMsMax)
    throw new InvalidInput(
      'duration',
      `Number must be less than or equal to ${config.windowMsMax}; only an override may be longer`,
      index,
    )
}

/**
 * The charge to send to the limiter. An override replaces the caller's limit and duration.
 * @param index Position of the input among several; null = there is only one.
 * @throws InvalidInput as {@link requireLimit}.
 */
export function chargeFor(
  services: Pick<Services, 'config'>,
  { workspaceId }: Actor,
  { counterPrefix, overrides, sharing }: Namespace,
  body: LimitInput,
  index: number | null = null,
): Charge {
  const override = overrides.find(body.identifier)
  requireLimit(services, body, override, index)
  const durationMs = override?.durationMs ?? body.duration
  const charge: Charge = {
    prefix: counterPrefix.of(body.limit, durationMs),
    counter: body.identifier,
    workspaceId,
    limit: override?.limit ?? body.limit,
    durationMs,
    cost: body.cost ?? 1,
  }
  if (sharing !== null) charge.sharing = sharing // most have none, and do not pay for the field
  return charge
}

/**
 * Counts a decision for usage and metrics, and remembers it. A call with cost 0 decides nothing and is not counted.
 * @param isShared The counter is the same whatever limit is asked for.
 */
export function recordDecision(
  { measures, usage, recent }: Pick<Services, 'measures' | 'usage' | 'recent'>,
  actor: Actor,
  input: LimitInput,
  { namespace, charge, decision }: LimitDecision,
  isShared = false,
): void {
  const { identifier, cost } = input
  if (cost === 0) return
  const { workspaceId } = actor
  const { passed, atMs } = decision
  if (recent !== null) recent.decided(actor, namespace, input, charge, decision, isShared)
  measures.decided(workspaceId, namespace, passed)
  const namespaceId = namespace.id
  usage.recordRatelimit({ workspaceId, namespaceId, identifier, passed, atMs })
}

/** Creates namespaces on their first use: all of them, or none. Two first uses at once end with one namespace. */
export const createNamespaces = (
  services: NamespaceServices,
  actor: Actor,
  names: readonly string[],
): Promise<void> =>
  services.namespaces.makeOnce(actor.workspaceId, names, (missing) =>
    insertOnFirstUse(services, actor, missing),
  )

/** A namespace that was just created. @throws ApiError NOT_FOUND if it was deleted meanwhile. */
export async function findCreated(
  services: NamespaceServices,
  actor: Actor,
  name: string,
): Promise<Namespace> {
  const namespace = await services.namespaces.find(actor.workspaceId, name)
  if (namespace === null) throw notFound('namespace', name)
  return namespace
}

async function insertOnFirstUse(
  services: NamespaceServices,
  actor: Actor,
  names: readonly string[],
): Promise<void> {
  await services.database.write(async (tx) => {
    const entries: AuditEntry[] = []
    for (const name of names) {
      const id = newId('rlns')
      const { workspaceId } = actor
      const isNew = await insertNamespace(tx, { id, workspaceId, name, now: services.clock() })
      if (!isNew) continue
      entries.push({
        event: 'ratelimitNamespace.create',
        description: `created namespace ${id} on first use`,
        resources: [{ type: 'ratelimitNamespace', id, name }],
      })
    }
    if (entries.length > 0) await audit(tx, actor, entries)
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
