import { ApiError } from '../../errors.ts'
import { cutText } from '../../lib/cut-text.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { KeyRecord } from '../../verify/key-record.ts'
import {
  describePermissionQuery,
  holdsPermissions,
  type PermissionQuery,
} from '../../verify/permission-query.ts'
import { V1_RULES } from '../../verify/rules.ts'
import { bearer } from '../../verify/secret.ts'
import { type Presented, type Verdict, type Verifier, verify } from '../../verify/verify.ts'
import type { Call } from '../call.ts'

/** The caller: a root key that passed every check, and the one workspace that it may access. */
export type Actor = {
  readonly workspaceId: WorkspaceId
  readonly rootKeyId: string
  readonly permissions: ReadonlySet<string>
  /** It is the operator root key, which may create and list workspaces. */
  readonly isOperator: boolean
  /** Of the call. */
  readonly requestId: string
  readonly location: string | null
  readonly userAgent: string | null
}

/** Any of these permissions is enough. */
export const anyOf = (...permissions: PermissionQuery[]): PermissionQuery => ({ or: permissions })

/**
 * Turns the Authorization header into an actor. This is the only way to a {@link WorkspaceId}. A root key is verified like
 * any key, in the same order. That it is a root key is checked before limits or credits are charged.
 * @param query Permissions that it must hold; null = none.
 * @returns no promise when the root key is cached and the call has no `admit`.
 * @throws ApiError UNAUTHORIZED, FORBIDDEN, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, USAGE_EXCEEDED.
 */
export function authenticate(
  verifier: Verifier,
  call: Call,
  query: PermissionQuery | null = null,
): Actor | Promise<Actor> {
  const { authorization } = call
  // The cheap check of the length comes first: every call passes here.
  if (authorization === null || (authorization.length < 8 && bearer(authorization) === '')) {
    const { sessionHash = null } = call
    if (sessionHash === null) throw new ApiError('UNAUTHORIZED', 'key required')
    return actorLater(verify(verifier, presentSession(sessionHash, query, call)), query, call)
  }
  const verdict = verify(verifier, presentRootKey(authorization, query, call))
  if (verdict instanceof Promise || call.admit !== undefined) return actorLater(verdict, query, call)
  return actorOf(verdict, query, call)
}

async function actorLater(verdict: Verdict | Promise<Verdict>, query: PermissionQuery | null, call: Call) {
  const actor = actorOf(await verdict, query, call)
  await call.admit?.(actor.workspaceId)
  return actor
}

function actorOf(verdict: Verdict, query: PermissionQuery | null, call: Call): Actor {
  if (verdict.outcome !== 'VALID') throw refusal(verdict, query)
  const { record } = verdict
  return new VerifiedActor(record, requireRootKey(record), call)
}

/** Runs before any charge: a customer's key that is sent by mistake must not lose credits or tokens. */
function requireRootKey({ forWorkspaceId }: KeyRecord): WorkspaceId {
  if (forWorkspaceId === null) throw new ApiError('UNAUTHORIZED', 'root key required')
  return forWorkspaceId as WorkspaceId // the only place that makes one, besides `inWorkspace`
}

class VerifiedActor implements Actor {
  constructor(
    private readonly record: KeyRecord,
    readonly workspaceId: WorkspaceId,
    private readonly call: Call,
  ) {}
  get rootKeyId() {
    return this.record.id
  }
  get permissions() {
    return this.record.permissions
  }
  get isOperator() {
    return this.record.isOperator
  }
  get requestId() {
    return this.call.requestId
  }
  // Computed on demand: only the audit log needs address and user agent.
  get location() {
    return this.call.clientAddress()
  }
  get userAgent() {
    const { userAgent } = this.call
    return userAgent === null ? null : cutText(userAgent, USER_AGENT_CHARACTERS_MAX)
  }
}

/** The header may be long, and each audit event stores it. */
const USER_AGENT_CHARACTERS_MAX = 256

/** Requires an operator root key that holds `*`. @throws as {@link authenticate}. */
export async function authenticateOperator(verifier: Verifier, call: Call): Promise<Actor> {
  const actor = await authenticate(verifier, call, anyOf('*'))
  if (!actor.isOperator)
    throw new ApiError('INSUFFICIENT_PERMISSIONS', 'this call needs an operator root key')
  return actor
}

/** Lets an operator act in another workspace. @param id Of a workspace that was looked up. */
export function inWorkspace({ isOperator }: Actor, { id }: { id: string }): WorkspaceId {
  if (!isOperator) throw new Error('only an operator acts in another workspace')
  return id as WorkspaceId // an operator may access every workspace
}

/** For a right that is known only after a look-up. @throws ApiError INSUFFICIENT_PERMISSIONS */
export function requirePermission(actor: Pick<Actor, 'permissions'>, query: PermissionQuery): void {
  if (!holdsPermissions(actor.permissions, query)) throw insufficientPermissions(query, actor.permissions)
}

/** A right on things that permissions name: `<resource>.<id or *>.<action>`. */
export type Right = { resource: 'api' | 'ratelimit' | 'identity'; action: string }

const onAll = ({ resource, action }: Right) => `${resource}.*.${action}`
const onOne = ({ resource, action }: Right, id: string) => `${resource}.${id}.${action}`

/**
 * Requires the right on at least one thing, before a look-up by another id. For example, keys are looked up by key id while
 * the permission names their API. A root key without the right on anything must not learn what exists.
 * @throws ApiError INSUFFICIENT_PERMISSIONS, with the message of {@link requireOn}.
 */
