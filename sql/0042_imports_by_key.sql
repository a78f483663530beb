-- oldest server: 0.1
-- transaction: none
-- For erasures, which look for queued imports of each hundred keys that they delete: without it each of these reads the whole queue.
create index concurrently key_imports_by_key on key_imports (workspace_id, key_id);
