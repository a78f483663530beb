-- oldest server: 0.1
-- How a start knows that its vault keys are those of the database, and what became of data keys whose vault key is lost: see
-- src/vault/admit.ts. A server that knows neither table makes a new data key where one was moved away.
create table vault_check (
  is_only      boolean primary key default true check (is_only),
  sealed       text    not null,
  vault_key_id text    collate "C" not null,
  created_at   bigint  not null,
  updated_at   bigint
);
comment on table vault_check is 'A known text, sealed by a vault key. One row, made by the first start that has a vault key.';

create table vault_lost_data_keys (
  id           text   collate "C" primary key,
  workspace_id text   collate "C" not null references workspaces (id),
  sealed       text   not null,
  vault_key_id text   collate "C" not null,
  created_at   bigint not null,
  lost_at      bigint not null
);
comment on table vault_lost_data_keys is 'Data keys whose vault key was declared lost. They open again when a server is given that vault key.';
create index vault_lost_data_keys_by_workspace on vault_lost_data_keys (workspace_id);
