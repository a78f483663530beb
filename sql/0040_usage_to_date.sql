-- oldest server: 0.1
-- Usage by month beside usage by day, and both up to date: a day's rows hold the hours of it that are over, a month's rows the days.
-- So a question for everything until now reads a row a month of a key, and one or two days and the last hours besides.
--
-- An hour is added to its day's rows when it is over (make_usage_days), a day to its month's rows when it has all of its hours
-- (make_usage_months): in slices, in the order of keyspaces and keys. How far each is stands in usage_days_made and
-- usage_months_made, changed in the same transaction as the rows. What changes later is made again from the finer rows, as in 0023.

create table usage_verification_months (
  month                    bigint not null,
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
  primary key (keyspace_id, month, key_id, identity_id, tag_set)
) partition by range (month);
comment on table usage_verification_months is 'Sums of usage_verification_days by month (UTC): all days before usage_months_made.made_before, and of that day the keys up to its cursor.';
create index usage_verification_months_by_key on usage_verification_months (key_id, month);
create index usage_verification_months_by_identity on usage_verification_months (identity_id, month) where identity_id <> '';

create table usage_months_made (
  is_only     boolean primary key default true check (is_only),
  made_before bigint not null,
  open_from   bigint not null,
  keyspace_id text collate "C" not null default '',
  key_id      text collate "C" not null default ''
);
comment on column usage_months_made.made_before is 'Start of a day (UTC): every day before it is in the rows of its month. Only grows.';
comment on column usage_months_made.open_from is 'Days from here on are in no row of a month. A day later than made_before while that day is being added.';
comment on column usage_months_made.key_id is 'Of the day being added: keyspaces before keyspace_id are in, and of that one the keys up to this.';

comment on table usage_verification_days is 'Sums of usage_verifications by day (UTC): all hours before usage_days_made.made_before, and of that hour the keys up to its cursor.';
comment on column usage_days_made.made_before is 'Start of an hour (UTC): every hour before it is in the rows of its day. Only grows.';
comment on column usage_days_made.open_from is 'Hours from here on are in no row of a day. An hour later than made_before while that hour is being added.';
comment on column usage_days_made.key_id is 'Of the hour being added: keyspaces before keyspace_id are in, and of that one the keys up to this.';

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
  foreach parent in array array['usage_verifications', 'usage_verification_days', 'usage_verification_months', 'usage_keyspace_hours',
                                'usage_tag_sets', 'usage_tag_set_hours', 'usage_ratelimits', 'usage_ratelimit_identifiers'] loop
    part := parent || '_' || to_char(starts, 'YYYYMM');
    continue when to_regclass(part) is not null;
    -- Room on the page: a count that grows rewrites its row, and should not touch an index.
    execute format('create table %I (like %I including all) with (fillfactor = 75)', part, parent);
    execute format('alter table %I attach partition %I for values from (%s) to (%s)', parent, part, starts_ms, ends_ms);
  end loop;
end
$$;

-- The months that are there. Rows of months begin with the first of them.
do $$
declare
  first timestamp := (select date_trunc('month', to_timestamp(made_before / 1000) at time zone 'UTC') from usage_days_made);
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
  insert into usage_months_made (made_before, open_from)
  values (extract(epoch from first)::bigint * 1000, extract(epoch from first)::bigint * 1000);
end
$$;

-- A day that the release before is in the middle of is begun again, by hours: a row a key goes.
do $$
declare
  made usage_days_made;
begin
  select * into made from usage_days_made for update;
  perform pg_advisory_xact_lock(7305412003);
  if made.open_from > made.made_before then
    delete from usage_verification_days where day >= made.made_before;
    update usage_days_made set open_from = made_before, keyspace_id = '', key_id = '';
  end if;
end
$$;

