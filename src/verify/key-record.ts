import type { CounterRef } from '../usage/recorder.ts'

/**
 * A key as verification needs it. Read once from the database, then shared, and unchanged but for `changesSeen`,
 * `creditsSeen` and its counter reference.
 */
export type KeyRecord = CounterRef & {
  id: string
  /** Limits of the key alone count for this id: its own, or of a successor the first key's, so that windows go on. */
  countsAs: string
  /** SHA-256 of the key's text, base64. */
  hash: string
  workspaceId: string
  keyspaceId: string
  apiId: string
  /** The workspace that a root key acts for. Null = an ordinary key. */
  forWorkspaceId: string | null
  isOperator: boolean
  /** True when both the owning workspace and the one acted for are enabled. */
  workspaceEnabled: boolean
  name: string | null
  ownerId: string | null
  meta: Record<string, unknown> | null
  environment: string | null
  enabled: boolean
  /** Unix milliseconds; null = never. */
  expiresAt: number | null
  /** Addresses and CIDR ranges that may use the key; null = any. */
  ipWhitelist: string[] | null
  /** Whether the key has credits. Their number is never cached: the database decides each spend. */
  hasCredits: boolean
  /** Credits left when this thread last saw them, for answers to calls that read none; null = not counted. */
  creditsSeen: number | null
  refill: Refill | null
  identity: { id: string; externalId: string; meta: Record<string, unknown> } | null
  /** Limits that count, of the key and of its identity, with distinct names: the key's wins over one of its identity. */
  limits: ConfiguredLimit[]
  /** All limits of the identity, also those that do not count because the key has one of that name. */
  identityLimits: ConfiguredLimit[]
  roles: string[]
  /** Slugs held directly and through roles. On a root key, its rights. */
  permissions: ReadonlySet<string>
  /** Of the cache's, see `records/owner-changes.ts`. */
  changesSeen: number
}

export type ConfiguredLimit = {
  id: string
  name: string
  limit: number
  durationMs: number
  /** True: every verification counts it. False: only those that name it. */
  autoApply: boolean
  /** Id of the identity that the limit counts for, or `countsAs` of the key. */
  ownerId: string
}

/** Whether a refill adds the amount or sets the credits to it is decided by the database, when it refills. */
export type Refill = {
  /** Credits of one refill. */
  amount: number
  /** 1 to 31, in shorter months their last day; null = daily. */
  day: number | null
  /** Unix milliseconds of the last refill as stored; null = none yet. */
  lastAt: number | null
  /** Unix ms. The next due day is computed from this: the last refill, or the key's creation. */
  baseAt: number
}
