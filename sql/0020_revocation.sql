-- Deletions that cost the same however much they delete. A statement cuts the deleted thing off, and everything that hung on
-- it is unreachable from that moment. Its rows are removed afterwards in small slices: one row of `sweeps` for each deletion,
-- there until its last slice.

alter table keyspaces add column api_id text collate "C";
comment on column keyspaces.api_id is 'The API that this keyspace belonged to before all its keys were deleted at once; null on others.';
create index keyspaces_of_api on keyspaces (api_id) where api_id is not null;

-- The API of a keyspace, also after its keys were deleted at once; null = none.
create function api_of_keyspace(p_keyspace text) returns text
language sql stable as $$
  select coalesce((select s.api_id from keyspaces s where s.id = p_keyspace),
                  (select a.id from apis a where a.keyspace_id = p_keyspace order by a.id limit 1))
$$;

create table sweeps (
  id           bigint generated always as identity primary key,
  workspace_id text collate "C" not null,
  kind         text not null check (kind in ('keyspace', 'identity', 'role', 'permission')),
  subject      text collate "C" not null,
  detail       jsonb,
  created_at   bigint not null
);
comment on column sweeps.subject is 'Id of the deleted thing.';
comment on column sweeps.detail is 'Of a keyspace: whether its rows are removed or kept as deleted, and who deleted them from where.';
create index sweeps_by_subject on sweeps (subject);

-- These constraints made a deletion touch every key before it could commit. Without them a row may refer to a deleted identity,
-- role or permission for a while. Every statement that reads such a reference joins the table it refers to.
alter table keys drop constraint keys_identity_id_fkey;
alter table keys_roles drop constraint keys_roles_role_id_fkey;
alter table keys_permissions drop constraint keys_permissions_permission_id_fkey;
alter table roles_permissions drop constraint roles_permissions_permission_id_fkey;

-- Records a sweep for each deleted row that something refers to. A trigger, so that no deletion can leave references behind. Row by
-- row, each by an index: joined with the deleted rows, whose number it does not know, the planner may read whole tables.
create function sweep_references() returns trigger
language plpgsql as $$
declare
  gone record;
  is_used boolean;
begin
  for gone in select workspace_id, id from lost order by id loop
    is_used := case tg_argv[0]
      when 'identity' then exists (select from keys where identity_id = gone.id)
      when 'role' then exists (select from keys_roles where role_id = gone.id)
      else exists (select from keys_permissions where permission_id = gone.id)
        or exists (select from roles_permissions where permission_id = gone.id)
    end;
    if is_used then
      insert into sweeps (workspace_id, kind, subject, created_at)
      values (gone.workspace_id, tg_argv[0], gone.id, floor(extract(epoch from clock_timestamp()) * 1000));
    end if;
  end loop;
  return null;
end
$$;
create trigger sweep_references after delete on identities referencing old table as lost
  for each statement execute function sweep_references('identity');
create trigger sweep_references after delete on roles referencing old table as lost
  for each statement execute function sweep_references('role');
create trigger sweep_references after delete on permissions referencing old table as lost
  for each statement execute function sweep_references('permission');
