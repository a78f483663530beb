-- Usage by day beside usage by hour: questions for whole days, months or everything read a row a day instead of up to 24.
--
-- A day's rows are made from its hours once it is over, in slices, oldest day first (make_usage_days). The hours that were
-- there before this version are made the same way, so this file reads no usage. From the moment that a day is begun, whatever changes
-- its hours makes the daily rows of those keys again in the same transaction: batches that arrive late (apply_usage_batch),
-- and rows that move to another tag set or to a pseudonym (a trigger).

create table usage_verification_days (
  day                      bigint not null,
  valid                    bigint not null,
  rate_limited             bigint not null,
  expired                  bigint not null,
  disabled                 bigint not null,
  forbidden                bigint not null,
  usage_exceeded           bigint not null,
  insufficient_permissions bigint not null,
  workspace_id             text collate "C" not null,
  keyspace_id              text collate "C" not null,
  key_id                   text collate "C" not null,
  identity_id              text collate "C" not null,
  tag_set                  bytea not null,
  primary key (keyspace_id, day, key_id, identity_id, tag_set)
) partition by range (day);
comment on table usage_verification_days is 'Sums of usage_verifications by day (UTC): all days before usage_days_made.made_before, and perhaps some keys of that day.';
create index usage_verification_days_by_key on usage_verification_days (key_id, day);
create index usage_verification_days_by_identity on usage_verification_days (identity_id, day) where identity_id <> '';

create table usage_days_made (
  is_only     boolean primary key default true check (is_only),
  made_before bigint not null,
  open_from   bigint not null,
  keyspace_id text collate "C" not null default '',
  key_id      text collate "C" not null default ''
);
comment on column usage_days_made.made_before is 'Start of a day (UTC): every day before it has its daily rows. Only grows.';
comment on column usage_days_made.open_from is 'Hours from here on are counted without daily rows. A day later than made_before while that day is being made.';
comment on column usage_days_made.key_id is 'Of the day being made: keyspaces before keyspace_id are done, and of that one the keys up to this.';

-- Finds a day's keyspaces one after the other, and the first hour after an empty time. A row an hour for each keyspace:
-- building it takes a second for some million.
create index usage_keyspace_hours_by_hour on usage_keyspace_hours (hour, keyspace_id);

-- One identity over a range, without the rows of all others. Built at once where a month is small: writers of usage wait for
-- it, a second a million rows, and requests do not. A larger month goes without: its days answer from the daily rows.
create index usage_verifications_by_identity on only usage_verifications (identity_id, hour) where identity_id <> '';

-- Hours to close, in the order in which they are closed.
create index usage_ratelimits_to_close on usage_ratelimits (hour, namespace_id) where not is_closed;
drop index usage_ratelimits_open;

do $$
declare
  part text;
begin
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'usage_verifications'::regclass
       and pg_relation_size(c.oid) < 1000000000
  loop
    execute format('create index %I on %I (identity_id, hour) where identity_id <> %L', part || '_identity_id_hour_idx', part, '');
    execute format('alter index usage_verifications_by_identity attach partition %I', part || '_identity_id_hour_idx');
  end loop;
end
$$;

create or replace function make_usage_month(p_at bigint) returns void
language plpgsql as $$
declare
  starts timestamp := date_trunc('month', to_timestamp(p_at / 1000) at time zone 'UTC');
  starts_ms bigint := extract(epoch from starts)::bigint * 1000;
  ends_ms bigint := extract(epoch from starts + interval '1 month')::bigint * 1000;
  parent text;
  part text;
begin
  perform pg_advisory_xact_lock(7305412001);
  foreach parent in array array['usage_verifications', 'usage_verification_days', 'usage_keyspace_hours', 'usage_tag_sets',
                                'usage_tag_set_hours', 'usage_ratelimits', 'usage_ratelimit_identifiers'] loop
    part := parent || '_' || to_char(starts, 'YYYYMM');
    continue when to_regclass(part) is not null;
    -- Room on the page: a count that grows rewrites its row, and should not touch an index.
    execute format('create table %I (like %I including all) with (fillfactor = 75)', part, parent);
    execute format('alter table %I attach partition %I for values from (%s) to (%s)', parent, part, starts_ms, ends_ms);
  end loop;
