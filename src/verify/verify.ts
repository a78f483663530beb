import type { AnySql } from '../db/connect.ts'
import { ApiError, badRequest } from '../errors.ts'
import type { Clock } from '../lib/clock.ts'
import type { LimiterRouter, Take, Taken } from '../limiter/threads/router.ts'
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

/** A key someone presents, and what it is asked to be good for. */
export type Presented = {
  key: string
  /** Null = a key of any API. */
  apiId: string | null
  /** Not yet checked: a malformed query is only refused once the key's own state allows its use. Null = no check. */
  permissions: unknown
  /** Credits to take; 0 only looks. */
  cost: number
  limits: readonly RequestedLimit[]
  tags: readonly string[] | null
  caller: { clientAddress(): string | null }
  /** It comes as a root key, with every call: `key` is the value of the Authorization header. */
  isRoot?: true
  /** Asked when the key may be used, before anything is counted or taken; throws for a key that will not do here. */
  admit?: (record: KeyRecord) => void
}

export type Verdict =
  | { outcome: 'NOT_FOUND'; record: null; limit: null; remaining: null }
  | {
      outcome: Outcome
      record: KeyRecord
      /** The limit that refused, else the first counted; null when none was. */
      limit: { name: string; limit: number; durationMs: number; remaining: number; resetAtMs: number } | null
      /** Credits left, where they were looked at. */
      remaining: number | null
    }

/** The parts of a thread that verify keys. */
export type Verifier = {
  readonly sql: AnySql
  readonly clock: Clock
  readonly keys: KeyLookup
  readonly limiter: LimiterRouter
  readonly credits: CreditSpender
  readonly usage: UsageRecorder
}

/**
 * The order of checks, once, for API keys and root keys. What costs nothing comes first, what cannot be undone last:
 * state, permissions, rate limits, credits. A limit that refuses does not undo the others' charge, and credits are only
 * touched when every limit passed. Every outcome but NOT_FOUND is recorded.
 *
 * @returns at once when nothing has to be waited for: the key is cached and neither limits nor credits are taken.
 * @throws what `presented.admit` throws; ApiError FORBIDDEN when a workspace is disabled; BAD_REQUEST for a malformed permission query or a limit that
 *   is neither configured nor fully given. Any other error means that the answer is not known.
 */
export function verify(verifier: Verifier, presented: Presented): Verdict | Promise<Verdict> {
  const { keys } = verifier
  const { key, caller } = presented
  const found = presented.isRoot === true ? keys.findRoot(key, caller) : keys.find(key, caller)
  return found instanceof Promise ? checkLater(verifier, presented, found) : check(verifier, presented, found)
}

const checkLater = async (verifier: Verifier, presented: Presented, found: Promise<KeyRecord | null>) =>
  check(verifier, presented, await found)

/** What needs no waiting: a warm root key is decided here, without a promise. */
function check(
  verifier: Verifier,
  presented: Presented,
  record: KeyRecord | null,
): Verdict | Promise<Verdict> {
  // Root keys are keys of nobody's product: whoever asks for one is told what is told of any text.
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
  return take(verifier, verification, limits.selected)
}

/** What counts: rate limits, then credits. */
async function take(
  verifier: Verifier,
  verification: Verification,
  selected: readonly SelectedLimit[],
): Promise<Verdict> {
  const { record } = verification
  const counted =
    selected.length === 0 ? [] : await countLimits(verifier.limiter, record.workspaceId, selected)
  const denying = counted.find(({ taken }) => !taken.passed)
  if (denying !== undefined) return answer(verifier, verification, 'RATE_LIMITED', denying)
  const reported = counted[0] ?? null
  if (!record.hasCredits) return answer(verifier, verification, 'VALID', reported)

  const spent = await spendRefilled(verifier, verification)
  if (spent === null) return NOT_FOUND // deleted while we looked
  return answer(verifier, verification, spent.passed ? 'VALID' : 'USAGE_EXCEEDED', reported, spent.remaining)
}

type Verification = { presented: Presented; record: KeyRecord; now: number }

/** Every outcome of a key that exists is recorded. */
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
    slot: record,
  })
  return { outcome, record, limit: limit === null ? null : report(limit), remaining }
}

const NOT_FOUND: Verdict = { outcome: 'NOT_FOUND', record: null, limit: null, remaining: null }

/** Absent, null, the empty text, 0 and false all mean: no check. */
function readPermissionQuery(value: unknown): PermissionQuery | null {
  if (!value) return null
  const query = parsePermissionQuery(value)
  if (query === null) throw badRequest('authorization.permissions: Invalid permission query')
  return query
}

type CountedLimit = { selected: SelectedLimit; taken: Taken }

/** All at once: they join one message to each shard. The limit's value is not part of a counter's name, so changing it keeps the count. */
async function countLimits(
  limiter: LimiterRouter,
  workspaceId: string,
  selected: readonly SelectedLimit[],
): Promise<CountedLimit[]> {
  const [only] = selected
  if (only !== undefined && selected.length === 1) {
    const asked = limiter.ask(takeOf(workspaceId, only))
    await asked.answered
    return [{ selected: only, taken: asked.taken }]
  }
  const taken = await limiter.takeAll(selected.map((limit) => takeOf(workspaceId, limit)))
  return selected.map((limit, i) => ({ selected: limit, taken: taken[i] as Taken })) // one for each
}

const takeOf = (workspaceId: string, { name, limit, durationMs, cost, ownerId }: SelectedLimit): Take => ({
  counter: `${ownerId}\n${durationMs}\n${name}`,
  workspaceId,
  limit,
  durationMs,
  cost,
})

const report = ({ selected, taken }: CountedLimit) => ({
  name: selected.name,
  limit: selected.limit,
  durationMs: selected.durationMs,
  remaining: Math.max(0, selected.limit - taken.used),
  resetAtMs: taken.resetAtMs,
})

function unknownLimit(name: string, record: KeyRecord): ApiError {
  const owner =
    record.identity === null
      ? 'it has no identity'
      : `identity ${record.identity.id} (externalId ${record.identity.externalId})`
  return badRequest(
    `ratelimit "${name}" was requested without limit and duration, but neither key ${record.id} nor its identity has one of that name: ${owner}`,
  )
}

/**
 * Credits are taken after the refill that is due. Where the key is locked, only the spender waits, as it does so beside
 * other keys' calls; what it then refuses for want of the refill is tried again.
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
 * The schedule refills keys nobody verifies; a verification does not wait for it.
 * @returns false when a refill is due but the key is locked.
 */
async function refillWhenDue(verifier: Verifier, record: KeyRecord, now: number): Promise<boolean> {
  const refill = record.refill
  if (refill === null || !isRefillDue(refill, now)) return true
  const options = { keyId: record.id, amount: refill.amount, lastAt: refill.lastAt, now }
  const isSettled = await applyRefill(verifier.sql, options)
  // Whoever added it, what is cached says it is still due.
  verifier.keys.forget(record.id)
  return isSettled
}
