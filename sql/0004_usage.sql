-- Usage: hourly counts of verifications and of rate limits, added up as they are flushed.
--
-- Partitioned by month (UTC), so that a query reads the months it asks for and an old month goes as a whole. Partitions
-- are made by make_usage_month, ahead of time and for late events on demand. No foreign keys: the counts of a deleted key,
-- identity or namespace remain.

create table usage_writers (
  id         text collate "C" primary key,
  last_batch bigint not null,
  seen_at    bigint not null
);
comment on table usage_writers is 'Who sends usage, and the last batch that was counted: a batch sent again counts once.';

create table usage_verifications (
  hour                     bigint not null,
  valid                    integer not null,
  rate_limited             integer not null,
  expired                  integer not null,
  disabled                 integer not null,
  forbidden                integer not null,
  usage_exceeded           integer not null,
  insufficient_permissions integer not null,
  workspace_id             text collate "C" not null,
  keyspace_id              text collate "C" not null,
  key_id                   text collate "C" not null,
  identity_id              text collate "C" not null,
  tag_set                  bytea not null,
  primary key (keyspace_id, hour, key_id, identity_id, tag_set)
) partition by range (hour);
comment on table usage_verifications is 'Counts are 32 bits: adding them up is a third faster, and no cell sees 596 000 a second for an hour.';
comment on column usage_verifications.hour is 'Start of the hour (UTC) in which the verification was decided.';
comment on column usage_verifications.identity_id is 'As connected at that moment; empty = none.';
comment on column usage_verifications.tag_set is 'usage_tag_sets.id of the same month; empty = no tags.';
create index usage_verifications_by_key on usage_verifications (key_id, hour);

-- The same counts by keyspace alone. A chart of a whole API is what is asked most, and needs no row of a key.
create table usage_keyspace_hours (
  hour                     bigint not null,
  valid                    bigint not null,
  rate_limited             bigint not null,
  expired                  bigint not null,
  disabled                 bigint not null,
  forbidden                bigint not null,
  usage_exceeded           bigint not null,
  insufficient_permissions bigint not null,
  workspace_id             text collate "C" not null,
  keyspace_id              text collate "C" not null,
  primary key (keyspace_id, hour)
) partition by range (hour);

-- A tag set is kept once for each month that uses it, so that it goes together with the month's counts.
create table usage_tag_sets (
  month        bigint not null,
  workspace_id text collate "C" not null,
  id           bytea not null,
  tags         text[] collate "C" not null,
  primary key (workspace_id, month, id)
) partition by range (month);
comment on column usage_tag_sets.id is 'SHA-256 of the sorted tags as a JSON list. Whole, not shortened: two sets never share an id.';
create index usage_tag_sets_by_tag on usage_tag_sets using gin (tags);

create table usage_ratelimits (
  hour         bigint not null,
  passed       bigint not null,
  denied       bigint not null,
  identifiers  integer not null default 0,
  is_closed    boolean not null default false,
  workspace_id text collate "C" not null,
  namespace_id text collate "C" not null,
  primary key (namespace_id, hour)
) partition by range (hour);
comment on column usage_ratelimits.identifiers is 'How many identifiers of this hour were ever given a row of their own. Never falls.';
comment on column usage_ratelimits.is_closed is 'The hour is over and its identifiers are cut to those with the most traffic; no more are taken in.';
create index usage_ratelimits_open on usage_ratelimits (hour) where not is_closed;

-- Exact from an identifier's first call of the hour or not here at all: what is not here is the rest, total minus these.
create table usage_ratelimit_identifiers (
  hour         bigint not null,
  passed       bigint not null,
  denied       bigint not null,
  workspace_id text collate "C" not null,
  namespace_id text collate "C" not null,
  identifier   text collate "C" not null,
  primary key (namespace_id, hour, identifier)
) partition by range (hour);
create index usage_ratelimit_identifiers_by_identifier on usage_ratelimit_identifiers (namespace_id, identifier, hour);

-- Makes the partitions of the month (UTC) that holds p_at, unless they exist. A new table is attached rather than made in
-- place: that neither waits for running queries nor holds them up.
create function make_usage_month(p_at bigint) returns void
language plpgsql as $$
declare
  starts timestamp := date_trunc('month', to_timestamp(p_at / 1000) at time zone 'UTC');
  starts_ms bigint := extract(epoch from starts)::bigint * 1000;
  ends_ms bigint := extract(epoch from starts + interval '1 month')::bigint * 1000;
  parent text;
  part text;
begin
  perform pg_advisory_xact_lock(7305412001);
  foreach parent in array array['usage_verifications', 'usage_keyspace_hours', 'usage_tag_sets', 'usage_ratelimits', 'usage_ratelimit_identifiers'] loop
    part := parent || '_' || to_char(starts, 'YYYYMM');
    continue when to_regclass(part) is not null;
    -- Room on the page: a count that grows rewrites its row, and should not touch an index.
    execute format('create table %I (like %I including all) with (fillfactor = 75)', part, parent);
    execute format('alter table %I attach partition %I for values from (%s) to (%s)', parent, part, starts_ms, ends_ms);
  end loop;