export function requireOnAny(actor: Pick<Actor, 'permissions'>, right: Right): void {
  const [start, end] = [`${right.resource}.`, `.${right.action}`]
  for (const held of actor.permissions)
    if (
      held === '*' ||
      (held.startsWith(start) && held.endsWith(end) && held.length > start.length + end.length)
    )
      return
  requireOn(actor, right, null)
}

/**
 * Requires the right on one thing, once its id is known.
 * @param id Null = it does not exist. A root key with the right on other things only is refused as for an existing one.
 * @throws ApiError INSUFFICIENT_PERMISSIONS. The message names no id and does not depend on what exists.
 */
export function requireOn(actor: Pick<Actor, 'permissions'>, right: Right, id: string | null): void {
  if (holdsOn(actor, right, id)) return
  const { permissions } = actor
  throw insufficientPermissions(
    anyOf('*', onAll(right), onOne(right, id ?? ID_PLACES[right.resource])),
    permissions,
  )
}

/** As {@link requireOn}, where a refusal is no error. */
export function holdsOn(
  { permissions }: Pick<Actor, 'permissions'>,
  right: Right,
  id: string | null,
): boolean {
  if (permissions.has('*') || permissions.has(onAll(right))) return true
  return id !== null && permissions.has(onOne(right, id))
}

/** For rights whose absence the v1 API answers with UNAUTHORIZED. @throws ApiError UNAUTHORIZED */
export function requireRight(actor: Pick<Actor, 'permissions'>, query: PermissionQuery, what: string): void {
  if (!holdsPermissions(actor.permissions, query))
    throw new ApiError(
      'UNAUTHORIZED',
      `this root key may not ${what}: missing permission ${describePermissionQuery(withoutIds(query))}`,
    )
}

const NO_LIMITS: Presented['limits'] = []
const presentRootKey = (authorization: string, query: PermissionQuery | null, call: Call): Presented => ({
  rules: V1_RULES,
  key: authorization,
  apiId: null,
  permissions: query,
  cost: 1,
  limits: NO_LIMITS,
  tags: null,
  caller: call,
  isRoot: true,
  admit: requireRootKey,
})

const presentSession = (hash: string, query: PermissionQuery | null, call: Call): Presented => ({
  ...presentRootKey(hash, query, call),
  isSession: true,
})

/** The root key's own rate limit refused the call. */
export class RootKeyLimited extends ApiError {
  override name = 'RootKeyLimited'
  constructor(readonly limitName: string) {
    super('RATE_LIMITED', 'the root key is rate limited')
  }
}

/** Its resource is `key` for a key that is no root key: the v2 API answers as for an unknown one. */
function refusal(verdict: Verdict, query: PermissionQuery | null): ApiError {
  const { outcome, record, limit } = verdict
  const resource = record !== null && record.forWorkspaceId === null ? 'key' : null
  switch (outcome) {
    case 'NOT_FOUND':
      return new ApiError('UNAUTHORIZED', 'key not found')
    case 'DISABLED':
      return new ApiError('DISABLED', 'the root key is disabled', { resource })
    case 'EXPIRED':
      return new ApiError('EXPIRED', `the root key expired at ${expiryOf(record)}`, { resource })
    case 'FORBIDDEN':
      return new ApiError('FORBIDDEN', 'the root key may not be used from this IP address', { resource })
    case 'INSUFFICIENT_PERMISSIONS':
      return insufficientPermissions(query ?? '', record.permissions, resource)
    case 'RATE_LIMITED':
      return new RootKeyLimited(limit?.name ?? '')
    case 'USAGE_EXCEEDED':
      return new ApiError('USAGE_EXCEEDED', 'the root key has no credits left')
    case 'VALID':
      throw new Error('a valid root key is not a refusal')
    default:
      return outcome satisfies never
  }
}

const expiryOf = ({ expiresAt }: KeyRecord) => new Date(expiresAt ?? 0).toISOString()

function insufficientPermissions(
  query: PermissionQuery,
  held: ReadonlySet<string>,
  resource: ApiError['resource'] = null,
): ApiError {
  const needed = describePermissionQuery(withoutIds(query))
  if (typeof query === 'string')
    return new ApiError('INSUFFICIENT_PERMISSIONS', `missing permission: ${needed}`, { resource })
  const has = held.size === 0 ? 'none' : [...held].slice(0, 20).join(', ')
  return new ApiError(
    'INSUFFICIENT_PERMISSIONS',
    `missing permission: needs ${needed}; the root key has ${has}`,
    { resource },
  )
}

/** Placeholders for ids in messages, as in the reference. */
const ID_PLACES = { api: '{apiId}', ratelimit: '{namespaceId}', identity: '{identityId}' } as const

/**
 * Replaces ids with placeholders, so that a refusal does not depend on what exists. `*` and the environment `default` are
 * no ids and stay.
 */
function withoutIds(query: PermissionQuery): PermissionQuery {
  if (typeof query !== 'string')
    return 'and' in query ? { and: query.and.map(withoutIds) } : { or: query.or.map(withoutIds) }
  const [, resource, id, action] = /^(api|ratelimit|identity)\.(.+)\.([a-z_]+)$/s.exec(query) ?? []
  if (resource === undefined || id === '*' || query === 'identity.default.read_identity') return query
  return `${resource}.${ID_PLACES[resource as Right['resource']]}.${action}` // the pattern allows only these resources
}