end
$$;

-- The months that are there, whose servers may be running and will not ask for them again. The first of them is where the
-- daily rows begin; without any it is the current month. Earlier hours that arrive later are late ones.
do $$
declare
  first timestamp := date_trunc('month', now() at time zone 'UTC');
  month record;
begin
  for month in
    select distinct to_date(right(c.relname::text, 6), 'YYYYMM')::timestamp as starts
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'usage_verifications'::regclass
  loop
    perform make_usage_month(extract(epoch from month.starts)::bigint * 1000);
    first := least(first, month.starts);
  end loop;
  insert into usage_days_made (made_before, open_from)
  values (extract(epoch from first)::bigint * 1000, extract(epoch from first)::bigint * 1000);
end
$$;

-- For whoever is about to change hours from p_hour on: whether the daily rows must be changed too. Then it waits for others
-- that do. The first lock is the one that erasures and make_usage_days hold alone: open_from does not move before this
-- transaction has ended.
create function hold_usage_days(p_hour bigint) returns boolean
language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(8317504812);
  if p_hour is null or p_hour >= (select open_from from usage_days_made) then
    return false;
  end if;
  perform pg_advisory_xact_lock(7305412003);
  return true;
end
$$;

-- Makes the daily rows of some keys from their hours, or makes them again: exact whatever was there. The lock must be held. The keys
-- are those from p_from[i] up to p_upto[i]. `offset 0` makes each hour of each range a look-up of its own, whatever the
-- statistics say; compiling for so large an estimate would take half a second.
create function make_usage_day_of(p_keyspace text, p_day bigint, p_from text[], p_upto text[]) returns void
language sql set jit = off as $$
  insert into usage_verification_days (
         workspace_id, keyspace_id, day, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(h.workspace_id), p_keyspace, p_day, h.key_id, h.identity_id, h.tag_set,
         sum(h.valid), sum(h.rate_limited), sum(h.expired), sum(h.disabled),
         sum(h.forbidden), sum(h.usage_exceeded), sum(h.insufficient_permissions)
    from unnest(p_from, p_upto) as keys (first, last)
   cross join generate_series(p_day, p_day + 82800000, 3600000) as at (hour)
   cross join lateral (
         select * from usage_verifications v
          where v.keyspace_id = p_keyspace and v.hour = at.hour and v.key_id >= keys.first and v.key_id <= keys.last
         offset 0) as h
   group by h.key_id, h.identity_id, h.tag_set
   order by h.key_id, h.identity_id, h.tag_set
      on conflict (keyspace_id, day, key_id, identity_id, tag_set) do update
     set valid = excluded.valid, rate_limited = excluded.rate_limited, expired = excluded.expired,
         disabled = excluded.disabled, forbidden = excluded.forbidden, usage_exceeded = excluded.usage_exceeded,
         insufficient_permissions = excluded.insufficient_permissions
$$;

-- The same for rows of usage_verifications that changed: keyspaces, hours and keys side by side.
create function remake_usage_days(p_keyspaces text[], p_hours bigint[], p_keys text[]) returns void
language plpgsql as $$
declare
  open_hours_from bigint := (select open_from from usage_days_made);
  changed record;
begin
  for changed in
    select r.keyspace_id, r.hour - r.hour % 86400000 as day, array_agg(distinct r.key_id) as keys
      from unnest(p_keyspaces, p_hours, p_keys) as r (keyspace_id, hour, key_id)
     where r.hour < open_hours_from
     group by 1, 2
  loop
    perform make_usage_day_of(changed.keyspace_id, changed.day, changed.keys, changed.keys);
  end loop;
end
$$;

-- Hourly rows are deleted when their counts move: to the tag set "(other)", to the pseudonym of an identity, or to that of a key.
create function remake_days_of_moved_usage() returns trigger
language plpgsql as $$
begin
  if hold_usage_days((select min(hour) from moved)) then
    delete from usage_verification_days d
     using moved
     where d.keyspace_id = moved.keyspace_id and d.day = moved.hour - moved.hour % 86400000
       and d.key_id = moved.key_id and d.identity_id = moved.identity_id and d.tag_set = moved.tag_set;
    perform remake_usage_days(array_agg(m.keyspace_id), array_agg(m.hour), array_agg(m.key_id))
       from (select keyspace_id, hour, key_id from moved
              union all
             select moved.keyspace_id, moved.hour, e.pseudonym
               from moved
               join erasures e on e.workspace_id = moved.workspace_id and e.name_hash = erased_hash(moved.key_id)) as m;
  end if;
  return null;
end
$$;
create trigger usage_moved after delete on usage_verifications referencing old table as moved
  for each statement execute function remake_days_of_moved_usage();

-- A batch counts hours as before, and late ones in their days too.
alter function apply_usage_batch rename to apply_usage_batch_to_hours;
create function apply_usage_batch(
  p_writer text, p_batch bigint, p_now bigint, p_identifiers_max integer,
  p_scope_workspaces text[], p_scope_keyspaces text[],
  p_set_workspaces text[], p_set_months bigint[], p_set_ids text[], p_set_tags text[],
  p_scopes integer[], p_sets integer[], p_hours bigint[], p_keys text[], p_identities text[],
  p_valid integer[], p_rate_limited integer[], p_expired integer[], p_disabled integer[], p_forbidden integer[],
  p_usage_exceeded integer[], p_insufficient_permissions integer[],
  p_total_workspaces text[], p_total_namespaces text[], p_total_hours bigint[], p_total_passed bigint[], p_total_denied bigint[],
  p_totals integer[], p_identifiers text[], p_passed bigint[], p_denied bigint[]
) returns boolean
language plpgsql set lock_timeout = '10s' as $$
declare
  is_late boolean := hold_usage_days((select min(hour) from unnest(p_hours) as hour));
begin
  if not apply_usage_batch_to_hours(
    p_writer, p_batch, p_now, p_identifiers_max, p_scope_workspaces, p_scope_keyspaces,
    p_set_workspaces, p_set_months, p_set_ids, p_set_tags, p_scopes, p_sets, p_hours, p_keys, p_identities,
    p_valid, p_rate_limited, p_expired, p_disabled, p_forbidden, p_usage_exceeded, p_insufficient_permissions,
    p_total_workspaces, p_total_namespaces, p_total_hours, p_total_passed, p_total_denied,
    p_totals, p_identifiers, p_passed, p_denied) then
    return false;
  end if;
  if is_late then
    perform remake_usage_days(array_agg(scopes.keyspace_id), array_agg(coalesce(r.hour, p_hours[1])), array_agg(r.key_id))
       from unnest(p_keys, p_scopes, p_hours) as r (key_id, scope, hour)
       join unnest(p_scope_keyspaces) with ordinality as scopes (keyspace_id, at) on scopes.at = coalesce(r.scope, p_scopes[1]);
  end if;
  return true;
end
$$;

-- Makes the next slice of daily rows. One caller at a time, each call goes on after the one before. Returns false when there is
-- nothing to do: every day before p_before (start of a day, Unix ms) is made, or another is making them.
create function make_usage_days(p_before bigint, p_rows integer) returns boolean
language plpgsql set lock_timeout = '2s' as $$
declare
  made usage_days_made;
  of_keyspace text collate "C";
  after_key text collate "C";
  keys text[];
  hours bigint[];
  effort integer := 0;
begin
  select * into made from usage_days_made for update skip locked;
  if not found then
    return false;
  end if;

  if made.open_from = made.made_before then
    if made.made_before >= p_before then
      return false;
    end if;
    -- Who began to count before this has ended, and who begins after it sees the new open_from. Days without usage are skipped.
    perform pg_advisory_xact_lock(8317504812);
    select coalesce(min(hour) - min(hour) % 86400000, p_before) into made.made_before
      from usage_keyspace_hours where hour >= made.made_before and hour < p_before;
    update usage_days_made
       set made_before = made.made_before, keyspace_id = '', key_id = '',
           open_from = least(made.made_before + 86400000, p_before);
    return true;
  end if;

  perform pg_advisory_xact_lock(7305412003);
  of_keyspace := made.keyspace_id;
  after_key := made.key_id;
  hours := array(select generate_series(made.made_before, made.made_before + 82800000, 3600000));
  while effort < p_rows loop
    -- The next keys of the keyspace: each hour's next rows, up to where all hours have been read.
    with firsts as (
      select at.hour, first.key_id
        from unnest(hours) as at (hour)
       cross join lateral (
             select v.key_id from usage_verifications v
              where v.keyspace_id = of_keyspace and v.hour = at.hour and v.key_id > after_key
              order by v.key_id limit p_rows) as first
    ), ends as (
      select max(key_id) as key_id from firsts group by hour having count(*) = p_rows
    )
    select array_agg(distinct key_id order by key_id) into keys from firsts where key_id <= all (select key_id from ends);
    if keys is not null then
      perform make_usage_day_of(of_keyspace, made.made_before, keys[1:1], keys[cardinality(keys):]);
      after_key := keys[cardinality(keys)];
      effort := effort + cardinality(keys);
      continue;
    end if;
    select min(first.keyspace_id) into of_keyspace
      from unnest(hours) as at (hour)
     cross join lateral (
           select k.keyspace_id from usage_keyspace_hours k
            where k.hour = at.hour and k.keyspace_id > of_keyspace
            order by k.keyspace_id limit 1) as first;
    if of_keyspace is null then
      update usage_days_made set made_before = open_from, keyspace_id = '', key_id = '';
      return true;
    end if;
    after_key := '';
    effort := effort + 10;
  end loop;
  update usage_days_made set keyspace_id = of_keyspace, key_id = after_key;
  return true;
end
$$;

-- As close_ratelimit_hours of 0004, which closed by namespace and read all closed hours before it: this one goes on after an hour
-- and namespace, and ends after some thousand identifiers. Returns the last one closed, or nothing when there is none left.
create function close_ratelimit_hours(
  p_before bigint, p_keep integer, p_hours_max integer, p_after_hour bigint, p_after_namespace text
) returns table (hour bigint, namespace_id text)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  open record;
  at_hour bigint := p_after_hour;
  after_namespace text collate "C" := p_after_namespace;
  room integer := 20 * p_hours_max;
  closed integer := 0;
begin
  -- Hour by hour: then the index has the rows in order, whatever the statistics say.
  while at_hour is not null loop
    for open in
      select t.namespace_id, t.identifiers
        from usage_ratelimits t
       where not t.is_closed and t.hour = at_hour and t.namespace_id > after_namespace
       order by t.namespace_id
       limit p_hours_max - closed
         for update skip locked
    loop
      if open.identifiers > p_keep then
        delete from usage_ratelimit_identifiers i
         using (select identifier
                  from usage_ratelimit_identifiers
                 where namespace_id = open.namespace_id and hour = at_hour
                 order by passed + denied desc, identifier
                offset p_keep) as surplus
         where i.namespace_id = open.namespace_id and i.hour = at_hour and i.identifier = surplus.identifier;
        room := room - open.identifiers;
      end if;
      update usage_ratelimits set is_closed = true where namespace_id = open.namespace_id and hour = at_hour;
      closed := closed + 1;
      after_namespace := open.namespace_id;
      if closed = p_hours_max or room <= 0 then
        return query select at_hour, after_namespace;
        return;
      end if;
    end loop;
    select min(t.hour) into at_hour from usage_ratelimits t where not t.is_closed and t.hour > at_hour and t.hour < p_before;
    after_namespace := '';
  end loop;
end
$$;
