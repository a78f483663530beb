import type { AnySql } from '../db/connect.ts'
import { ApiError } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import type { Charge, Decision, LimiterRouter } from '../limiter/threads/router.ts'
import type { Recent } from '../recent/recent.ts'
import type { Outcome, UsageRecorder } from '../usage/recorder.ts'
import {
  checkPermissions,
  checkState,
  type RequestedLimit,
  type SelectedLimit,
  selectLimits,
} from './checks.ts'
import { type CreditSpender, KeyLocked, type Spent } from './credits.ts'
import type { KeyRecord } from './key-record.ts'
import type { KeyLookup } from './lookup.ts'
import { isRefillDue } from './refill.ts'
import type { Rules } from './rules.ts'
import { applyRefill } from './store.ts'

/** A verification request: the key, and the conditions that it must meet. */
export type Presented = {
  rules: Rules
  key: string
  /** The API that the key must belong to. Null = any. */
  apiId: string | null
  /** A permission query as it was sent; null = no check. */
  permissions: unknown
  /** Credits to take; 0 takes nothing and returns the credits left. */
  cost: number
  limits: readonly RequestedLimit[]
  tags: readonly string[] | null
  caller: { readonly requestId: string; clientAddress(): string | null }
  /** True for root keys, which come with every call: `key` is then the value of the Authorization header. */
  isRoot?: true
  /** True for the root key of a session: `key` is then its hash, and neither limits nor credits are charged. */
  isSession?: true
  /** False: whoever asks must not learn of the key, so it is not found. Absent = true. */
  isVisible?: (record: KeyRecord) => boolean
  /** Called when the key may be used, before anything is charged. Throws to refuse the key. */
  admit?: (record: KeyRecord) => void
}

export type Verdict =
  | { outcome: 'NOT_FOUND'; record: null; limits: readonly LimitReport[]; limit: null; remaining: null }
  | {
      outcome: Outcome
      record: KeyRecord
      /** All limits that were asked. */
      limits: readonly LimitReport[]
      /** The limit that refused, or the first one. Null when none was asked. */
      limit: LimitReport | null
      /** Credits left. Null when they were not read. */
      remaining: number | null
    }

/** A limit after its answer. */
export type LimitReport = {
  /** Empty when only the request defines the limit. */
  id: string
  name: string
  limit: number
  durationMs: number
  autoApply: boolean
  passed: boolean
  remaining: number
  resetAtMs: number
}

/** Services that verification uses. */
export type Verifier = {
  readonly sql: AnySql
  readonly clock: Clock
  readonly keys: KeyLookup
  readonly limiter: LimiterRouter
  readonly credits: CreditSpender
  readonly usage: UsageRecorder
  /** Null = events are not remembered. */
  readonly recent: Recent | null
}

/**
 * Verifies API keys and root keys. Checks that cost nothing come first, those that cannot be undone last: state,
 * permissions, rate limits, credits. Credits are touched only when all limits passed; when they refuse, charges of limits
 * stay. Every outcome but NOT_FOUND is recorded. `presented.rules` says what differs between APIs.
 *
 * @returns no promise when the key is cached and neither limits nor credits are charged.
 * @throws the error of `presented.admit`; ApiError FORBIDDEN when a workspace is disabled; that of the
 *   rules for a malformed permission query, and for a limit that is neither configured nor fully given. After any other
 *   error the outcome is unknown.
 */
export function verify(verifier: Verifier, presented: Presented): Verdict | Promise<Verdict> {
  const { keys } = verifier
  const { key, caller } = presented
  const found =
    presented.isSession === true
      ? keys.findByHash(key, caller)
      : presented.isRoot === true
        ? keys.findRoot(key, caller)
        : keys.find(key, caller)
  return found instanceof Promise ? checkLater(verifier, presented, found) : check(verifier, presented, found)
}

