import { type Actor, authenticate, holdsOn, type Right } from '../../../api/root-keys/authorize.ts'
import type { RequestedLimit } from '../../../verify/checks.ts'
import type { ConfiguredLimit, KeyRecord } from '../../../verify/key-record.ts'
import { V2_RULES } from '../../../verify/rules.ts'
import { type LimitReport, type Verdict, verify } from '../../../verify/verify.ts'
import type { DoorServices, Endpoint, HttpCall } from '../../http/endpoint.ts'
import { post } from '../endpoint.ts'
import { InvalidRequest } from '../errors.ts'
import { limitObject } from '../limits.ts'
import { VerifyKeyBody, VerifyKeyData } from './verify-key-schema.ts'

export const verifyKeyEndpoint: Endpoint = post(
  '/v2/keys.verifyKey',
  {
    input: VerifyKeyBody,
    reply: VerifyKeyData,
    summary: 'Verify a key',
    isFastPath: true,
    errors: ['PRECONDITION_FAILED'],
  },
  verifyKey,
)

/** Verifies a key of the APIs that the root key may verify keys of. Others are not found. */
async function verifyKey(
  services: DoorServices,
  call: HttpCall,
  body: VerifyKeyBody,
): Promise<VerifyKeyData> {
  const limits = requestedLimits(body, services.config.windowMsMax)
  const authenticated = authenticate(services, call)
  const actor = authenticated instanceof Promise ? await authenticated : authenticated
  const verdict = await verify(services, {
    rules: V2_RULES,
    key: body.key,
    apiId: null,
    permissions: body.permissions ?? null,
    cost: body.credits?.cost ?? 1,
    limits,
    tags: body.tags ?? null,
    caller: call,
    isVisible: (record) => mayVerify(actor, record),
  })
  services.measures.verified(verdict.outcome)
  return verdict.record === null ? NOT_FOUND : dataOf(verdict, verdict.record)
}

const NOT_FOUND: VerifyKeyData = { valid: false, code: 'NOT_FOUND' }
const VERIFY_KEY: Right = { resource: 'api', action: 'verify_key' }

const mayVerify = (actor: Actor, { workspaceId, apiId }: KeyRecord): boolean =>
  workspaceId === actor.workspaceId && holdsOn(actor, VERIFY_KEY, apiId)

/** Members without a value are absent. */
function dataOf({ outcome, limits, remaining }: Verdict, record: KeyRecord): VerifyKeyData {
  const data: VerifyKeyData = {
    valid: outcome === 'VALID',
    code: outcome,
    keyId: record.id,
    enabled: record.enabled,
  }
  const { name, meta, expiresAt, permissions, roles, identity } = record
  const credits = remaining ?? record.creditsSeen
  if (name !== null && name !== '') data.name = name
  if (meta !== null && hasFields(meta)) data.meta = meta
  if (expiresAt !== null && expiresAt !== 0) data.expires = expiresAt
  if (credits !== null) data.credits = credits
  if (permissions.size > 0) data.permissions = [...permissions]
  if (roles.length > 0) data.roles = roles
  if (identity !== null) data.identity = identityOf(identity, record.identityLimits)
  if (limits.length > 0) data.ratelimits = limits.map(checkedLimit)
  return data
}

function hasFields(meta: Record<string, unknown>): boolean {
  for (const _ in meta) return true
  return false
}

function identityOf(
  { id, externalId, meta }: NonNullable<KeyRecord['identity']>,
  limits: readonly ConfiguredLimit[],
): NonNullable<VerifyKeyData['identity']> {
  const identity: NonNullable<VerifyKeyData['identity']> = { id, externalId }
  if (hasFields(meta)) identity.meta = meta
  if (limits.length > 0) identity.ratelimits = limits.map(limitObject)
  return identity
}

const checkedLimit = ({
  id,
  name,
  limit,
  durationMs,
  autoApply,
  passed,
  remaining,
  resetAtMs,
}: LimitReport) => ({
  exceeded: !passed,
  id,
  name,
  limit,
  duration: durationMs,
  reset: resetAtMs,
  remaining: passed ? remaining : 0,
  autoApply,
})

/** @throws InvalidRequest for a limit defined by the request alone whose window has no length, or is longer than `windowMsMax`. */
function requestedLimits({ ratelimits }: VerifyKeyBody, windowMsMax: number): RequestedLimit[] {
  if (ratelimits === undefined || ratelimits.length === 0) return NONE
  return ratelimits.map(({ name, cost = 1, limit, duration }) => {
    if (limit !== undefined && duration !== undefined) {
      if (duration < 1) throw outOfBounds('minimum', duration, 1)
      if (duration > windowMsMax) throw outOfBounds('maximum', duration, windowMsMax)
    }
    return { name, cost, limit: limit ?? null, durationMs: duration ?? null, isOptional: false }
  })
}

const NONE: RequestedLimit[] = []

/** Of the duration of a limit that only the request defines; a configured limit may have longer windows. */
const outOfBounds = (keyword: 'minimum' | 'maximum', got: number, want: number) =>
  new InvalidRequest("POST request body for '/v2/keys.verifyKey' failed to validate schema", [
    {
      message: `${keyword}: got ${got}, want ${want}`,
      location: `/properties/ratelimits/items/properties/duration/${keyword}`,
    },
  ])
