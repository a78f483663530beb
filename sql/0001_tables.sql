-- Everything that must last. All times are Unix milliseconds (bigint), all texts compare bytewise (collate "C"):
-- ids sort by creation, and names are exact and case-sensitive whatever the database's own collation is.
-- Every row that a caller can reach carries its workspace_id, and every query filters by it.

create table settings (
  name  text collate "C" primary key,
  value text not null
);
comment on table settings is 'Facts of this database made once, such as the secret that keys the limiter''s hash.';

create table workspaces (
  id         text collate "C" primary key,
  name       text   not null,
  enabled    boolean not null default true,
  created_at bigint not null,
  updated_at bigint
);

create table keyspaces (
  id                   text collate "C" primary key,
  workspace_id         text collate "C" not null references workspaces (id),
  store_encrypted_keys boolean not null default true,
  default_prefix       text,
  default_bytes        integer not null default 16,
  created_at           bigint not null,
  updated_at           bigint,
  deleted_at           bigint
);

create table apis (
  id                text collate "C" primary key,
  workspace_id      text collate "C" not null references workspaces (id),
  name              text not null,
  auth_type         text not null default 'key',
  keyspace_id       text collate "C" references keyspaces (id),
  ip_whitelist      text[],
  delete_protection boolean not null default false,
  created_at        bigint not null,
  updated_at        bigint,
  deleted_at        bigint
);
comment on column apis.ip_whitelist is 'Addresses and CIDR ranges that may use keys of this API; null = any.';
create index apis_by_workspace on apis (workspace_id, id);
create index apis_by_keyspace on apis (keyspace_id);

create table identities (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  external_id  text collate "C" not null,
  environment  text collate "C" not null default 'default',
  meta         text,
  created_at   bigint not null,
  updated_at   bigint,
  unique (workspace_id, external_id)
);
comment on column identities.meta is 'JSON text as given; null = never set.';
create index identities_by_workspace on identities (workspace_id, id);

create table keys (
  id               text collate "C" primary key,
  workspace_id     text collate "C" not null references workspaces (id),
  keyspace_id      text collate "C" not null references keyspaces (id),
  hash             text collate "C" not null unique,
  start            text not null,
  name             text,
  owner_id         text collate "C",
  identity_id      text collate "C" references identities (id) on delete set null,
  meta             text,
  environment      text,
  enabled          boolean not null default true,
  expires_at       bigint,
  remaining        integer check (remaining >= 0),
  refill_amount    integer,
  refill_day       smallint,
  last_refill_at   bigint,
  created_at       bigint not null,
  updated_at       bigint,
  deleted_at       bigint,
  -- Root keys only: the workspace they act for, what they may do there, and whether they may make workspaces.
  for_workspace_id text collate "C" references workspaces (id),
  root_permissions text[],
  is_operator      boolean not null default false
) with (fillfactor = 85); -- room on the page: spending a credit rewrites the row, and should not touch an index
comment on column keys.hash is 'SHA-256 of the whole key, base64 with padding. Unique over deleted keys too.';
comment on column keys.remaining is 'Credits left; null = unlimited. Never below zero: every spend is guarded.';
comment on column keys.refill_day is 'Day of the month of a monthly refill; null with a refill_amount = daily.';
create index keys_by_keyspace on keys (keyspace_id, id);
create index keys_by_identity on keys (identity_id) where identity_id is not null;
create index keys_by_owner on keys (workspace_id, owner_id) where owner_id is not null;
create index root_keys_by_workspace on keys (for_workspace_id, id) where for_workspace_id is not null;
create index keys_by_refill on keys (last_refill_at) where refill_amount is not null and deleted_at is null;

create table encrypted_keys (
  key_id            text collate "C" primary key references keys (id) on delete cascade,
  workspace_id      text collate "C" not null references workspaces (id),
  ciphertext        text not null,
  encryption_key_id text collate "C" not null,
  created_at        bigint not null,
  updated_at        bigint
);

