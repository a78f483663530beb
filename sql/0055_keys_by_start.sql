-- oldest server: 0.1
-- transaction: none
-- For the search of keys by the beginning of their text.
create index concurrently keys_live_by_start on keys (workspace_id, start collate "C") where deleted_at is null and for_workspace_id is null;
