-- oldest server: 0.1
-- transaction: none
-- Keys that have a role, in the order of lists.
create index concurrently keys_roles_by_role_in_order on keys_roles (role_id, key_id);