create table vault_data_keys (
  id            text collate "C" primary key,
  workspace_id  text collate "C" not null references workspaces (id),
  sealed        text not null,
  master_key_id text collate "C" not null,
  created_at    bigint not null,
  updated_at    bigint,
  unique (workspace_id)
);
comment on table vault_data_keys is 'One data key per workspace, sealed by the master key; seals that workspace''s recoverable keys.';

create table ratelimits (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  name         text collate "C" not null,
  key_id       text collate "C" references keys (id) on delete cascade,
  identity_id  text collate "C" references identities (id) on delete cascade,
  "limit"      integer not null,
  duration_ms  bigint not null,
  auto_apply   boolean not null default false,
  created_at   bigint not null,
  updated_at   bigint,
  check ((key_id is null) <> (identity_id is null)),
  unique (key_id, name),
  unique (identity_id, name)
);

create table permissions (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  name         text collate "C" not null,
  slug         text collate "C" not null,
  description  text,
  created_at   bigint not null,
  updated_at   bigint,
  unique (workspace_id, slug)
);
create index permissions_by_workspace on permissions (workspace_id, id);

create table roles (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  name         text collate "C" not null,
  description  text,
  created_at   bigint not null,
  updated_at   bigint,
  unique (workspace_id, name)
);
create index roles_by_workspace on roles (workspace_id, id);

create table keys_permissions (
  key_id        text collate "C" not null references keys (id) on delete cascade,
  permission_id text collate "C" not null references permissions (id) on delete cascade,
  workspace_id  text collate "C" not null references workspaces (id),
  created_at    bigint not null,
  primary key (key_id, permission_id)
);
create index keys_permissions_by_permission on keys_permissions (permission_id);

create table keys_roles (
  key_id       text collate "C" not null references keys (id) on delete cascade,
  role_id      text collate "C" not null references roles (id) on delete cascade,
  workspace_id text collate "C" not null references workspaces (id),
  created_at   bigint not null,
  primary key (key_id, role_id)
);
create index keys_roles_by_role on keys_roles (role_id);

create table roles_permissions (
  role_id       text collate "C" not null references roles (id) on delete cascade,
  permission_id text collate "C" not null references permissions (id) on delete cascade,
  workspace_id  text collate "C" not null references workspaces (id),
  created_at    bigint not null,
  primary key (role_id, permission_id)
);
create index roles_permissions_by_permission on roles_permissions (permission_id);

create table ratelimit_namespaces (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  name         text collate "C" not null,
  created_at   bigint not null,
  updated_at   bigint,
  deleted_at   bigint
);
create unique index ratelimit_namespaces_by_name on ratelimit_namespaces (workspace_id, name) where deleted_at is null;
create index ratelimit_namespaces_by_workspace on ratelimit_namespaces (workspace_id, id) where deleted_at is null;

create table ratelimit_overrides (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  namespace_id text collate "C" not null references ratelimit_namespaces (id),
  identifier   text collate "C" not null,
  "limit"      integer not null,
  duration_ms  bigint not null,
  async        boolean,
  created_at   bigint not null,
  updated_at   bigint,
  deleted_at   bigint,
  unique (namespace_id, identifier)
);

create table audit_events (
  id           text collate "C" primary key,
  workspace_id text collate "C" not null references workspaces (id),
  event        text collate "C" not null,
  actor_type   text not null,
  actor_id     text collate "C" not null,
  resources    jsonb not null,
  description  text not null,
  location     text,
  user_agent   text,
  occurred_at  bigint not null
);
comment on column audit_events.resources is 'List of {type, id, name?, meta?}.';
create index audit_events_by_workspace on audit_events (workspace_id, id);
create index audit_events_by_resource on audit_events using gin (resources jsonb_path_ops);

-- The workspace of the root keys themselves. Nobody acts for it: a root key's rights are in the workspace it names.
insert into workspaces (id, name, created_at) values ('ws_root', 'root keys', 0);
insert into keyspaces (id, workspace_id, store_encrypted_keys, default_prefix, created_at)
  values ('ks_root', 'ws_root', false, 'tollgate', 0);
insert into apis (id, workspace_id, name, keyspace_id, created_at) values ('api_root', 'ws_root', 'root keys', 'ks_root', 0);
