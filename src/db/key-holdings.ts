import type { AnySql } from './connect.ts'

/**
 * What a key holds, as SQL in a select from `keys k`: one text for what verifications allow and what an operator is shown,
 * which must not differ.
 */

/** Names of its roles, sorted. */
export const rolesOfKey = (sql: AnySql) => sql`
  select r.name from keys_roles kr join roles r on r.id = kr.role_id
   where kr.key_id = k.id order by r.name`

/** Slugs of the permissions it holds directly and through roles, each once, in no order. */
export const permissionsOfKey = (sql: AnySql) => sql`
  select p.slug from keys_permissions kp join permissions p on p.id = kp.permission_id
   where kp.key_id = k.id
   union
  select p.slug from keys_roles kr
    join roles_permissions rp on rp.role_id = kr.role_id
    join permissions p on p.id = rp.permission_id
   where kr.key_id = k.id`
