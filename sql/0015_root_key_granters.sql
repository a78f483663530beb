-- Which root key made a root key: what it grants ends no later than it does, and can be revoked with it.
alter table keys add column granted_by text collate "C";
comment on column keys.granted_by is 'Root keys only: the root key that made it; null = the start, or made before this was kept.';
create index root_keys_by_granter on keys (granted_by) where granted_by is not null;
