import { ApiError, badRequest } from '../../errors.ts'
import { COUNT_MAX, DURATION_MS_MAX } from '../../lib/bounds.ts'
import { ratelimitHeaders, secondsUntil } from '../../lib/ratelimit-headers.ts'
import type { RequestedLimit } from '../../verify/checks.ts'
import {
  describePermissionQuery,
  type PermissionQuery,
  readPermissionText,
} from '../../verify/permission-query.ts'
import { V1_RULES } from '../../verify/rules.ts'
import { type Verdict, type Verifier, verify } from '../../verify/verify.ts'
import type { DoorServices, HttpCall } from '../http/endpoint.ts'
import type { ForwardQuery } from './schema.ts'

/**
 * Answers a proxy that asks whether it may pass a request on. The status is the answer, as nginx, Caddy and Traefik read
 * nothing else: 401 no valid key, 403 the key does not allow it, 429 rate limited. On any other status the proxy decides by
 * its own configuration.
 * @throws ApiError for every answer but success.
 */
export async function forward(
  services: Verifier & Pick<DoorServices, 'config' | 'measures'>,
  call: HttpCall,
  query: ForwardQuery,
): Promise<Record<string, never>> {
  const permissions = query.permissions === undefined ? null : readPermissions(query.permissions)
  const limits = (query.ratelimit ?? []).map((text, index) =>
    readLimit(text, index, services.config.windowMsMax),
  )
  const key = presentedKey(call)
  if (key === null) throw unauthenticated(call, 'Bearer', 'API key required')

  const verdict = await verify(services, {
    rules: V1_RULES,
    key,
    apiId: query.apiId ?? null,
    permissions,
    cost: 1,
    limits,
    tags: null,
    caller: call,
  })
  services.measures.verified(verdict.outcome)
  const { record, limit } = verdict
  if (record === null) throw unauthenticated(call, 'Bearer error="invalid_token"', 'key not found')

  call.headers['X-Tollgate-Key-Id'] = record.id
  const externalId = record.identity?.externalId ?? record.ownerId
  if (externalId !== null) call.headers['X-Tollgate-External-Id'] = headerText(externalId)
  if (limit !== null) Object.assign(call.headers, ratelimitHeaders(limit, services.clock()))
  if (verdict.outcome !== 'VALID') throw refusal(verdict, { permissions, call, now: services.clock() })
  return {}
}

/** `X-API-Key` comes first: when both are sent, `Authorization` may be meant for the service behind the proxy. */
function presentedKey(call: HttpCall): string | null {
  const named = call.header('x-api-key')
  if (named !== null && named !== '') return named
  return /^Bearer +(.+)$/i.exec(call.authorization ?? '')?.[1] ?? null
}

function unauthenticated(call: HttpCall, challenge: string, message: string): ApiError {
  call.headers['WWW-Authenticate'] = challenge
  return new ApiError('UNAUTHENTICATED', message)
}

/** Checked before the key: a mistake in the proxy's configuration then shows on the first request. */
function readPermissions(text: string): PermissionQuery {
  const query = readPermissionText(text)
  if (query === null) throw badRequest('permissions: Invalid permission query')
  return query
}

/** `name`, `name,cost=2`, `name,limit=100,duration=60000`. A name may contain commas. */
function readLimit(text: string, index: number, windowMsMax: number): RequestedLimit {
  // Read from the end. One regular expression for the whole text would backtrack: quadratic time for a long list of
  // settings.
  const parts = text.split(',')
  let named = parts.length
  while (named > 1 && SETTING.test(parts[named - 1] ?? '')) named--
  const name = parts.slice(0, named).join(',')
  const values = new Map<string, number>()
  for (const setting of parts.slice(named)) {
    const [, field = '', value = ''] = SETTING.exec(setting) ?? []
    const { min, max } = BOUNDS[field as keyof typeof BOUNDS] // the pattern allows only these fields
    const number = /^\d{1,16}$/.test(value) ? Number(value) : Number.NaN
    if (!(number >= min && number <= max))
      throw badRequest(`ratelimit.${index}: ${field} must be a whole number from ${min} to ${max}`)
    if (values.has(field)) throw badRequest(`ratelimit.${index}: ${field} is given twice`)
    values.set(field, number)
  }
  if (name === '' || name.length > 256)
    throw badRequest(`ratelimit.${index}: the name must have 1 to 256 characters`)
  const [limit, durationMs] = [values.get('limit') ?? null, values.get('duration') ?? null]
  if ((limit === null) !== (durationMs === null))
    throw badRequest(`ratelimit.${index}: limit and duration must be given together`)
  if (durationMs !== null && durationMs > windowMsMax)
    throw badRequest(
      `ratelimit.${index}: duration must be at most ${windowMsMax}; only a limit of the key or its identity may be longer`,
    )
  return { name, cost: values.get('cost') ?? 1, limit, durationMs, isOptional: false }
}

const SETTING = /^(cost|limit|duration)=(.*)$/s

/** The same bounds as of `keys.verifyKey`. */
const BOUNDS = {
  cost: { min: 0, max: COUNT_MAX },
  limit: { min: 0, max: COUNT_MAX },
  duration: { min: 1, max: DURATION_MS_MAX },
}

/** Percent-encodes what a header cannot carry; `decodeURIComponent` restores it. Usual ids stay as they are. */
const headerText = (text: string) => text.replace(/[^\x21-\x24\x26-\x7e]/gu, encodeURIComponent)

/** Proxies pass the messages on, so they say only what the holder of the key may know. */
function refusal(
  { outcome, limit }: Verdict,
  { permissions, call, now }: { permissions: PermissionQuery | null; call: HttpCall; now: number },
): ApiError {
  switch (outcome) {
    case 'DISABLED':
      return new ApiError('DISABLED', 'the key is disabled')
    case 'EXPIRED':
      return new ApiError('EXPIRED', 'the key has expired')
    case 'FORBIDDEN':
      return new ApiError(
        'FORBIDDEN',
        'the key belongs to another API, or may not be used from this IP address',
      )
    case 'INSUFFICIENT_PERMISSIONS':
      return new ApiError(
        'INSUFFICIENT_PERMISSIONS',
        `missing permission: ${describePermissionQuery(permissions ?? '')}`,
      )
    case 'USAGE_EXCEEDED':
      return new ApiError('USAGE_EXCEEDED', 'the key has no credits left')
    case 'RATE_LIMITED':
      if (limit !== null)
        call.headers['Retry-After'] = String(Math.max(1, secondsUntil(limit.resetAtMs, now)))
      return new ApiError('RATE_LIMITED', `the limit ${limit?.name ?? ''} is used up`)
    case 'NOT_FOUND':
    case 'VALID':
      throw new Error(`${outcome} is no refusal`)
    default:
      return outcome satisfies never
  }
}
