import type { AnySql } from './connect.ts'

/** A key with this many links is heavy. Counting stops there, so that it stays cheap. */
export const HEAVY_LINKS = 500
/** Bytes that one role or permission is assumed to take in an answer: the longest slug. */
export const LINK_BYTES = 256

/**
 * Number of roles and permissions of the key `k`, including those of its roles, up to {@link HEAVY_LINKS}. `offset 0` makes
 * Postgres count role by role.
 */
export const keyLinks = (sql: AnySql) => sql`
  (select count(*)
     from (select 1 from keys_permissions kp where kp.key_id = k.id
            union all
           select 1 from keys_roles kr where kr.key_id = k.id
            union all
           select 1 from keys_roles kr
            cross join lateral (select 1 from roles_permissions rp where rp.role_id = kr.role_id offset 0) as p
            where kr.key_id = k.id
            limit ${HEAVY_LINKS}) as links)`

/** Bytes that one limit is assumed to take in an answer, with the longest name that v2 takes. */
export const LIMIT_BYTES = 300

/** Number of limits of the key `k` and of its identity. Bounded by what one call may set, so all are counted. */
export const keyLimits = (sql: AnySql) => sql`
  (select count(*) from ratelimits l where l.key_id = k.id)
  + (select count(*) from ratelimits l where l.identity_id = k.identity_id)`
