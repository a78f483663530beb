-- Totals of lists are kept by the writes, not counted for each page: the keys of each keyspace and the overrides of each
-- namespace. Locks are held for milliseconds; what exists is counted by 0025.

create index apis_live_by_workspace on apis (workspace_id, id) where deleted_at is null;

-- Ids of a page of a list: those of rows with these values, in order, after `p_after`; null = any of them, in no order. It reads
-- the index that begins with p_columns (and ends with the id, where there is an order), and nothing else: no other gives this
-- order, and nothing may be sorted. Left to itself the planner reads and sorts everything where its statistics say that this is
-- little, and they may be old. p_condition: that of the index, as the planner does not derive it. Names and conditions are of the
-- program, not of callers.
create function ids_of_page(p_table text, p_columns text[], p_values text[], p_condition text, p_after text, p_rows integer)
returns setof text
language plpgsql stable rows 100
set enable_sort = off
set enable_incremental_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
declare
  columns constant text := array_to_string(p_columns, ', ');
  wanted constant text := (select string_agg(format('$1[%s]', n), ', ') from generate_series(1, cardinality(p_columns)) as n);
begin
  return query execute format(
    case when p_after is null
      then 'select id from %1$s where (%2$s) >= (%3$s) and (%2$s) <= (%3$s) and %4$s order by %2$s limit $3'
      else 'select id from %1$s where (%2$s, id) > (%3$s, $2) and (%2$s) <= (%3$s) and %4$s order by %2$s, id limit $3'
    end, p_table, columns, wanted, p_condition)
    using p_values, p_after, p_rows;
end
$$;

-- The count of one place, such as the keys of a keyspace, is kept in workspace_counts under `keys/<id of the keyspace>`. It has
-- no bound, so a transaction that adds to it writes one part: that with the number of its part in the count of the workspace,
-- which it locked before. So it waits for nobody that it did not wait for already.
create function count_in_place(p_workspace text, p_place text, p_rows bigint) returns void
language plpgsql as $$
begin
  if p_rows > 0 then
    insert into workspace_counts as c (workspace_id, name, part, used, room)
    values (p_workspace, p_place, pg_backend_pid() % 8, p_rows, 0)
        on conflict (workspace_id, name, part) do update set used = c.used + excluded.used;
  elsif p_rows < 0 then
    -- As in count_rows, deletions lock nothing. Now and then one makes a single row of those written before, so that whoever
    -- asks for the total reads about a hundred at most.
    insert into workspace_returns (workspace_id, name, rows) values (p_workspace, p_place, -p_rows);
    if random() < 0.02 then
      with free as materialized (
        select r.id from workspace_returns r where r.workspace_id = p_workspace and r.name = p_place
         limit 10000 for update skip locked
      ), taken as (
        delete from workspace_returns where id in (select id from free) returning rows
      )
      insert into workspace_returns (workspace_id, name, rows)
      select p_workspace, p_place, sum(rows) from taken having count(*) > 0;
    end if;
  end if;
end
$$;

-- Rows of a workspace, or of one place in it, as of the snapshot of whoever asks.
create function total_of(p_workspace text, p_name text) returns bigint
language sql stable as $$
  select (coalesce((select sum(used) from workspace_counts where workspace_id = p_workspace and name = p_name), 0)
        - coalesce((select sum(rows) from workspace_returns where workspace_id = p_workspace and name = p_name), 0))::bigint
$$;

-- For bounds: counts of places have none.
create or replace view workspace_used as
select workspace_id, name, sum(used)::bigint as used
  from (select workspace_id, name, used from workspace_counts
         union all
        select workspace_id, name, -rows from workspace_returns) as counted
 where position('/' in name) = 0
 group by workspace_id, name;

-- Those of places make themselves few (count_in_place).
create or replace function take_returns(p_workspace text, p_name text) returns void
language plpgsql as $$
begin
  if position('/' in p_name) > 0 then
    return;
  end if;
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

create function count_keys_of_keyspaces() returns trigger
language plpgsql as $$
declare
  changed record;
begin
  if tg_op = 'INSERT' then
    for changed in
      select workspace_id, keyspace_id, count(*) as rows from made
       where deleted_at is null and for_workspace_id is null group by 1, 2 order by 1, 2
    loop
      perform count_in_place(changed.workspace_id, 'keys/' || changed.keyspace_id, changed.rows);
    end loop;
  else
    for changed in
      select workspace_id, keyspace_id, count(*) as rows from lost
       where deleted_at is null and for_workspace_id is null group by 1, 2 order by 1, 2
    loop
      perform count_in_place(changed.workspace_id, 'keys/' || changed.keyspace_id, -changed.rows);
    end loop;
  end if;
  return null;
