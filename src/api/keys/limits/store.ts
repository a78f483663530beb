import type { AnySql } from '../../../db/connect.ts'
import { newId, type WorkspaceId } from '../../../lib/ids.ts'

/** `limit` tokens in a window of `durationMs`. The names of a key's limits are distinct. */
export type KeyLimit = {
  name: string
  limit: number
  durationMs: number
  /** True: every verification counts it. False: only those that name it. */
  autoApply: boolean
}
export type KeyLimitRow = KeyLimit & { id: string }

/** Name of the one limit that v1 shows and changes. */
export const DEFAULT_LIMIT = 'default'

/** The limit of a key as v1 knows it. */
export type Ratelimit = { limit: number; durationMs: number }

/** Every verification counts it. */
export const defaultLimit = (ratelimit: Ratelimit): KeyLimit => ({
  name: DEFAULT_LIMIT,
  ...ratelimit,
  autoApply: true,
})

/** Gives limits of one key their ids, for {@link writeKeyLimits}. By id they are in the order of the list. */
export function newLimitRows(keyId: string, limits: readonly KeyLimit[]): NewKeyLimitRow[] {
  const ids = limits.map(() => newId('rl')).sort()
  return limits.map((limit, index) => ({ ...limit, id: ids[index] as string, keyId })) // as many ids as limits
}
export type NewKeyLimitRow = KeyLimitRow & { keyId: string }

/**
 * Creates limits of keys, or changes those of the same name in place, which keep their ids. No two may have one key and
 * name. Call it under the lock of existing keys.
 */
export async function writeKeyLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  limits: readonly NewKeyLimitRow[],
  now: number,
): Promise<void> {
  if (limits.length === 0) return
  await sql`
    insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, auto_apply, created_at)
    select l.id, ${workspaceId}, l.name, l.key_id, l."limit", l.duration_ms, l.auto_apply::boolean, ${now}
      from unnest(${limits.map(({ id }) => id)}::text[], ${limits.map(({ name }) => name)}::text[],
                  ${limits.map(({ keyId }) => keyId)}::text[], ${limits.map(({ limit }) => limit)}::bigint[],
                  ${limits.map(({ durationMs }) => durationMs)}::bigint[],
                  ${limits.map(({ autoApply }) => String(autoApply))}::text[])
        as l (id, name, key_id, "limit", duration_ms, auto_apply)
    on conflict (key_id, name)
    do update set "limit" = excluded."limit", duration_ms = excluded.duration_ms, auto_apply = excluded.auto_apply,
                  updated_at = ${now}`
}

export async function deleteKeyLimits(
  sql: AnySql,
  workspaceId: WorkspaceId,
  keyId: string,
  names: readonly string[],
): Promise<void> {
  if (names.length === 0) return
  await sql`
    delete from ratelimits
     where workspace_id = ${workspaceId} and key_id = ${keyId} and name = any(${names as string[]}::text[])`
}
