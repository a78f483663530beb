-- oldest server: 0.1
-- transaction: none
-- Keys that have a permission of their own, in the order of lists.
create index concurrently keys_permissions_by_permission_in_order on keys_permissions (permission_id, key_id);
