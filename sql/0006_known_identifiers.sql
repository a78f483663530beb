-- Identifiers that have a row are added to before the others are placed: most of a flush are such, and cost a third less.
-- Else the function is that of 0004, whose comment says what its parameters are; it is here whole, as a function can only
-- be replaced whole and a file that was applied stays as it is.
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
                                           order by given.passed + given.denied desc, given.identifier) as place
      from given
     where (given.namespace_id, given.hour, given.identifier) not in (select namespace_id, hour, identifier from known)
  ), counted as (
    insert into usage_ratelimit_identifiers as i (workspace_id, namespace_id, hour, identifier, passed, denied)
    select placed.workspace_id, placed.namespace_id, placed.hour, placed.identifier, placed.passed, placed.denied
      from placed
      join usage_ratelimits t on t.namespace_id = placed.namespace_id and t.hour = placed.hour
     where not t.is_closed and t.identifiers + placed.place <= p_identifiers_max
    returning namespace_id, hour
  )
  update usage_ratelimits t
     set identifiers = t.identifiers + news.count
    from (select namespace_id, hour, count(*)::integer as count from counted group by namespace_id, hour) as news
   where t.namespace_id = news.namespace_id and t.hour = news.hour;
  return true;
end
$$;