const checkLater = async (verifier: Verifier, presented: Presented, found: Promise<KeyRecord | null>) =>
  check(verifier, presented, await found)

/** Checks without waiting. A cached root key is decided here, without a promise. */
function check(
  verifier: Verifier,
  presented: Presented,
  record: KeyRecord | null,
): Verdict | Promise<Verdict> {
  // A root key that is presented as an API key is not found, like any unknown text.
  if (record === null || (record.forWorkspaceId !== null && presented.isRoot !== true)) return NOT_FOUND
  if (presented.isVisible?.(record) === false) return NOT_FOUND
  const { rules } = presented
  const early = rules.readsPermissionsFirst ? rules.readPermissions(presented.permissions) : undefined
  if (!record.workspaceEnabled)
    throw new ApiError('FORBIDDEN', 'workspace is disabled', { resource: 'workspace' })

  const verification = { presented, record, now: verifier.clock() }
  const refused = checkState(record, presented, verification.now)
  if (refused !== null) return answer(verifier, verification, refused)
  const query = early === undefined ? rules.readPermissions(presented.permissions) : early
  const insufficient = checkPermissions(record, query)
  if (insufficient !== null) return answer(verifier, verification, insufficient)
  presented.admit?.(record)
  if (presented.isSession === true) return answer(verifier, verification, 'VALID')

  const adHocOwnerId =
    rules.countsAdHocFor === 'identity' && record.identity !== null ? record.identity.id : record.countsAs
  const limits = selectLimits(record, presented.limits, adHocOwnerId)
  if ('missing' in limits) throw unknownLimit(limits.missing, record, rules)
  if (limits.selected.length === 0 && !record.hasCredits) return answer(verifier, verification, 'VALID')
  return charge(verifier, verification, limits.selected)
}

/** Charges rate limits, then credits. */
async function charge(
  verifier: Verifier,
  verification: Verification,
  selected: readonly SelectedLimit[],
): Promise<Verdict> {
  const { record, presented } = verification
  const limits =
    selected.length === 0 ? NO_LIMITS : await countLimits(verifier.limiter, record, selected, presented.rules)
  if (limits.some(({ passed }) => !passed)) return answer(verifier, verification, 'RATE_LIMITED', limits)
  if (!record.hasCredits) return answer(verifier, verification, 'VALID', limits)

  const spent = await spendRefilled(verifier, verification)
  if (spent === null) return NOT_FOUND // deleted meanwhile
  record.creditsSeen = spent.remaining
  return answer(verifier, verification, spent.passed ? 'VALID' : 'USAGE_EXCEEDED', limits, spent.remaining)
}

type Verification = { presented: Presented; record: KeyRecord; now: number }

/** Records the outcome. Every outcome of an existing key is recorded. */
function answer(
  verifier: Verifier,
  { presented, record, now }: Verification,
  outcome: Outcome,
  limits = NO_LIMITS,
  remaining: number | null = null,
): Verdict {
  const { workspaceId, keyspaceId, id: keyId, identity } = record
  verifier.usage.recordVerification({
    workspaceId,
    keyspaceId,
    keyId,
    identityId: identity === null ? null : identity.id,
    outcome,
    tags: presented.tags,
    atMs: now,
    counterRef: record,
  })
  const limit = limits.find(({ passed }) => !passed) ?? limits[0] ?? null
  if (verifier.recent !== null && presented.isRoot !== true)
    verifier.recent.verified(record, presented, { outcome, limit, remaining }, now)
  return { outcome, record, limits, limit, remaining }
}

const NO_LIMITS: readonly LimitReport[] = []
const NOT_FOUND: Verdict = {
  outcome: 'NOT_FOUND',
  record: null,
  limits: NO_LIMITS,
  limit: null,
  remaining: null,
}

/**
 * All at once, in one message to each shard. The counter's name does not contain the limit's value, so changing that keeps
 * the count.
 */
