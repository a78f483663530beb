import type { Static } from '@sinclair/typebox'
import { type Refill, refillOf } from '../../../api/keys/refill.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import { parseMeta } from '../../../lib/meta.ts'
import type { Identity, Ratelimit } from '../schema.ts'
import type { Credits, KeyObject } from './schema.ts'

/** A key without what is empty: clients refuse a null, and an expiry of 0 counts as none. */
export function keyObject(row: KeyRow, plaintext?: string): KeyObject {
  const key: KeyObject = {
    keyId: row.id,
    start: row.start,
    enabled: row.enabled,
    createdAt: row.createdAt,
  }
  if (row.updatedAt) key.updatedAt = row.updatedAt
  if (row.name) key.name = row.name
  const meta = metaOf(row.meta)
  if (meta !== null) key.meta = meta
  if (row.expiresAt) key.expires = row.expiresAt
  if (row.permissions.length > 0) key.permissions = row.permissions
  if (row.roles.length > 0) key.roles = row.roles
  if (row.remaining !== null) key.credits = creditsObject(row.remaining, refillOf(row))
  const identity = identityOf(row)
  if (identity !== null) key.identity = identity
  if (row.limits.length > 0) key.ratelimits = row.limits.map(limitObject)
  if (plaintext !== undefined) key.plaintext = plaintext
  return key
}

/** @param remaining Null = the key has no credits to count. */
export function creditsObject(remaining: number | null, refill: Refill | null): Credits {
  if (refill === null) return { remaining }
  const { amount, day } = refill
  return {
    remaining,
    refill: day === null ? { interval: 'daily', amount } : { interval: 'monthly', amount, refillDay: day },
  }
}

function identityOf(row: KeyRow): Static<typeof Identity> | null {
  if (row.identityId === null || row.externalId === null) return null
  const meta = metaOf(row.identityMeta)
  return {
    id: row.identityId,
    externalId: row.externalId,
    ...(meta === null ? {} : { meta }),
    ...(row.identityLimits.length === 0 ? {} : { ratelimits: row.identityLimits.map(limitObject) }),
  }
}

const limitObject = ({
  id,
  name,
  limit,
  durationMs: duration,
  autoApply,
}: KeyRow['limits'][number]): Static<typeof Ratelimit> => ({ id, name, limit, duration, autoApply })

/** Null when empty. */
function metaOf(text: string | null): Record<string, unknown> | null {
  const meta = parseMeta(text)
  return meta === null || Object.keys(meta).length === 0 ? null : meta
}
