-- Tags are chosen by whoever calls, so what an hour keeps of them is bounded: so many sets of tags for each workspace
-- (bound `tagSets`), those with the most verifications. All other sets are counted together, as the set "(other)": what is
-- asked for without tags stays exact.

create table usage_tag_set_hours (
  hour         bigint not null,
  total        bigint not null,
  counted      bigint not null,
  workspace_id text collate "C" not null,
  tag_set      bytea not null,
  primary key (workspace_id, hour, tag_set)
) partition by range (hour);
comment on table usage_tag_set_hours is 'The sets of tags that an hour keeps, "(other)" not among them.';
comment on column usage_tag_set_hours.counted is 'Of the verifications those that took something: valid, rate limited, usage exceeded. Others were refused before, and cost whoever sends them nothing.';
create index usage_tag_set_hours_by_set on usage_tag_set_hours (workspace_id, tag_set);

-- Rows of a set that gives its place to another become rows of "(other)".
create index usage_verifications_by_tag_set on usage_verifications (tag_set, hour) where tag_set <> '';

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
  foreach parent in array array['usage_verifications', 'usage_keyspace_hours', 'usage_tag_sets', 'usage_tag_set_hours',
                                'usage_ratelimits', 'usage_ratelimit_identifiers'] loop
    part := parent || '_' || to_char(starts, 'YYYYMM');
    continue when to_regclass(part) is not null;
    -- Room on the page: a count that grows rewrites its row, and should not touch an index.
    execute format('create table %I (like %I including all) with (fillfactor = 75)', part, parent);
    execute format('alter table %I attach partition %I for values from (%s) to (%s)', parent, part, starts_ms, ends_ms);
  end loop;
end
$$;

-- The months that are there, whose servers may be running, and will not ask for them again.
do $$
declare
  month record;
begin
  for month in
    select distinct to_date(right(c.relname::text, 6), 'YYYYMM') as starts
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'usage_tag_sets'::regclass
  loop
    perform make_usage_month(extract(epoch from month.starts)::bigint * 1000);
  end loop;
end
$$;

create function other_tag_set() returns bytea
language sql immutable as $$ select sha256('["(other)"]'::bytea) $$;

