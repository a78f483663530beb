import { notFound } from '../../errors.ts'
import { isAddressListed } from '../../lib/address.ts'
import type { Outcome } from '../../usage/recorder.ts'
import { checkPermissions } from '../../verify/checks.ts'
import type { KeyRecord } from '../../verify/key-record.ts'
import type { PermissionQuery } from '../../verify/permission-query.ts'
import { describePermissionQuery } from '../../verify/permission-query.ts'
import { isRefillDue, nextDueAt } from '../../verify/refill.ts'
import { type LimitReport, lookAtLimits } from '../../verify/verify.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { findKeyHash } from './search/store.ts'
import type { KeyRow } from './store.ts'

/** A verification that might come. What is null is not known, and checks of it depend on the request. */
export type Imagined = {
  apiId: string | null
  address: string | null
  permissions: PermissionQuery | null
}

export type Check = {
  check: 'workspace' | 'enabled' | 'api' | 'expiry' | 'address' | 'permissions' | 'ratelimit' | 'credits'
  /** `depends`: on what a request sends. */
  verdict: 'passes' | 'refuses' | 'depends'
  /** The outcome that a refusal has; null = it does not refuse. */
  code: Exclude<Outcome, 'VALID'> | null
  fact: string
  /** Of `ratelimit`. */
  limit?: LimitReport & { owner: 'key' | 'identity' }
  /** Of `credits`, when they are counted. */
  credits?: {
    remaining: number
    /** `dueAt`: when it is added next, Unix ms; not later than now = with the next verification. */
    refill?: { amount: number; dueAt: number }
  }
}

/**
 * Every check of a verification of cost 1, in its order, as it stands now: with the record that verification uses, and the
 * windows of the limits. Takes and counts nothing.
 * @param key From `getKey`.
 * @returns `code` = how the verification would end, if what depends on the request passes.
 * @throws ApiError NOT_FOUND when the key was deleted meanwhile, or is being erased.
 */
export async function explainKey(
  services: Pick<Services, 'sql' | 'keys' | 'limiter' | 'clock'>,
  { workspaceId }: Pick<Actor, 'workspaceId'>,
  key: Pick<KeyRow, 'id' | 'remaining' | 'creditsOf'>,
  imagined: Imagined,
): Promise<{ code: Outcome; checks: Check[] }> {
  const hash = await findKeyHash(services.sql, workspaceId, key.id)
  const record = hash === null ? null : await services.keys.findByHash(hash)
  if (record === null) throw notFound('key', key.id)
  const now = services.clock()
  const limits = await lookAtLimits(services.limiter, record)
  const checks = [
    workspaceCheck(record),
    enabledCheck(record),
    apiCheck(record, imagined),
    expiryCheck(record, now),
    addressCheck(record, imagined),
    permissionsCheck(record, imagined),
    ...limits.map((limit) => limitCheck(record, limit)),
    creditsCheck(record, key, now),
  ]
  const refusal = checks.find(({ code }) => code !== null)?.code ?? 'VALID'
  return { code: refusal, checks }
}

const passes = (check: Check['check'], fact: string): Check => ({
  check,
  verdict: 'passes',
  code: null,
  fact,
})
const refuses = (check: Check['check'], code: Exclude<Outcome, 'VALID'>, fact: string): Check => ({
  check,
  verdict: 'refuses',
  code,
  fact,
})
const depends = (check: Check['check'], fact: string): Check => ({
  check,
  verdict: 'depends',
  code: null,
  fact,
})

const workspaceCheck = ({ workspaceEnabled }: KeyRecord): Check =>
  workspaceEnabled
    ? passes('workspace', 'the workspace is enabled')
    : refuses('workspace', 'FORBIDDEN', 'the workspace is disabled')

const enabledCheck = ({ enabled }: KeyRecord): Check =>
  enabled ? passes('enabled', 'the key is enabled') : refuses('enabled', 'DISABLED', 'the key is disabled')

function apiCheck({ apiId }: KeyRecord, imagined: Imagined): Check {
  if (imagined.apiId === null) return passes('api', `the key belongs to API ${apiId}`)
  return imagined.apiId === apiId
    ? passes('api', `the key belongs to the API that is asked for, ${apiId}`)
    : refuses('api', 'FORBIDDEN', `the key belongs to API ${apiId}, not to ${imagined.apiId}`)
}

function expiryCheck({ expiresAt }: KeyRecord, now: number): Check {
  if (expiresAt === null) return passes('expiry', 'the key never expires')
  const at = new Date(expiresAt).toISOString()
  return expiresAt < now
    ? refuses('expiry', 'EXPIRED', `the key expired at ${at}`)
    : passes('expiry', `the key expires at ${at}`)
}

function addressCheck({ ipWhitelist }: KeyRecord, { address }: Imagined): Check {
  if (ipWhitelist === null) return passes('address', 'any address may use the key')
  const count = `${ipWhitelist.length} ${ipWhitelist.length === 1 ? 'entry' : 'entries'}`
  if (address === null)
    return depends('address', `only addresses of the API’s allow list may use the key: ${count}`)
  return isAddressListed(address, ipWhitelist)
    ? passes('address', `${address} is in the API’s allow list`)
    : refuses('address', 'FORBIDDEN', `${address} is not in the API’s allow list: ${count}`)
}

function permissionsCheck(record: KeyRecord, { permissions }: Imagined): Check {
  const { size } = record.permissions
  const has = `the key has ${size} ${size === 1 ? 'permission' : 'permissions'}`
  if (permissions === null) return depends('permissions', `${has}; a request may ask for some`)
  const needed = describePermissionQuery(permissions)
  return checkPermissions(record, permissions) === null
    ? passes('permissions', `the key has what is asked for: ${needed}`)
    : refuses('permissions', 'INSUFFICIENT_PERMISSIONS', `the key lacks what is asked for: ${needed}`)
}

function limitCheck(record: KeyRecord, report: LimitReport): Check {
  const { name, limit, remaining, resetAtMs, autoApply } = report
  const configured = record.limits.find(({ id }) => id === report.id)
  const owner = configured?.ownerId === record.countsAs ? 'key' : 'identity'
  const counted = `limit ${name}: ${limit - remaining} of ${limit} used`
  const check = !autoApply
    ? depends('ratelimit', `${counted}; it counts only when a request names it`)
    : remaining > 0
      ? passes('ratelimit', counted)
      : refuses(
          'ratelimit',
          'RATE_LIMITED',
          `${counted}; it opens again at ${new Date(resetAtMs).toISOString()}`,
        )
  return { ...check, limit: { ...report, owner } }
}

function creditsCheck(
  { refill, hasCredits }: KeyRecord,
  { remaining, creditsOf }: Pick<KeyRow, 'remaining' | 'creditsOf'>,
  now: number,
): Check {
  if (remaining === null || !hasCredits) return passes('credits', 'credits are not counted')
  const credits = {
    remaining,
    ...(refill !== null && {
      refill: {
        amount: refill.amount,
        dueAt: isRefillDue(refill, now) ? now : nextDueAt(refill.day, now),
      },
    }),
  }
  const left = `${remaining} ${remaining === 1 ? 'credit is' : 'credits are'} left`
  const of = creditsOf === null ? '' : `, of the successor ${creditsOf}`
  if (remaining > 0) return { ...passes('credits', left + of), credits }
  return refill !== null && isRefillDue(refill, now)
    ? { ...passes('credits', `${left}; the next verification adds ${refill.amount}`), credits }
    : { ...refuses('credits', 'USAGE_EXCEEDED', left + of), credits }
}
