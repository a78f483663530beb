import type { CounterRef } from '../usage/recorder.ts'

/** A key as verification sees it: read once from the database, then shared and, but for its slot, never changed. */
export type KeyRecord = CounterRef & {
  id: string
  /** SHA-256 of the key's text, base64. */
  hash: string
  workspaceId: string
  keyspaceId: string
  apiId: string
  /** Root keys: the workspace they act for. Null = an ordinary key. */
  forWorkspaceId: string | null
  isOperator: boolean
  /** Both the owning workspace and the one acted for. */
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
  /** Whether uses are counted. How many are left is never cached: the database decides each spend. */
  hasCredits: boolean
  refill: Refill | null
  identity: { id: string; externalId: string; meta: Record<string, unknown> } | null
  /** Limits of the key and of its identity; names are unique here. */
  limits: ConfiguredLimit[]
  roles: string[]
  /** Slugs held directly and through roles; of a root key, what it may do. */
  permissions: ReadonlySet<string>
}

export type ConfiguredLimit = {
  name: string
  limit: number
  durationMs: number
  /** Counts on every verification; others only when the request names them. */
  autoApply: boolean
  /** Key or identity whose counter this is. */
  ownerId: string
}

export type Refill = {
  /** Added to what is left. */
  amount: number
  /** 1 to 31, the last day of shorter months standing in for later ones; null = daily. */
  day: number | null
  /** Unix milliseconds of the last refill as stored; null = none yet. */
  lastAt: number | null
  /** From when the next due day is reckoned: the last refill, else the key's creation. */
  baseAt: number
}