async function countLimits(
  limiter: LimiterRouter,
  { workspaceId }: KeyRecord,
  selected: readonly SelectedLimit[],
  { chargesTogether }: Rules,
): Promise<LimitReport[]> {
  const [only] = selected
  if (only !== undefined && selected.length === 1) {
    const pending = limiter.submit(chargeOf(workspaceId, only))
    let decision: Decision | null = null
    while (decision === null) {
      await pending.answered
      decision = pending.decision
    }
    return [report(only, decision)]
  }
  const charges = selected.map((limit) => chargeOf(workspaceId, limit))
  const decisions = await (chargesTogether ? limiter.chargeTogether(charges) : limiter.submitAll(charges))
  return selected.map((limit, i) => report(limit, decisions[i] as Decision)) // one for each limit
}

/**
 * All limits of a key as they stand, also those that only count when a request names them: takes of cost 0, which change
 * nothing and are counted nowhere.
 */
export async function lookAtLimits(
  limiter: LimiterRouter,
  { workspaceId, limits }: Pick<KeyRecord, 'workspaceId' | 'limits'>,
): Promise<LimitReport[]> {
  if (limits.length === 0) return []
  const looks = limits.map((limit) => ({ ...limit, cost: 0 }))
  const decisions = await limiter.submitAll(looks.map((look) => chargeOf(workspaceId, look)))
  return looks.map((look, i) => report(look, decisions[i] as Decision)) // one for each limit
}

const chargeOf = (
  workspaceId: string,
  { name, limit, durationMs, cost, ownerId }: SelectedLimit,
): Charge => ({
  counter: `${ownerId}\n${durationMs}\n${name}`,
  workspaceId,
  limit,
  durationMs,
  cost,
})

const report = (
  { id, name, limit, durationMs, autoApply }: SelectedLimit,
  { passed, used, resetAtMs }: Decision,
): LimitReport => ({
  id,
  name,
  limit,
  durationMs,
  autoApply,
  passed,
  remaining: Math.max(0, limit - used),
  resetAtMs,
})

function unknownLimit(name: string, record: KeyRecord, rules: Rules): ApiError {
  const owner =
    record.identity === null
      ? 'it has no identity'
      : `identity ${record.identity.id} (externalId ${record.identity.externalId})`
  return new ApiError(
    rules.unknownLimit,
    `ratelimit "${name}" was requested without limit and duration, but neither key ${record.id} nor its identity has a limit of that name: ${owner}`,
  )
}

/**
 * Spends credits after adding a refill that is due. On a locked key only `spend` waits, beside other keys' calls. If it
 * then refuses for lack of the refill, both are tried again.
 * @returns null when the key is gone.
 * @throws KeyLocked when the key is locked at each attempt to refill it; else as {@link CreditSpender.spend}.
 */
async function spendRefilled(
  verifier: Verifier,
  { presented, record, now }: Verification,
): Promise<Spent | null> {
  for (let attempt = 1; attempt <= REFILL_ATTEMPTS_MAX; attempt++) {
    const isRefilled = await refillWhenDue(verifier, record, now)
    const spent = await verifier.credits.spend(record.id, presented.cost)
    if (isRefilled || spent === null || spent.passed) return spent
  }
  throw new KeyLocked(record.id)
}
const REFILL_ATTEMPTS_MAX = 3

/**
 * Adds a due refill without waiting for the schedule.
 * @returns false when a refill is due but the key is locked.
 */
async function refillWhenDue(verifier: Verifier, record: KeyRecord, now: number): Promise<boolean> {
  const refill = record.refill
  if (refill === null || !isRefillDue(refill, now)) return true
  const options = { keyId: record.id, amount: refill.amount, lastAt: refill.lastAt, now }
  const isSettled = await applyRefill(verifier.sql, options)
  // Even if another server added the refill, the cached record says that it is due.
  verifier.keys.forget(record.id)
  return isSettled
}
