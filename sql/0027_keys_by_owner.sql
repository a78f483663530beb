-- As 0026, for keys of an owner. It serves whoever asked the old one.
create index keys_live_by_owner_in_order on keys (workspace_id, owner_id, keyspace_id, id)
 where owner_id is not null and deleted_at is null;
drop index keys_live_by_owner;
