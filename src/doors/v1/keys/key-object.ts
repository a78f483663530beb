import { DEFAULT_LIMIT } from '../../../api/keys/limits/store.ts'
import type { KeyRow } from '../../../api/keys/store.ts'
import { parseMeta } from '../../../lib/meta.ts'
import type { KeyObject, WhoamiReply } from './schema.ts'

/** A key as getKey and listKeys show it. Fields without a value are left out. */
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
  const ratelimit = row.limits.find(({ name }) => name === DEFAULT_LIMIT)
  if (ratelimit !== undefined) {
    const { limit, durationMs: duration } = ratelimit
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

/** A key as its holder may see it: fewer fields, and an empty meta is left out. */
export function whoamiObject(row: KeyRow): WhoamiReply {
  const reply: WhoamiReply = { id: row.id, createdAt: row.createdAt, enabled: row.enabled }
  if (row.name !== null) reply.name = row.name
  if (row.remaining !== null) reply.remaining = row.remaining
  if (row.identityId !== null && row.externalId !== null)
    reply.identity = { id: row.identityId, externalId: row.externalId }
  const meta = parseMeta(row.meta)
  if (meta !== null && Object.keys(meta).length > 0) reply.meta = meta
  if (row.environment !== null) reply.environment = row.environment
  return reply
}