-- Makes the rows of a set in one hour rows of "(other)", and forgets the set's tags unless another hour of the month has it.
create function fold_tag_set(p_workspace text, p_hour bigint, p_month bigint, p_set bytea) returns void
language plpgsql as $$
begin
  delete from usage_tag_set_hours where workspace_id = p_workspace and hour = p_hour and tag_set = p_set;
  with gone as (
    delete from usage_verifications
     where tag_set = p_set and hour = p_hour and workspace_id = p_workspace
    returning *
  )
  insert into usage_verifications as v (
         workspace_id, keyspace_id, hour, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select workspace_id, keyspace_id, hour, key_id, identity_id, other_tag_set(),
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions
    from gone
      on conflict (keyspace_id, hour, key_id, identity_id, tag_set) do update
     set valid = v.valid + excluded.valid,
         rate_limited = v.rate_limited + excluded.rate_limited,
         expired = v.expired + excluded.expired,
         disabled = v.disabled + excluded.disabled,
         forbidden = v.forbidden + excluded.forbidden,
         usage_exceeded = v.usage_exceeded + excluded.usage_exceeded,
         insufficient_permissions = v.insufficient_permissions + excluded.insufficient_permissions;
  insert into usage_tag_sets (month, workspace_id, id, tags) values (p_month, p_workspace, other_tag_set(), '{(other)}')
      on conflict do nothing;
  delete from usage_tag_sets s
   where s.workspace_id = p_workspace and s.month = p_month and s.id = p_set
     and not exists (
           select from usage_tag_set_hours h
            where h.workspace_id = p_workspace and h.tag_set = p_set and h.hour >= p_month
              and h.hour < extract(epoch from (to_timestamp(p_month / 1000) at time zone 'UTC') + interval '1 month')::bigint * 1000);
end
$$;

-- Decides which of the sets that were counted in one hour of a workspace have rows of their own, and counts them there.
-- A set that is there stays. New ones take the free places, those with the most verifications first; where none is free, one
-- with more verifications in this batch than another has in the whole hour takes that one's place. Sets of verifications
-- that were all refused before they took anything have a tenth of the places, or whoever holds a disabled key could fill
-- the hour. What a set had while it had no row stays in "(other)".
-- Whoever counts tags of the workspace waits for the others: one decides at a time.
-- p_sets: hex ids, each once. Returns those that have rows.
create function keep_tag_sets(
  p_workspace text, p_hour bigint, p_month bigint, p_sets text[], p_total bigint[], p_counted bigint[]
) returns setof text
language plpgsql as $$
declare
  bound bigint;
  known bigint;
  known_refused bigint;
  taken bigint;
  replaced record;
begin
  perform pg_advisory_xact_lock(730541202, hashtext(p_workspace));
  bound := bound_of(p_workspace, 'tagSets');
  update usage_tag_set_hours h
     set total = h.total + g.total, counted = h.counted + g.counted
    from unnest(p_sets, p_total, p_counted) as g (id, total, counted)
   where h.workspace_id = p_workspace and h.hour = p_hour and h.tag_set = decode(g.id, 'hex');
  select count(*), count(*) filter (where counted = 0) into known, known_refused
    from usage_tag_set_hours where workspace_id = p_workspace and hour = p_hour;

  insert into usage_tag_set_hours (workspace_id, hour, tag_set, total, counted)
  select p_workspace, p_hour, decode(id, 'hex'), total, counted
    from (select g.*, row_number() over (order by g.counted > 0 desc, g.total desc, g.id) as place,
                 row_number() over (partition by g.counted > 0 order by g.total desc, g.id) as place_of_kind
            from unnest(p_sets, p_total, p_counted) as g (id, total, counted)
           where not exists (select from usage_tag_set_hours h
                              where h.workspace_id = p_workspace and h.hour = p_hour and h.tag_set = decode(g.id, 'hex'))
         ) as placed
   where known + place <= bound and (counted > 0 or known_refused + place_of_kind <= bound / 10);
  get diagnostics taken = row_count;

  if known + taken >= bound then
    for replaced in
      select weak.tag_set as old, fresh.id, fresh.total, fresh.counted
        from (select g.*, row_number() over (order by g.counted desc, g.id) as place
                from unnest(p_sets, p_total, p_counted) as g (id, total, counted)
               where g.counted > 0
                 and not exists (select from usage_tag_set_hours h
                                  where h.workspace_id = p_workspace and h.hour = p_hour and h.tag_set = decode(g.id, 'hex'))
             ) as fresh
        join (select h.tag_set, h.counted, row_number() over (order by h.counted, h.total, h.tag_set) as place
                from usage_tag_set_hours h where h.workspace_id = p_workspace and h.hour = p_hour
             ) as weak using (place)
       where fresh.counted > weak.counted
       order by place
       limit 100 -- for a batch: the others have the next one's
    loop
      perform fold_tag_set(p_workspace, p_hour, p_month, replaced.old);
      insert into usage_tag_set_hours (workspace_id, hour, tag_set, total, counted)
      values (p_workspace, p_hour, decode(replaced.id, 'hex'), replaced.total, replaced.counted);
    end loop;
  end if;

  return query
    select g.id from unnest(p_sets) as g (id)
     where exists (select from usage_tag_set_hours h
                    where h.workspace_id = p_workspace and h.hour = p_hour and h.tag_set = decode(g.id, 'hex'));
end
$$;

-- What the identifiers of a workspace have in one hour, over all its namespaces.
create index usage_ratelimits_by_workspace on usage_ratelimits (workspace_id, hour) include (identifiers);

-- As in 0006, but that a set of tags which its hour does not keep is counted as "(other)", and that the identifiers of an hour
-- are bounded for a workspace too (bound `usageIdentifiers`): it may have thousands of namespaces. Writers of several
-- namespaces at once may each take the last places, so that bound is passed by a batch at most.
create or replace function apply_usage_batch(
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
  tagged record;
  kept_ats bigint[] := '{}';
  kept_hours bigint[] := '{}';
  has_others boolean := false;
begin
  insert into usage_writers as w (id, last_batch, seen_at)
  values (p_writer, p_batch, p_now)
      on conflict (id) do update set last_batch = excluded.last_batch, seen_at = excluded.seen_at
   where w.last_batch < excluded.last_batch;
  if not found then
    return false;
  end if;

  if cardinality(p_set_ids) > 0 then
    for tagged in
      select workspace_id, month, hour, array_agg(id order by id) as ids, array_agg(at order by id) as ats,
             array_agg(total order by id) as totals, array_agg(counted order by id) as counts
        from (select sets.workspace_id, sets.month, sets.id, sets.at, hours.hour,
                     sum(outcomes.counted)::bigint as counted, sum(outcomes.counted + outcomes.refused)::bigint as total
                from unnest(p_keys, p_sets, p_hours, p_valid, p_rate_limited, p_expired, p_disabled,
                            p_forbidden, p_usage_exceeded, p_insufficient_permissions)
                  as r (key_id, set_at, hour, valid, rate_limited, expired, disabled,
                        forbidden, usage_exceeded, insufficient_permissions)
               cross join lateral (select coalesce(r.hour, p_hours[1])) as hours (hour)
               cross join lateral (
                 select coalesce(r.valid, p_valid[1]) + coalesce(r.rate_limited, p_rate_limited[1])
                          + coalesce(r.usage_exceeded, p_usage_exceeded[1]),
                        coalesce(r.expired, p_expired[1]) + coalesce(r.disabled, p_disabled[1])
                          + coalesce(r.forbidden, p_forbidden[1])
                          + coalesce(r.insufficient_permissions, p_insufficient_permissions[1])
               ) as outcomes (counted, refused)
                join unnest(p_set_workspaces, p_set_months, p_set_ids) with ordinality as sets (workspace_id, month, id, at)
                  on sets.at = coalesce(r.set_at, p_sets[1])
               where sets.id <> encode(other_tag_set(), 'hex')
               group by 1, 2, 3, 4, 5) as counts
       group by workspace_id, month, hour
       order by hashtext(workspace_id), hour
    loop
      select kept_ats || array_agg(tagged.ats[array_position(tagged.ids, kept.id)]), kept_hours || array_agg(tagged.hour),
             has_others or count(*) < cardinality(tagged.ids)
        into kept_ats, kept_hours, has_others
        from keep_tag_sets(tagged.workspace_id, tagged.hour, tagged.month, tagged.ids, tagged.totals, tagged.counts) as kept (id);
    end loop;

    insert into usage_tag_sets (month, workspace_id, id, tags)
    select s.month, s.workspace_id, decode(s.id, 'hex'), s.tags::text[]
      from unnest(p_set_workspaces, p_set_months, p_set_ids, p_set_tags) with ordinality as s (workspace_id, month, id, tags, at)
     where s.at = any(kept_ats)
     order by s.workspace_id collate "C", s.month, s.id collate "C"
        on conflict do nothing;
    insert into usage_tag_sets (month, workspace_id, id, tags)
    select distinct s.month, s.workspace_id, other_tag_set(), '{(other)}'::text[]
      from unnest(p_set_workspaces, p_set_months, p_set_ids) with ordinality as s (workspace_id, month, id, at)
     where has_others or s.id = encode(other_tag_set(), 'hex')
     order by s.workspace_id, s.month
        on conflict do nothing;
  end if;

  insert into usage_verifications as v (
         workspace_id, keyspace_id, hour, key_id, identity_id, tag_set,
         valid, rate_limited, expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
  select min(scopes.workspace_id), scopes.keyspace_id, hours.hour, r.key_id, identities.id, 
         case when sets.at is null then '' when kept.at is null then other_tag_set() else decode(sets.id, 'hex') end,
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
    left join unnest(kept_ats, kept_hours) as kept (at, hour) on kept.at = sets.at and kept.hour = hours.hour
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
  -- p_identifiers_max of them (or is closed) and takes in no other. Those known are looked up once, by the update;
  -- in any order, as the rows of their hours are locked.
  with given as materialized (
    select totals.namespace_id, totals.hour, r.identifier,
           min(totals.workspace_id) as workspace_id, sum(r.passed)::bigint as passed, sum(r.denied)::bigint as denied
      from unnest(p_totals, p_identifiers, p_passed, p_denied) as r (total, identifier, passed, denied)
      join unnest(p_total_workspaces, p_total_namespaces, p_total_hours) with ordinality
        as totals (workspace_id, namespace_id, hour, at) on totals.at = r.total
     group by totals.namespace_id, totals.hour, r.identifier
  ), known as (
    update usage_ratelimit_identifiers i
       set passed = i.passed + given.passed, denied = i.denied + given.denied
      from given
     where i.namespace_id = given.namespace_id and i.hour = given.hour and i.identifier = given.identifier
    returning i.namespace_id, i.hour, i.identifier
  ), placed as (
    select given.*, row_number() over (partition by given.namespace_id, given.hour
                                           order by given.passed + given.denied desc, given.identifier) as place,
           row_number() over (partition by given.workspace_id, given.hour
                                  order by given.passed + given.denied desc, given.identifier) as place_in_workspace
      from given
     where (given.namespace_id, given.hour, given.identifier) not in (select namespace_id, hour, identifier from known)
  ), room as (
    select places.workspace_id, places.hour,
           bound_of(places.workspace_id, 'usageIdentifiers')
             - (select coalesce(sum(t.identifiers), 0) from usage_ratelimits t
                 where t.workspace_id = places.workspace_id and t.hour = places.hour) as left_over
      from (select distinct workspace_id, hour from placed) as places
  ), counted as (
    insert into usage_ratelimit_identifiers as i (workspace_id, namespace_id, hour, identifier, passed, denied)
    select placed.workspace_id, placed.namespace_id, placed.hour, placed.identifier, placed.passed, placed.denied
      from placed
      join usage_ratelimits t on t.namespace_id = placed.namespace_id and t.hour = placed.hour
      join room on room.workspace_id = placed.workspace_id and room.hour = placed.hour
     where not t.is_closed and t.identifiers + placed.place <= p_identifiers_max and placed.place_in_workspace <= room.left_over
    returning namespace_id, hour
  )
  update usage_ratelimits t
     set identifiers = t.identifiers + news.count
    from (select namespace_id, hour, count(*)::integer as count from counted group by namespace_id, hour) as news
   where t.namespace_id = news.namespace_id and t.hour = news.hour;
  return true;
end
$$;