end
$$;

-- Drops the partitions of one table whose months end at or before p_before (Unix ms), and returns their names. One table
-- a call: it needs the table to itself for a moment, and who held two could meet a flush that has them the other way round.
create function drop_usage_months(p_table text, p_before bigint) returns setof text
language plpgsql set lock_timeout = '2s' as $$
declare
  part text;
  before_month text := to_char(to_timestamp(p_before / 1000) at time zone 'UTC', 'YYYYMM');
begin
  perform pg_advisory_xact_lock(7305412001);
  for part in
    select c.relname
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     where i.inhparent = p_table::regclass and right(c.relname::text, 6) < before_month
     order by c.relname
  loop
    execute format('drop table %I', part);
    return next part;
  end loop;
end
$$;

-- Counts one batch, all of it or nothing, unless this writer's batch of that number was counted before (then: false).
-- The writer's row is locked first, so a batch sent again waits for its first sending to end. Every insert adds up what
-- the batch holds twice and goes in the order of its key, so two writers cannot deadlock.
-- p_scope_…: distinct workspace and keyspace pairs, and p_set_…: distinct tag sets; rows name them by position from 1 (set 0 = none).
-- p_scopes to p_insufficient_permissions: a row for each of p_keys. Any other of these columns may hold one value for all rows.
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
begin
  insert into usage_writers as w (id, last_batch, seen_at)
  values (p_writer, p_batch, p_now)
      on conflict (id) do update set last_batch = excluded.last_batch, seen_at = excluded.seen_at
   where w.last_batch < excluded.last_batch;
  if not found then
    return false;
  end if;

  insert into usage_tag_sets (month, workspace_id, id, tags)
  select s.month, s.workspace_id, decode(s.id, 'hex'), s.tags::text[]
    from unnest(p_set_workspaces, p_set_months, p_set_ids, p_set_tags) as s (workspace_id, month, id, tags)
   order by s.workspace_id collate "C", s.month, s.id collate "C"
      on conflict do nothing;

  insert into usage_verifications as v (
         workspace_id, keyspace_id, hour, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(scopes.workspace_id), scopes.keyspace_id, hours.hour, r.key_id, identities.id, coalesce(decode(sets.id, 'hex'), ''),
         sum(coalesce(r.valid, p_valid[1])), sum(coalesce(r.rate_limited, p_rate_limited[1])),
         sum(coalesce(r.expired, p_expired[1])), sum(coalesce(r.disabled, p_disabled[1])),
         sum(coalesce(r.forbidden, p_forbidden[1])), sum(coalesce(r.usage_exceeded, p_usage_exceeded[1])),
         sum(coalesce(r.insufficient_permissions, p_insufficient_permissions[1]))
    from unnest(p_scopes, p_sets, p_hours, p_keys, p_identities, p_valid, p_rate_limited, p_expired, p_disabled,
                p_forbidden, p_usage_exceeded, p_insufficient_permissions)
      as r (scope, set_at, hour, key_id, identity_id, valid, rate_limited, expired, disabled,
            forbidden, usage_exceeded, insufficient_permissions)
   cross join lateral (select coalesce(r.hour, p_hours[1])) as hours (hour)
   cross join lateral (select coalesce(r.identity_id, p_identities[1])) as identities (id)
    join unnest(p_scope_workspaces, p_scope_keyspaces) with ordinality as scopes (workspace_id, keyspace_id, at)
      on scopes.at = coalesce(r.scope, p_scopes[1])
    left join unnest(p_set_ids) with ordinality as sets (id, at) on sets.at = coalesce(r.set_at, p_sets[1])
   group by scopes.keyspace_id, hours.hour, r.key_id, identities.id, 6
   order by scopes.keyspace_id collate "C", hours.hour, r.key_id collate "C", identities.id collate "C", 6
      on conflict (keyspace_id, hour, key_id, identity_id, tag_set) do update
     set valid = v.valid + excluded.valid,
         rate_limited = v.rate_limited + excluded.rate_limited,
         expired = v.expired + excluded.expired,
         disabled = v.disabled + excluded.disabled,
         forbidden = v.forbidden + excluded.forbidden,
         usage_exceeded = v.usage_exceeded + excluded.usage_exceeded,
         insufficient_permissions = v.insufficient_permissions + excluded.insufficient_permissions;

  -- Last of the verifications: every batch of the keyspace waits for this row, so it is held for a short time only.
  insert into usage_keyspace_hours as h (
         workspace_id, keyspace_id, hour,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(scopes.workspace_id), scopes.keyspace_id, hours.hour,
         sum(coalesce(r.valid, p_valid[1])), sum(coalesce(r.rate_limited, p_rate_limited[1])),
         sum(coalesce(r.expired, p_expired[1])), sum(coalesce(r.disabled, p_disabled[1])),
         sum(coalesce(r.forbidden, p_forbidden[1])), sum(coalesce(r.usage_exceeded, p_usage_exceeded[1])),
         sum(coalesce(r.insufficient_permissions, p_insufficient_permissions[1]))
    from unnest(p_keys, p_scopes, p_hours, p_valid, p_rate_limited, p_expired, p_disabled,
                p_forbidden, p_usage_exceeded, p_insufficient_permissions)
      as r (key_id, scope, hour, valid, rate_limited, expired, disabled,
            forbidden, usage_exceeded, insufficient_permissions)
   cross join lateral (select coalesce(r.hour, p_hours[1])) as hours (hour)
    join unnest(p_scope_workspaces, p_scope_keyspaces) with ordinality as scopes (workspace_id, keyspace_id, at)
      on scopes.at = coalesce(r.scope, p_scopes[1])
   group by scopes.keyspace_id, hours.hour
   order by scopes.keyspace_id collate "C", hours.hour
      on conflict (keyspace_id, hour) do update
     set valid = h.valid + excluded.valid,
         rate_limited = h.rate_limited + excluded.rate_limited,
         expired = h.expired + excluded.expired,
         disabled = h.disabled + excluded.disabled,
         forbidden = h.forbidden + excluded.forbidden,
         usage_exceeded = h.usage_exceeded + excluded.usage_exceeded,
         insufficient_permissions = h.insufficient_permissions + excluded.insufficient_permissions;

  if cardinality(p_total_namespaces) = 0 then
    return true;
  end if;

  -- From here the rows of these hours are locked: who is taken in is decided by one writer at a time.
  insert into usage_ratelimits as t (workspace_id, namespace_id, hour, passed, denied)
  select min(r.workspace_id), r.namespace_id, r.hour, sum(r.passed)::bigint, sum(r.denied)::bigint
    from unnest(p_total_workspaces, p_total_namespaces, p_total_hours, p_total_passed, p_total_denied)
      as r (workspace_id, namespace_id, hour, passed, denied)
   group by r.namespace_id, r.hour
   order by r.namespace_id collate "C", r.hour
      on conflict (namespace_id, hour) do update
     set passed = t.passed + excluded.passed, denied = t.denied + excluded.denied;

  -- An identifier has a row from its first call of the hour, or never: once one was left out, the hour has
  -- p_identifiers_max of them (or is closed) and takes in no other.
  with given as (
    select totals.namespace_id, totals.hour, r.identifier,
           min(totals.workspace_id) as workspace_id, sum(r.passed)::bigint as passed, sum(r.denied)::bigint as denied
      from unnest(p_totals, p_identifiers, p_passed, p_denied) as r (total, identifier, passed, denied)
      join unnest(p_total_workspaces, p_total_namespaces, p_total_hours) with ordinality
        as totals (workspace_id, namespace_id, hour, at) on totals.at = r.total
     group by totals.namespace_id, totals.hour, r.identifier
  ), placed as (
    select given.*, known.identifier is null as is_new,
           row_number() over (partition by given.namespace_id, given.hour, known.identifier is null
                                  order by given.passed + given.denied desc, given.identifier) as place
      from given
      left join usage_ratelimit_identifiers known
        on known.namespace_id = given.namespace_id and known.hour = given.hour and known.identifier = given.identifier
  ), taken as (
    select placed.*
      from placed
      join usage_ratelimits t on t.namespace_id = placed.namespace_id and t.hour = placed.hour
     where not placed.is_new or (not t.is_closed and t.identifiers + placed.place <= p_identifiers_max)
  ), counted as (
    insert into usage_ratelimit_identifiers as i (workspace_id, namespace_id, hour, identifier, passed, denied)
    select workspace_id, namespace_id, hour, identifier, passed, denied
      from taken
     order by namespace_id collate "C", hour, identifier collate "C"
        on conflict (namespace_id, hour, identifier) do update
       set passed = i.passed + excluded.passed, denied = i.denied + excluded.denied
  )
  update usage_ratelimits t
     set identifiers = t.identifiers + news.count
    from (select namespace_id, hour, count(*)::integer as count from taken where is_new group by namespace_id, hour) as news
   where t.namespace_id = news.namespace_id and t.hour = news.hour;
  return true;
end
$$;

-- Closes hours before p_before, at most p_hours_max of them: of each, the p_keep identifiers with the most traffic keep
-- their rows, the others become part of the rest. Returns how many were closed.
create function close_ratelimit_hours(p_before bigint, p_keep integer, p_hours_max integer) returns integer
language plpgsql set lock_timeout = '2s' as $$
declare
  open record;
  closed integer := 0;
begin
  for open in
    select namespace_id, hour, identifiers
      from usage_ratelimits
     where not is_closed and hour < p_before
     order by namespace_id collate "C", hour
     limit p_hours_max
       for update skip locked
  loop
    if open.identifiers > p_keep then
      delete from usage_ratelimit_identifiers i
       using (select identifier
                from usage_ratelimit_identifiers
               where namespace_id = open.namespace_id and hour = open.hour
               order by passed + denied desc, identifier
              offset p_keep) as surplus
       where i.namespace_id = open.namespace_id and i.hour = open.hour and i.identifier = surplus.identifier;
    end if;
    update usage_ratelimits set is_closed = true where namespace_id = open.namespace_id and hour = open.hour;
    closed := closed + 1;
  end loop;
  return closed;
end
$$;
