-- Bounds on what a workspace can make grow. Every row that counts against one is counted in the transaction that makes or
-- deletes it, by the triggers below, so the counts are exact, whatever the program does.
--
-- A count is split into parts, and what is left of its bound is dealt out to them as `room`. A transaction counts in one
-- part and locks that one alone, so eight that create keys do not wait for each other. Only when a part has no room left
-- does one lock all parts, add up what is used and deal out the rest anew, or refuse. The room of all parts together is
-- never more than what is left: two at once can not both take the last place. What is deleted waits for nobody and locks
-- nothing, as it may hold rows that those who count are waiting for: it is written down, and gives its room back when the
-- rest is next dealt out.

create table bounds (
  name  text collate "C" primary key,
  value bigint not null check (value >= 0)
);
comment on table bounds is 'The bounds of every workspace, as the server that started last was configured. None of a name = no bound.';

alter table workspaces add column bounds jsonb;
comment on column workspaces.bounds is 'Name → value, where the operator gave this workspace another bound; null = none.';

create table workspace_counts (
  workspace_id text collate "C" not null,
  name         text collate "C" not null,
  part         smallint not null,
  used         bigint not null,
  room         bigint not null,
  primary key (workspace_id, name, part)
) with (fillfactor = 50); -- a count rewrites its row, and should stay on the page
comment on column workspace_counts.used is 'Rows counted here less those given back here; may be negative, as only the sum of the parts says something.';

create table workspace_returns (
  id           bigint generated always as identity primary key,
  workspace_id text collate "C" not null,
  name         text collate "C" not null,
  rows         bigint not null
);
comment on table workspace_returns is 'Rows that went since the rest of a bound was last dealt out; then these are taken into workspace_counts.';
create index workspace_returns_by_name on workspace_returns (workspace_id, name);

create view workspace_used as
select workspace_id, name, sum(used)::bigint as used
  from (select workspace_id, name, used from workspace_counts
         union all
        select workspace_id, name, -rows from workspace_returns) as counted
 group by workspace_id, name;
comment on column workspace_counts.room is 'How many rows more may be counted in this part without asking the others.';

-- What a workspace may have of something.
create function bound_of(p_workspace text, p_name text) returns bigint
language sql stable as $$
  select coalesce((select (bounds ->> p_name)::bigint from workspaces where id = p_workspace),
                  (select value from bounds where name = p_name), 9000000000000000000)
$$;

create function refuse_beyond_bound(p_workspace text, p_name text, p_used bigint, p_bound bigint) returns void
language plpgsql as $$
begin
  raise exception 'workspace % has % of at most % %', p_workspace, p_used, p_bound, p_name
    using errcode = 'TGB01',
          detail = json_build_object('workspaceId', p_workspace, 'name', p_name, 'used', p_used, 'value', p_bound)::text;
end
$$;

-- For what is counted where it is used, under a lock: refuses more than the workspace may have of it in one place.
create function require_bound(p_workspace text, p_name text, p_rows bigint) returns void
language plpgsql as $$
declare
  bound bigint := bound_of(p_workspace, p_name);
begin
  if p_rows > bound then
    perform refuse_beyond_bound(p_workspace, p_name, p_rows, bound);
  end if;
end
$$;

-- Locks all parts of a count and takes what went since into them.
create function take_returns(p_workspace text, p_name text) returns void
language plpgsql as $$
begin
  perform from workspace_counts c where c.workspace_id = p_workspace and c.name = p_name order by c.part for update;
  if not found then
    return;
  end if;
  with returned as (
    delete from workspace_returns r where r.workspace_id = p_workspace and r.name = p_name returning r.rows
  )
  update workspace_counts c
     set used = c.used - returned.sum
    from (select sum(rows) from returned) as returned
   where c.workspace_id = p_workspace and c.name = p_name and c.part = 0 and returned.sum is not null;
end
$$;

