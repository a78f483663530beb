-- oldest server: 0.1
-- transaction: none
-- For the search of keys by the beginning of their name, in upper and lower case alike.
create index concurrently keys_live_by_name on keys (workspace_id, lower(name) collate "C") where deleted_at is null and for_workspace_id is null and name is not null;
