import type { AnySql } from '../db/connect.ts'
import { ApiError, badRequest } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import type { Charge, Decision, LimiterRouter } from '../limiter/threads/router.ts'
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
import { type PermissionQuery, parsePermissionQuery } from './permission-query.ts'
import { isRefillDue } from './refill.ts'
import { applyRefill } from './store.ts'

/** A verification request: the key, and the conditions that it must meet. */
export type Presented = {
  key: string
  /** The API that the key must belong to. Null = any. */
  apiId: string | null
  /**
   * A permission query, not yet parsed: a malformed one is refused only after the key's state was checked. Null = no check.
   */
  permissions: unknown
  /** Credits to take; 0 takes nothing and returns the credits left. */
  cost: number
  limits: readonly RequestedLimit[]
  tags: readonly string[] | null
  caller: { clientAddress(): string | null }
  /** True for root keys, which come with every call: `key` is then the value of the Authorization header. */
  isRoot?: true
  /** Called when the key may be used, before anything is charged. Throws to refuse the key. */
  admit?: (record: KeyRecord) => void
}

export type Verdict =
  | { outcome: 'NOT_FOUND'; record: null; limit: null; remaining: null }
  | {
      outcome: Outcome
      record: KeyRecord
      /** The limit that refused, or the first one counted. Null when none was counted. */
      limit: { name: string; limit: number; durationMs: number; remaining: number; resetAtMs: number } | null
      /** Credits left. Null when they were not read. */
      remaining: number | null
    }

/** Services that verification uses. */
export type Verifier = {
  readonly sql: AnySql
  readonly clock: Clock
  readonly keys: KeyLookup
  readonly limiter: LimiterRouter
  readonly credits: CreditSpender
  readonly usage: UsageRecorder
}

/**
 * Verifies API keys and root keys. Checks that cost nothing come first, those that cannot be undone last: state,
 * permissions, rate limits, credits. When a limit refuses, charges of other limits stay. Credits are touched only when all
 * limits passed. Every outcome but NOT_FOUND is recorded.
 *
 * @returns no promise when the key is cached and neither limits nor credits are charged.
 * @throws the error of `presented.admit`; ApiError FORBIDDEN when a workspace is disabled; BAD_REQUEST for a malformed
 *   permission query, or a limit that is neither configured nor fully given. After any other error the outcome is unknown.
 */
export function verify(verifier: Verifier, presented: Presented): Verdict | Promise<Verdict> {
  const { keys } = verifier
  const { key, caller } = presented
  const found = presented.isRoot === true ? keys.findRoot(key, caller) : keys.find(key, caller)
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
  if (!record.workspaceEnabled) throw new ApiError('FORBIDDEN', 'workspace is disabled')

  const verification = { presented, record, now: verifier.clock() }
  const refused = checkState(record, presented, verification.now)
  if (refused !== null) return answer(verifier, verification, refused)
  const insufficient = checkPermissions(record, readPermissionQuery(presented.permissions))
  if (insufficient !== null) return answer(verifier, verification, insufficient)
  presented.admit?.(record)

  const limits = selectLimits(record, presented.limits)
  if ('missing' in limits) throw unknownLimit(limits.missing, record)
  if (limits.selected.length === 0 && !record.hasCredits) return answer(verifier, verification, 'VALID')
  return charge(verifier, verification, limits.selected)
}

/** Charges rate limits, then credits. */
async function charge(
  verifier: Verifier,
  verification: Verification,
  selected: readonly SelectedLimit[],
): Promise<Verdict> {
  const { record } = verification
  const counted =
    selected.length === 0 ? [] : await countLimits(verifier.limiter, record.workspaceId, selected)
  const denying = counted.find(({ decision }) => !decision.passed)
  if (denying !== undefined) return answer(verifier, verification, 'RATE_LIMITED', denying)
  const reported = counted[0] ?? null
  if (!record.hasCredits) return answer(verifier, verification, 'VALID', reported)

  const spent = await spendRefilled(verifier, verification)
  if (spent === null) return NOT_FOUND // deleted meanwhile
  return answer(verifier, verification, spent.passed ? 'VALID' : 'USAGE_EXCEEDED', reported, spent.remaining)
}

type Verification = { presented: Presented; record: KeyRecord; now: number }

/** Records the outcome. Every outcome of an existing key is recorded. */
function answer(
  verifier: Verifier,
  { presented, record, now }: Verification,
  outcome: Outcome,
  limit: CountedLimit | null = null,
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
  return { outcome, record, limit: limit === null ? null : report(limit), remaining }
}

const NOT_FOUND: Verdict = { outcome: 'NOT_FOUND', record: null, limit: null, remaining: null }

/** Absent, null, the empty text, 0 and false mean: no check. */
function readPermissionQuery(value: unknown): PermissionQuery | null {
  if (!value) return null
  const query = parsePermissionQuery(value)
  if (query === null) throw badRequest('authorization.permissions: Invalid permission query')
  return query
}

type CountedLimit = { selected: SelectedLimit; decision: Decision }

/**
 * All at once, in one message to each shard. The counter's name does not contain the limit's value, so changing that keeps
 * the count.
 */
async function countLimits(
  limiter: LimiterRouter,
  workspaceId: string,
  selected: readonly SelectedLimit[],
): Promise<CountedLimit[]> {
  const [only] = selected
  if (only !== undefined && selected.length === 1) {
    const pending = limiter.submit(chargeOf(workspaceId, only))
    await pending.answered
    return [{ selected: only, decision: pending.decision }]
  }
  const decisions = await limiter.submitAll(selected.map((limit) => chargeOf(workspaceId, limit)))
  return selected.map((limit, i) => ({ selected: limit, decision: decisions[i] as Decision })) // one for each limit
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

const report = ({ selected, decision }: CountedLimit) => ({
  name: selected.name,
  limit: selected.limit,
  durationMs: selected.durationMs,
  remaining: Math.max(0, selected.limit - decision.used),
  resetAtMs: decision.resetAtMs,
})

function unknownLimit(name: string, record: KeyRecord): ApiError {
  const owner =
    record.identity === null
      ? 'it has no identity'
      : `identity ${record.identity.id} (externalId ${record.identity.externalId})`
  return badRequest(
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