-- Counts rows that were made (p_rows > 0) or deleted (p_rows < 0).
-- Raises TGB01, with workspace, bound, value and what is used in its detail, when there is no room for them.
create function count_rows(p_workspace text, p_name text, p_rows bigint) returns void
language plpgsql as $$
declare
  -- Of what is made in transactions that may last, as those of imports.
  parts constant integer := case when p_name in ('keys', 'identities', 'queuedImports') then 8 else 1 end;
  own_part constant integer := pg_backend_pid() % parts;
  used_now bigint;
  bound bigint;
begin
  if p_rows = 0 then
    return;
  end if;
  if p_rows < 0 then
    insert into workspace_returns (workspace_id, name, rows) values (p_workspace, p_name, -p_rows);
    return;
  end if;
  update workspace_counts c
     set used = c.used + p_rows, room = c.room - p_rows
   where c.workspace_id = p_workspace and c.name = p_name and c.part = own_part and c.room >= p_rows;
  if found then
    return;
  end if;
  -- What was read of the bound holds until the room is dealt out: whoever changes it takes the room back (setBounds).
  perform from bounds where name = p_name for share;
  perform from workspaces where id = p_workspace for share;
  bound := bound_of(p_workspace, p_name);
  insert into workspace_counts (workspace_id, name, part, used, room)
  select p_workspace, p_name, part, 0, 0 from generate_series(0, parts - 1) as part
      on conflict do nothing;
  perform take_returns(p_workspace, p_name);
  select sum(c.used) into used_now from workspace_counts c where c.workspace_id = p_workspace and c.name = p_name;
  if used_now + p_rows > bound then
    perform refuse_beyond_bound(p_workspace, p_name, used_now, bound);
  end if;
  update workspace_counts c
     set used = c.used + case when c.part = own_part then p_rows else 0 end,
         room = greatest(0, bound - used_now - p_rows) / parts
   where c.workspace_id = p_workspace and c.name = p_name;
end
$$;

-- One function for all tables: the trigger's argument is the bound's name. A row counts while it is live.
create function count_live_rows() returns trigger
language plpgsql as $$
declare
  changed record;
  is_soft constant boolean := tg_argv[1] = 'soft';
  gone constant text := case when is_soft then 'where deleted_at is null' else '' end;
  made constant text := 'select workspace_id, count(*) as rows from made ' || gone || ' group by workspace_id';
  lost constant text := 'select workspace_id, -count(*) as rows from lost ' || gone || ' group by workspace_id';
begin
  for changed in execute
    case tg_op
      when 'INSERT' then made || ' order by workspace_id'
      when 'DELETE' then lost || ' order by workspace_id'
      else 'select workspace_id, sum(rows)::bigint as rows from (' || made || ' union all ' || lost ||
           ') as both_ways group by workspace_id order by workspace_id'
    end
  loop
    perform count_rows(changed.workspace_id, tg_argv[0], changed.rows);
  end loop;
  return null;
end
$$;

-- Keys are updated all the time (credits), so nothing is triggered by that: what soft-deletes a key counts it itself.
-- A root key counts in the workspace it acts for. Operator root keys do not count: a start must be able to register one.
create function count_keys() returns trigger
language plpgsql as $$
declare
  changed record;
begin
  if tg_op = 'INSERT' then
    for changed in
      select coalesce(for_workspace_id, workspace_id) as workspace_id, for_workspace_id is not null as is_root, count(*) as rows
        from made where deleted_at is null and not is_operator group by 1, 2 order by 1, 2
    loop
      perform count_rows(changed.workspace_id, case when changed.is_root then 'rootKeys' else 'keys' end, changed.rows);
    end loop;
  else
    for changed in
      select coalesce(for_workspace_id, workspace_id) as workspace_id, for_workspace_id is not null as is_root, count(*) as rows
        from lost where deleted_at is null and not is_operator group by 1, 2 order by 1, 2
    loop
      perform count_rows(changed.workspace_id, case when changed.is_root then 'rootKeys' else 'keys' end, -changed.rows);
    end loop;
  end if;
  return null;
end
$$;

create function count_workspaces() returns trigger
language plpgsql as $$
begin
  perform count_rows('ws_root', 'workspaces', (select count(*) from made));
  return null;
end
$$;

