-- Exact counts of live keys are read from the index alone.
drop index keys_by_keyspace;
create index keys_by_keyspace on keys (keyspace_id, id) include (deleted_at, workspace_id);

-- The scheduled refill walks all keys that refill by id. Without the time of the last refill in the index, a refill does
-- not have to write to it.
drop index keys_by_refill;
create index keys_by_refill on keys (id) where refill_amount is not null and deleted_at is null;

-- A new id made of a given one: its prefix and the six digits that hold its second stay, the other ten are drawn anew
-- (see newId in src/lib/ids.ts). For statements that make more rows than anyone wants to name beforehand. Of 43 digits
-- in base 64, those that base 58 does not have are struck out; of the rest, ten are taken. One expression, so that it is
-- planned as part of the statement.
create function new_id_like(p_id text) returns text
language sql volatile as $$
  select left(p_id, -10) || left(translate(
           encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64'), '0OIl+/=', ''), 10)
$$;

-- Keys accepted by migrations.enqueueKeys and not made yet, and those that could not be made.
create table key_imports (
  id                bigint generated always as identity primary key,
  workspace_id      text collate "C" not null references workspaces (id),
  migration_id      text   not null,
  api_id            text collate "C" not null,
  key_id            text collate "C" not null,
  key               text   not null,
  ciphertext        text,
  encryption_key_id text collate "C",
  actor_id          text collate "C" not null,
  location          text,
  user_agent        text,
  attempts          integer not null default 0,
  next_at           bigint not null,
  reason            text,
  created_at        bigint not null,
  failed_at         bigint
);
comment on column key_imports.key is 'The key as accepted, JSON; its hash instead of a plaintext, which is only here sealed (ciphertext).';
comment on column key_imports.reason is 'Why the last attempt failed.';
comment on column key_imports.failed_at is 'Given up: kept for whoever wants to know, never tried again.';
create index key_imports_due on key_imports (next_at) where failed_at is null;
create index key_imports_failed on key_imports (workspace_id, id) where failed_at is not null;
