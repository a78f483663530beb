import { badRequest } from '../../../errors.ts'
import { headerText } from '../../../lib/header-text.ts'
import { ratelimitHeaders } from '../../../lib/ratelimit-headers.ts'
import type { RequestedLimit } from '../../../verify/checks.ts'
import { V1_RULES } from '../../../verify/rules.ts'
import { type Verifier, verify } from '../../../verify/verify.ts'
import type { DoorServices, HttpCall } from '../../http/endpoint.ts'
import type { VerifyKeyBody, VerifyKeyReply } from './schema.ts'

/** Verifies a key. Needs no root key: the holder of a key may ask. */
export async function verifyKey(
  services: Verifier & Pick<DoorServices, 'config' | 'measures'>,
  call: HttpCall,
  body: VerifyKeyBody,
): Promise<VerifyKeyReply> {
  const { outcome, record, limit, remaining } = await verify(services, {
    rules: V1_RULES,
    key: body.key,
    apiId: body.apiId === undefined || body.apiId === '' ? null : body.apiId,
    permissions: body.authorization?.permissions,
    cost: body.remaining?.cost ?? 1,
    limits: requestedLimits(body, services.config.windowMsMax),
    tags: body.tags ?? null,
    caller: call,
  })
  services.measures.verified(outcome)
  const { requestId } = call
  if (record === null) return { valid: false, code: 'NOT_FOUND', requestId }
  if (limit !== null && services.config.sendsRatelimitHeaders)
    Object.assign(call.headers, ratelimitHeaders(limit, services.clock()))
  if (outcome === 'RATE_LIMITED' && limit !== null)
    call.headers['Unkey-Ratelimit-Triggered'] = headerText(limit.name)

  const reply: VerifyKeyReply = {
    valid: outcome === 'VALID',
    code: outcome,
    requestId,
    keyId: record.id,
    enabled: record.enabled,
    permissions: [...record.permissions],
    roles: record.roles,
  }
  if (record.name !== null) reply.name = record.name
  const ownerId = record.identity?.externalId ?? record.ownerId
  if (ownerId !== null) reply.ownerId = ownerId
  if (record.meta !== null) reply.meta = record.meta
  if (record.environment !== null) reply.environment = record.environment
  if (record.expiresAt !== null) reply.expires = record.expiresAt
  if (record.identity !== null) reply.identity = record.identity
  if (limit !== null)
    reply.ratelimit = { limit: limit.limit, remaining: limit.remaining, reset: limit.resetAtMs }
  if (remaining !== null) reply.remaining = remaining
  return reply
}

/** @throws ApiError BAD_REQUEST for a limit defined by the request alone whose window is longer than `windowMsMax`. */
function requestedLimits({ ratelimits, ratelimit }: VerifyKeyBody, windowMsMax: number): RequestedLimit[] {
  if (ratelimits === undefined && ratelimit === undefined) return NONE
  for (const [i, { limit, duration = 0 }] of (ratelimits ?? []).entries())
    if (limit !== undefined && duration > windowMsMax)
      throw badRequest(
        `ratelimits.${i}.duration: Number must be less than or equal to ${windowMsMax}; only a limit of the key or its identity may be longer`,
      )
  const requested = (ratelimits ?? []).map(({ name, cost = 1, limit, duration }) => ({
    name,
    cost,
    limit: limit ?? null,
    durationMs: duration ?? null,
    isOptional: false,
  }))
  // The old single field means the key's limit `default`; it is ignored on a key without one.
  if (ratelimit?.cost !== undefined && !requested.some(({ name }) => name === 'default'))
    requested.push({ name: 'default', cost: ratelimit.cost, limit: null, durationMs: null, isOptional: true })
  return requested
}

const NONE: RequestedLimit[] = []
