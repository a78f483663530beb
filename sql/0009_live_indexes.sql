-- Lists and counts read what is live, however much was deleted before it: ids are in the order of their time, so what was
-- deleted long ago would stand in front of every page. What is there is dropped last: while these are made, other servers
-- of this database can still read keys.
create index keys_live_by_keyspace on keys (keyspace_id, id) include (workspace_id) where deleted_at is null;
-- For the removal of an API for good, keys deleted before included.
create index keys_of_keyspace on keys (keyspace_id);
create index keys_live_by_owner on keys (workspace_id, owner_id) where owner_id is not null and deleted_at is null;
create index root_keys_live_by_workspace on keys (for_workspace_id, id)
 where for_workspace_id is not null and deleted_at is null;
create index ratelimit_overrides_by_namespace on ratelimit_overrides (namespace_id, id) include (workspace_id)
 where deleted_at is null;
drop index keys_by_keyspace, keys_by_owner, root_keys_by_workspace;
