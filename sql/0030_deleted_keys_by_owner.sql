-- For erasures, which look for deleted keys of an owner too: without it each of their slices read the whole table. With a million
-- keys of which none is deleted, changes of keys wait a fifth of a second.
create index keys_deleted_by_owner on keys (workspace_id, owner_id) where owner_id is not null and deleted_at is not null;
