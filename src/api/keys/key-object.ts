import type { KeyObject } from '../../doors/v1/keys/schema.ts'
import type { KeyRow } from './store.ts'

/** A key as getKey and listKeys show it. What has no value is left out. */
export function keyObject(row: KeyRow, plaintext?: string): KeyObject {
  const key: KeyObject = {
    id: row.id,
    start: row.start,
    apiId: row.apiId,
    workspaceId: row.workspaceId,
    createdAt: row.createdAt,
    enabled: row.enabled,
    roles: row.roles,
    permissions: row.permissions,
  }
  if (row.name !== null) key.name = row.name
  if (row.ownerId !== null) key.ownerId = row.ownerId
  const meta = parseMeta(row.meta)
  if (meta !== null) key.meta = meta
  if (row.updatedAt !== null) key.updatedAt = row.updatedAt
  if (row.expiresAt !== null) key.expires = row.expiresAt
  if (row.remaining !== null) key.remaining = row.remaining
  if (row.refillAmount !== null) {
    key.refill = {
      interval: row.refillDay === null ? 'daily' : 'monthly',
      amount: row.refillAmount,
      refillDay: row.refillDay,
      ...(row.lastRefillAt === null ? {} : { lastRefillAt: row.lastRefillAt }),
    }
  }
  if (row.ratelimit !== null) {
    const { limit, durationMs: duration } = row.ratelimit
    key.ratelimit = { async: false, limit, duration, refillRate: limit, refillInterval: duration }
  }
  if (row.environment !== null) key.environment = row.environment
  if (row.identityId !== null && row.externalId !== null)
    key.identity = {
      id: row.identityId,
      externalId: row.externalId,
      meta: parseMeta(row.identityMeta) ?? {},
    }
  if (plaintext !== undefined) key.plaintext = plaintext
  return key
}

/** @param text As stored, from a checked object. */
export const parseMeta = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>) // see above