-- Makes the daily rows of some keys again from the hours that are in them: exact whatever was there. The lock 7305412003 must be held,
-- here and by all that follow. `offset 0` makes each hour a look-up of its own, whatever the statistics say; compiling for so large
-- an estimate would take half a second.
create function remake_usage_day_of(p_keyspace text, p_day bigint, p_keys text[]) returns void
language sql set jit = off as $$
  insert into usage_verification_days (
         workspace_id, keyspace_id, day, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(h.workspace_id), p_keyspace, p_day, h.key_id, h.identity_id, h.tag_set,
         sum(h.valid), sum(h.rate_limited), sum(h.expired), sum(h.disabled),
         sum(h.forbidden), sum(h.usage_exceeded), sum(h.insufficient_permissions)
    from unnest(p_keys) as keys (id)
   cross join usage_days_made as made
   cross join lateral generate_series(
         p_day,
         least(p_day + 86400000, case when (p_keyspace, keys.id) <= (made.keyspace_id, made.key_id) then made.open_from else made.made_before end) - 1,
         3600000) as at (hour)
   cross join lateral (
         select * from usage_verifications v
          where v.keyspace_id = p_keyspace and v.hour = at.hour and v.key_id = keys.id
         offset 0) as h
   group by h.key_id, h.identity_id, h.tag_set
   order by h.key_id, h.identity_id, h.tag_set
      on conflict (keyspace_id, day, key_id, identity_id, tag_set) do update
     set valid = excluded.valid, rate_limited = excluded.rate_limited, expired = excluded.expired,
         disabled = excluded.disabled, forbidden = excluded.forbidden, usage_exceeded = excluded.usage_exceeded,
         insufficient_permissions = excluded.insufficient_permissions
$$;

-- The same for rows of a month, from its days.
create function remake_usage_month_of(p_keyspace text, p_month bigint, p_keys text[]) returns void
language sql set jit = off as $$
  insert into usage_verification_months (
         workspace_id, keyspace_id, month, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(d.workspace_id), p_keyspace, p_month, d.key_id, d.identity_id, d.tag_set,
         sum(d.valid), sum(d.rate_limited), sum(d.expired), sum(d.disabled),
         sum(d.forbidden), sum(d.usage_exceeded), sum(d.insufficient_permissions)
    from unnest(p_keys) as keys (id)
   cross join usage_months_made as made
   cross join lateral generate_series(
         p_month,
         least(extract(epoch from to_timestamp(p_month / 1000) at time zone 'UTC' + interval '1 month')::bigint * 1000,
               case when (p_keyspace, keys.id) <= (made.keyspace_id, made.key_id) then made.open_from else made.made_before end) - 1,
         86400000) as at (day)
   cross join lateral (
         select * from usage_verification_days v
          where v.keyspace_id = p_keyspace and v.day = at.day and v.key_id = keys.id
         offset 0) as d
   group by d.key_id, d.identity_id, d.tag_set
   order by d.key_id, d.identity_id, d.tag_set
      on conflict (keyspace_id, month, key_id, identity_id, tag_set) do update
     set valid = excluded.valid, rate_limited = excluded.rate_limited, expired = excluded.expired,
         disabled = excluded.disabled, forbidden = excluded.forbidden, usage_exceeded = excluded.usage_exceeded,
         insufficient_permissions = excluded.insufficient_permissions
$$;

create function usage_month_of(p_at bigint) returns bigint
language sql stable as $$
  select extract(epoch from date_trunc('month', to_timestamp(p_at / 1000) at time zone 'UTC'))::bigint * 1000
$$;

-- The same for rows of usage_verifications that changed: keyspaces, hours and keys side by side.
create or replace function remake_usage_days(p_keyspaces text[], p_hours bigint[], p_keys text[]) returns void
language plpgsql as $$
declare
  open_hours_from bigint := (select open_from from usage_days_made);
  open_days_from bigint := (select open_from from usage_months_made);
  changed record;
begin
  for changed in
    select r.keyspace_id, r.hour - r.hour % 86400000 as day, array_agg(distinct r.key_id) as keys
      from unnest(p_keyspaces, p_hours, p_keys) as r (keyspace_id, hour, key_id)
     where r.hour < open_hours_from
     group by 1, 2
  loop
    perform remake_usage_day_of(changed.keyspace_id, changed.day, changed.keys);
  end loop;
  for changed in
    select days.keyspace_id, usage_month_of(days.day) as month, array_agg(distinct days.key_id) as keys
      from (select distinct r.keyspace_id, r.hour - r.hour % 86400000 as day, r.key_id
              from unnest(p_keyspaces, p_hours, p_keys) as r (keyspace_id, hour, key_id)) as days
     where days.day < open_days_from
     group by 1, 2
  loop
    perform remake_usage_month_of(changed.keyspace_id, changed.month, changed.keys);
  end loop;
end
$$;

-- As in 0023, for months too.
create or replace function remake_days_of_moved_usage() returns trigger
language plpgsql as $$
begin
  if hold_usage_days((select min(hour) from moved)) then
    delete from usage_verification_days d
     using moved
     where d.keyspace_id = moved.keyspace_id and d.day = moved.hour - moved.hour % 86400000
       and d.key_id = moved.key_id and d.identity_id = moved.identity_id and d.tag_set = moved.tag_set;
    delete from usage_verification_months m
     using (select distinct keyspace_id, usage_month_of(day) as month, key_id, identity_id, tag_set
              from (select distinct keyspace_id, hour - hour % 86400000 as day, key_id, identity_id, tag_set from moved) as days) as gone
     where m.keyspace_id = gone.keyspace_id and m.month = gone.month
       and m.key_id = gone.key_id and m.identity_id = gone.identity_id and m.tag_set = gone.tag_set;
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

-- Adds the next rows of an hour (of a day) to the rows of its day (month): about p_rows, those after a keyspace and key. Returns the last keyspace and
-- key that are in; no keyspace when none is left. A key is added with all of its rows.
create function add_usage_slice(
  p_source text, p_at_column text, p_at bigint, p_length bigint, p_target text, p_bucket_column text, p_bucket bigint, p_rows integer,
  inout of_keyspace text, inout upto_key text
) language plpgsql set jit = off as $$
declare
  room integer := p_rows;
  last_key text;
  added integer;
begin
  while room > 0 loop
    execute format('select key_id from %I where keyspace_id = $1 and %I = $2 and key_id > $3 order by key_id offset $4 limit 1',
                   p_source, p_at_column)
       into last_key using of_keyspace, p_at, upto_key, room - 1;
    execute format(
      'insert into %2$I as t (
              workspace_id, keyspace_id, %4$I, key_id, identity_id, tag_set,
              valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
       select workspace_id, keyspace_id, $1, key_id, identity_id, tag_set,
              valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions
         from %1$I
        where keyspace_id = $2 and %3$I = $3 and key_id > $4 and ($5 is null or key_id <= $5)
        order by key_id, identity_id, tag_set
           on conflict (keyspace_id, %4$I, key_id, identity_id, tag_set) do update
          set valid = t.valid + excluded.valid, rate_limited = t.rate_limited + excluded.rate_limited,
              expired = t.expired + excluded.expired, disabled = t.disabled + excluded.disabled,
              forbidden = t.forbidden + excluded.forbidden, usage_exceeded = t.usage_exceeded + excluded.usage_exceeded,
              insufficient_permissions = t.insufficient_permissions + excluded.insufficient_permissions',
      p_source, p_target, p_at_column, p_bucket_column)
      using p_bucket, of_keyspace, p_at, upto_key, last_key;
    get diagnostics added = row_count;
    room := room - greatest(added, 10); -- looking for the next keyspace takes time, too
    if last_key is not null then
      upto_key := last_key;
      continue;
    end if;
    select min(first.keyspace_id) into of_keyspace
      from generate_series(p_at, p_at + p_length - 1, 3600000) as at (hour)
     cross join lateral (
           select k.keyspace_id from usage_keyspace_hours k
            where k.hour = at.hour and k.keyspace_id > of_keyspace
            order by k.keyspace_id limit 1) as first;
    upto_key := '';
    exit when of_keyspace is null;
  end loop;
end
$$;

-- Adds the next slice of an hour to the rows of its day. One caller at a time, each call goes on after the one before. Returns false when
-- there is nothing to do: every hour before p_before (Unix ms) is in, or another is adding.
create or replace function make_usage_days(p_before bigint, p_rows integer) returns boolean
language plpgsql set lock_timeout = '2s' as $$
declare
  made usage_days_made;
begin
  select * into made from usage_days_made for update skip locked;
  if not found then
    return false;
  end if;
  if made.open_from = made.made_before then
    if made.made_before >= p_before then
      return false;
    end if;
    -- Who began to count before this has ended, and who begins after it sees the new open_from. Hours without usage are skipped.
    perform pg_advisory_xact_lock(8317504812);
    select coalesce(min(hour), p_before) into made.made_before
      from usage_keyspace_hours where hour >= made.made_before and hour < p_before;
    update usage_days_made
       set made_before = made.made_before, open_from = least(made.made_before + 3600000, p_before), keyspace_id = '', key_id = '';
    return true;
  end if;

  perform pg_advisory_xact_lock(7305412003);
  select of_keyspace, upto_key into made.keyspace_id, made.key_id
    from add_usage_slice('usage_verifications', 'hour', made.made_before, 3600000,
                         'usage_verification_days', 'day', made.made_before - made.made_before % 86400000,
                         p_rows, made.keyspace_id, made.key_id);
  if made.keyspace_id is null then
    update usage_days_made set made_before = open_from, keyspace_id = '', key_id = '';
  else
    update usage_days_made set keyspace_id = made.keyspace_id, key_id = made.key_id;
  end if;
  return true;
end
$$;

-- The same for days and the rows of their month: every day that has all of its hours.
create function make_usage_months(p_rows integer) returns boolean
language plpgsql set lock_timeout = '2s' as $$
declare
  made usage_months_made;
  days_before bigint;
begin
  select * into made from usage_months_made for update skip locked;
  if not found then
    return false;
  end if;
  select made_before - made_before % 86400000 into days_before from usage_days_made;
  if made.open_from = made.made_before and made.made_before >= days_before then
    return false;
  end if;
  -- Who changes a day's rows holds this alone, and then sees which days are in rows of their month.
  perform pg_advisory_xact_lock(7305412003);
  if made.open_from = made.made_before then
    select coalesce(min(hour) - min(hour) % 86400000, days_before) into made.made_before
      from usage_keyspace_hours where hour >= made.made_before and hour < days_before;
    update usage_months_made
       set made_before = made.made_before, open_from = least(made.made_before + 86400000, days_before), keyspace_id = '', key_id = '';
    return true;
  end if;
  select of_keyspace, upto_key into made.keyspace_id, made.key_id
    from add_usage_slice('usage_verification_days', 'day', made.made_before, 86400000,
                         'usage_verification_months', 'month', usage_month_of(made.made_before),
                         p_rows, made.keyspace_id, made.key_id);
  if made.keyspace_id is null then
    update usage_months_made set made_before = open_from, keyspace_id = '', key_id = '';
  else
    update usage_months_made set keyspace_id = made.keyspace_id, key_id = made.key_id;
  end if;
  return true;
end
$$;
