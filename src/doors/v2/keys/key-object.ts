import type { Static } from '@sinclair/typebox'
import { type Refill, refillOf } from '../../../api/keys/refill.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import { identityObject } from '../identities/identity-object.ts'
import { limitObject } from '../limits.ts'
import { metaOf } from '../meta.ts'
import type { Identity } from '../schema.ts'
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
  const { identityId: id, externalId, identityMeta: meta, identityLimits: limits } = row
  return id === null || externalId === null ? null : identityObject({ id, externalId, meta, limits })
}
