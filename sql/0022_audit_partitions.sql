-- The audit log by months (UTC), so that an old month goes as a whole and no index grows for ever.
--
-- The table that was there becomes a partition of the new one as it is, in milliseconds whatever its size: no row is
-- copied or read. `era` is what makes that possible. Partition bounds on the time would have to be checked against every
-- row, but "era is not null" is known from the column. So: rows with an era are from before, rows without are by month.
-- A server of the release before does not name the column, and so writes by month too.
--
-- No foreign key to workspaces in the months: dropping one would lock that table, and verifications read it.

alter table audit_events rename to audit_events_before;
alter table audit_events_before add column era smallint not null default 0;

create table audit_events (
  id           text collate "C" not null,
  workspace_id text collate "C" not null,
  event        text collate "C" not null,
  actor_type   text not null,
  actor_id     text collate "C" not null,
  resources    jsonb not null,
  description  text not null,
  location     text,
  user_agent   text,
  occurred_at  bigint not null,
  seq          bigint not null default nextval('audit_events_seq'),
  era          smallint
) partition by range (era);
alter sequence audit_events_seq owned by audit_events.seq;
comment on column audit_events.resources is 'List of {type, id, name?, meta?, before?, after?}.';
comment on column audit_events.seq is 'Order of events of one database; 0 = before there was one, then by id.';
comment on column audit_events.era is 'Null, except for events that were there before the log was partitioned.';

-- As of the old table, whose indexes become parts of these.
create index audit_events_all_by_workspace on audit_events (workspace_id, id);
create index audit_events_all_by_resource on audit_events using gin (resources jsonb_path_ops);
create index audit_events_all_in_order on audit_events (workspace_id, seq, id);
create index audit_events_all_of_actor on audit_events (workspace_id, actor_id, seq, id);
create index audit_events_all_of_kind on audit_events (workspace_id, event, seq, id);
alter table audit_events attach partition audit_events_before for values from (minvalue) to (maxvalue);

create table audit_events_by_month partition of audit_events default partition by range (occurred_at);

-- What two or three filters of a list have in common. Each alone may find most of the log, and both together nothing: by
-- their own indexes all of it would be read. {"<event>": [<ids of resources>], "<actor>": [<the same>], "by": {"<event>": "<actor>"}}
-- Without ids of keys: a key has few events, which the index on resources finds, and would be most of this index.
create function audit_pairs(p_event text, p_actor_id text, p_resources jsonb) returns jsonb
language sql immutable parallel safe as $$
  select jsonb_set(jsonb_set(jsonb_set('{}', array['by'], jsonb_object(array[p_event], array[p_actor_id])),
                             array[p_event], jsonb_path_query_array(p_resources, '$[*].id ? (!(@ starts with "key_"))')),
                   array[p_actor_id], jsonb_path_query_array(p_resources, '$[*].id ? (!(@ starts with "key_"))'))
$$;
create index audit_events_by_month_by_pair on audit_events_by_month using gin (audit_pairs(event, actor_id, resources) jsonb_path_ops);

-- Events of a month that has no partition yet: a change never fails for want of one.
create table audit_events_unplaced partition of audit_events_by_month default;
alter table audit_events_unplaced add primary key (id);

-- Makes the partition of the month (UTC) that holds p_at, unless it exists, and moves its unplaced events there. Attaching
-- waits for who reads unplaced events, and holds up others meanwhile: not for longer than the time limit.
create function make_audit_month(p_at bigint) returns void
language plpgsql set lock_timeout = '1s' as $$
declare
  starts timestamp := date_trunc('month', to_timestamp(p_at / 1000) at time zone 'UTC');
  starts_ms bigint := extract(epoch from starts)::bigint * 1000;
  ends_ms bigint := extract(epoch from starts + interval '1 month')::bigint * 1000;
  part text := 'audit_events_' || to_char(starts, 'YYYYMM');
begin
  perform pg_advisory_xact_lock(7305412001);
  if to_regclass(part) is not null then
    return;
  end if;
  execute format('create table %I (like audit_events_by_month including all, primary key (id))', part);
  lock table audit_events_unplaced in access exclusive mode;
  execute format('insert into %I select * from audit_events_unplaced where occurred_at >= %s and occurred_at < %s', part, starts_ms, ends_ms);
  delete from audit_events_unplaced where occurred_at >= starts_ms and occurred_at < ends_ms;
  execute format('alter table audit_events_by_month attach partition %I for values from (%s) to (%s)', part, starts_ms, ends_ms);
end
$$;

select make_audit_month(at) from (
  select extract(epoch from month)::bigint * 1000 as at
    from generate_series(date_trunc('month', now() at time zone 'UTC'), now() at time zone 'UTC' + interval '1 month', interval '1 month') as month
) as months;
