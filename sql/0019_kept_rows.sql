-- What is deleted is kept for a while, so many of each kind for each workspace (bound `deletedRecords`): the oldest go first.
create index keys_deleted on keys ((coalesce(for_workspace_id, workspace_id)), (for_workspace_id is not null), deleted_at, id)
 where deleted_at is not null and not is_operator;
create index apis_deleted on apis (workspace_id, deleted_at, id) where deleted_at is not null;
create index ratelimit_namespaces_deleted on ratelimit_namespaces (workspace_id, deleted_at, id) where deleted_at is not null;
create index ratelimit_overrides_deleted on ratelimit_overrides (workspace_id, deleted_at, id) where deleted_at is not null;