end
$$;
-- Named so that they follow count_made and count_lost.
create trigger count_made_in_place after insert on keys
  referencing new table as made for each statement execute function count_keys_of_keyspaces();
create trigger count_lost_in_place after delete on keys
  referencing old table as lost for each statement execute function count_keys_of_keyspaces();

-- Soft deletions of keys. A trigger for the statement that sees its rows would cost each spending of credits something, as
-- Postgres has none of those for single columns. So each deleted row is noted in settings of the transaction, keyspace by
-- keyspace, and the statement counts what was noted.
create function note_deleted_key() returns trigger
language plpgsql as $$
declare
  rows constant bigint := case when new.deleted_at is null then 1 else -1 end;
begin
  if current_setting('tollgate.noted_keyspace', true) = new.keyspace_id then
    perform set_config('tollgate.noted_rows', (current_setting('tollgate.noted_rows')::bigint + rows)::text, true);
  else
    perform count_noted_keys();
    perform set_config('tollgate.noted_workspace', new.workspace_id, true),
            set_config('tollgate.noted_keyspace', new.keyspace_id, true),
            set_config('tollgate.noted_rows', rows::text, true);
  end if;
  return null;
end
$$;
create function count_noted_keys() returns void
language plpgsql as $$
declare
  keyspace constant text := current_setting('tollgate.noted_keyspace', true);
begin
  if keyspace <> '' then
    perform set_config('tollgate.noted_keyspace', '', true);
    perform count_in_place(current_setting('tollgate.noted_workspace'), 'keys/' || keyspace,
                           current_setting('tollgate.noted_rows')::bigint);
  end if;
end
$$;
create function count_deleted_keys() returns trigger
language plpgsql as $$
begin
  perform count_noted_keys();
  return null;
end
$$;
create trigger note_deleted after update of deleted_at on keys for each row
  when ((old.deleted_at is null) <> (new.deleted_at is null) and new.for_workspace_id is null)
  execute function note_deleted_key();
create trigger count_deleted after update of deleted_at on keys
  for each statement execute function count_deleted_keys();

create function count_overrides_of_namespaces() returns trigger
language plpgsql as $$
declare
  changed record;
begin
  if tg_op = 'INSERT' then
    for changed in
      select workspace_id, namespace_id, count(*) as rows from made where deleted_at is null group by 1, 2 order by 1, 2
    loop
      perform count_in_place(changed.workspace_id, 'overrides/' || changed.namespace_id, changed.rows);
    end loop;
  elsif tg_op = 'DELETE' then
    for changed in
      select workspace_id, namespace_id, count(*) as rows from lost where deleted_at is null group by 1, 2 order by 1, 2
    loop
      perform count_in_place(changed.workspace_id, 'overrides/' || changed.namespace_id, -changed.rows);
    end loop;
  else
    for changed in
      select workspace_id, namespace_id, sum(rows)::bigint as rows
        from (select workspace_id, namespace_id, 1 as rows from made where deleted_at is null
               union all
              select workspace_id, namespace_id, -1 from lost where deleted_at is null) as both_ways
       group by 1, 2 order by 1, 2
    loop
      perform count_in_place(changed.workspace_id, 'overrides/' || changed.namespace_id, changed.rows);
    end loop;
  end if;
  return null;
end
$$;
create trigger count_made_in_place after insert on ratelimit_overrides
  referencing new table as made for each statement execute function count_overrides_of_namespaces();
create trigger count_lost_in_place after delete on ratelimit_overrides
  referencing old table as lost for each statement execute function count_overrides_of_namespaces();
create trigger count_changed_in_place after update on ratelimit_overrides
  referencing old table as lost new table as made for each statement execute function count_overrides_of_namespaces();

-- A place that is removed for good takes its count with it.
create function forget_count_of_place() returns trigger
language plpgsql as $$
begin
  delete from workspace_returns r using lost
   where r.workspace_id = lost.workspace_id and r.name = tg_argv[0] || lost.id;
  delete from workspace_counts c using lost
   where c.workspace_id = lost.workspace_id and c.name = tg_argv[0] || lost.id;
  return null;
end
$$;
create trigger forget_count after delete on keyspaces
  referencing old table as lost for each statement execute function forget_count_of_place('keys/');
create trigger forget_count after delete on ratelimit_namespaces
  referencing old table as lost for each statement execute function forget_count_of_place('overrides/');