-- Imports count until they are made or given up.
create function count_key_imports() returns trigger
language plpgsql as $$
declare
  changed record;
begin
  if tg_op = 'INSERT' then
    for changed in select workspace_id, count(*) as rows from made where failed_at is null group by 1 order by 1 loop
      perform count_rows(changed.workspace_id, 'queuedImports', changed.rows);
    end loop;
  elsif tg_op = 'DELETE' then
    for changed in select workspace_id, count(*) as rows from lost where failed_at is null group by 1 order by 1 loop
      perform count_rows(changed.workspace_id, 'queuedImports', -changed.rows);
    end loop;
  else
    for changed in
      select made.workspace_id, count(*) as rows
        from made join lost using (id)
       where made.failed_at is not null and lost.failed_at is null
       group by 1 order by 1
    loop
      perform count_rows(changed.workspace_id, 'queuedImports', -changed.rows);
    end loop;
  end if;
  return null;
end
$$;

create trigger count_made after insert on workspaces
  referencing new table as made for each statement execute function count_workspaces();

create trigger count_made after insert on keys
  referencing new table as made for each statement execute function count_keys();
create trigger count_lost after delete on keys
  referencing old table as lost for each statement execute function count_keys();

create trigger count_made after insert on key_imports
  referencing new table as made for each statement execute function count_key_imports();
create trigger count_changed after update on key_imports
  referencing old table as lost new table as made for each statement execute function count_key_imports();
create trigger count_lost after delete on key_imports
  referencing old table as lost for each statement execute function count_key_imports();

do $$
declare
  counted record;
begin
  for counted in
    select * from (values
      ('apis', 'apis', true), ('ratelimit_namespaces', 'namespaces', true), ('ratelimit_overrides', 'overrides', true),
      ('identities', 'identities', false), ('roles', 'roles', false), ('permissions', 'permissions', false)
    ) as c (on_table, name, is_soft)
  loop
    execute format('create trigger count_made after insert on %I referencing new table as made
                    for each statement execute function count_live_rows(%L, %L)',
                   counted.on_table, counted.name, case when counted.is_soft then 'soft' else 'hard' end);
    execute format('create trigger count_lost after delete on %I referencing old table as lost
                    for each statement execute function count_live_rows(%L, %L)',
                   counted.on_table, counted.name, case when counted.is_soft then 'soft' else 'hard' end);
    if counted.is_soft then
      execute format('create trigger count_changed after update on %I referencing old table as lost new table as made
                      for each statement execute function count_live_rows(%L, %L)',
                     counted.on_table, counted.name, 'soft');
    end if;
  end loop;
end
$$;

-- Of what waits, each workspace has its turn: who enqueued a million keys holds up nobody else's ten.
create index key_imports_by_workspace on key_imports (workspace_id, next_at, id) where failed_at is null;

-- Overrides of deleted namespaces stayed live before: nobody could reach them, and they would count.
update ratelimit_overrides o
   set deleted_at = n.deleted_at
  from ratelimit_namespaces n
 where n.id = o.namespace_id and n.deleted_at is not null and o.deleted_at is null;
delete from workspace_returns; -- what that counted: all is counted now
insert into workspace_counts (workspace_id, name, part, used, room)
select workspace_id, name, 0, count(*), 0
  from (select coalesce(for_workspace_id, workspace_id) as workspace_id,
               case when for_workspace_id is null then 'keys' else 'rootKeys' end as name
          from keys where deleted_at is null and not is_operator
         union all
        select 'ws_root', 'workspaces' from workspaces where id <> 'ws_root'
         union all
        select workspace_id, 'apis' from apis where deleted_at is null and id <> 'api_root'
         union all
        select workspace_id, 'namespaces' from ratelimit_namespaces where deleted_at is null
         union all
        select workspace_id, 'overrides' from ratelimit_overrides where deleted_at is null
         union all
        select workspace_id, 'identities' from identities
         union all
        select workspace_id, 'roles' from roles
         union all
        select workspace_id, 'permissions' from permissions
         union all
        select workspace_id, 'queuedImports' from key_imports where failed_at is null) as live
 group by workspace_id, name;
