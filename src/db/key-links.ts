import type { AnySql } from './connect.ts'

/** Links from which on a key counts as heavy; no more are counted, so that counting stays cheap whatever hangs on it. */
export const HEAVY_LINKS = 500
/** What a role or permission is reckoned to take in an answer: the longest slug. */
export const LINK_BYTES = 256

/** How many roles and permissions hang on the key `k`, those of its roles included, up to {@link HEAVY_LINKS}. `offset 0`: role by role. */
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
