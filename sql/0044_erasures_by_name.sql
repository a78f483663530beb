-- oldest server: 0.1
-- transaction: none
-- For verification: a key is not found as soon as the erasure of its person is recorded. Names that are swept are in it no more, so it is small.
create index concurrently erasures_by_name on erasures (workspace_id, name) where name is not null;
