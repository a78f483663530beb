import type { AnySql } from '../../db/connect.ts'

/** The new text of a rerolled key, and the id of the new row. */
export type SuccessorRow = {
  id: string
  hash: string
  start: string
  /** Root keys only: the root key that rerolls. */
  grantedBy: string | null
}

/**
 * Inserts a key that equals another but for id, text and times, and moves the other's credits and refill to it. The caller
 * has locked the other. An identity that was deleted meanwhile is left out.
 */
export async function insertSuccessor(
  tx: AnySql,
  sourceId: string,
  { id, hash, start, grantedBy }: SuccessorRow,
  now: number,
): Promise<void> {
  await tx`
    with owner as materialized (
      select i.id from identities i join keys k on k.identity_id = i.id where k.id = ${sourceId} for key share of i
    )
    insert into keys (id, workspace_id, keyspace_id, hash, start, name, owner_id, identity_id, meta, environment, enabled,
                      expires_at, remaining, refill_amount, refill_day, refill_sets, last_refill_at, created_at, for_workspace_id,
                      root_permissions, is_operator, granted_by, counts_as)
    select ${id}, workspace_id, keyspace_id, ${hash}, ${start}, name, owner_id, (select owner.id from owner), meta,
           environment, enabled, expires_at, remaining, refill_amount, refill_day, refill_sets, last_refill_at, ${now}, for_workspace_id,
           root_permissions, is_operator, ${grantedBy}::text, coalesce(counts_as, id)
      from keys where id = ${sourceId}`
  await tx`
    insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, auto_apply, created_at)
    select new_id_like(id), workspace_id, name, ${id}, "limit", duration_ms, auto_apply, ${now}
      from ratelimits where key_id = ${sourceId}`
}

/**
 * Ends a rerolled key and names its successor. Its end only ever gets earlier. Keys that were rerolled into it before, and
 * spend its credits, spend those of the successor from then on.
 * @param options.endsAt Unix ms.
 * @returns when it ends now, and the ids of those keys.
 */
export async function endSource(
  tx: AnySql,
  sourceId: string,
  { successorId, endsAt, now }: { successorId: string; endsAt: number; now: number },
): Promise<{ expiresAt: number; predecessors: string[] }> {
  const [source] = await tx<{ expiresAt: number }[]>`
    update keys
       set expires_at = least(expires_at, ${endsAt}::bigint), successor_id = ${successorId}, updated_at = ${now},
           remaining = case when remaining is null then null else 0 end,
           refill_amount = null, refill_day = null, last_refill_at = null
     where id = ${sourceId}
 returning expires_at as "expiresAt"`
  const predecessors = await tx<{ id: string }[]>`
    update keys set successor_id = ${successorId} where successor_id = ${sourceId} and remaining is not null
 returning id`
  return { expiresAt: source?.expiresAt ?? endsAt, predecessors: predecessors.map(({ id }) => id) }
}

/** The successor of a key, unless it was deleted. */
export async function findSuccessor(sql: AnySql, id: string): Promise<string | null> {
  const [row] = await sql<{ id: string }[]>`
    select s.id from keys k join keys s on s.id = k.successor_id and s.deleted_at is null where k.id = ${id}`
  return row?.id ?? null
}
