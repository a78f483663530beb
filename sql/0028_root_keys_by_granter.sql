-- As 0026, for root keys that one root key made, and for operator root keys, which are few and not counted in workspace_counts.
create index root_keys_live_by_granter on keys (for_workspace_id, granted_by, id)
 where granted_by is not null and deleted_at is null;
create index operator_keys_live on keys (for_workspace_id, id) where is_operator and deleted_at is null;
