-- oldest server: 0.1
-- What the search of keys reads, from one index each and nothing else, whatever the statistics say: after many inserts they are
-- old, and the planner would read and sort all keys. As in ids_of_page (sql/0021) nothing may be sorted, and no other index has
-- the order. `collate "C"` is that of the indexes.

-- Live keys of a keyspace, newest first, before `p_before`; null = from the newest.
create function newest_keys(p_keyspace text, p_before text, p_rows integer)
returns table (id text, keyspace_id text, start text, name text, identity_id text, enabled boolean,
               expires_at bigint, remaining bigint, successor_id text, created_at bigint)
language plpgsql stable rows 1000
set enable_sort = off
set enable_incremental_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
begin
  return query
    select k.id, k.keyspace_id, k.start, k.name, k.identity_id, k.enabled, k.expires_at, k.remaining, k.successor_id, k.created_at
      from keys k
     where (k.keyspace_id, k.id) < (p_keyspace, coalesce(p_before, chr(1114111))) and k.keyspace_id >= p_keyspace
       and k.deleted_at is null and k.for_workspace_id is null
     order by k.keyspace_id desc, k.id desc limit p_rows;
end
$$;

-- Keys that begin with a text, in any of four ways: `p_rows` of each at most. A row without an id says that so many identities
-- begin with it.
create function keys_by_text(p_workspace text, p_text text, p_rows integer)
returns table (way text, id text, count integer)
language plpgsql stable rows 1000
set enable_sort = off
set enable_incremental_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
as $$
declare
  -- After every text that begins with p_text.
  p_end constant text := p_text || chr(1114111);
  named constant text[] := array(
    select i.id from identities i
     where i.workspace_id = p_workspace and i.external_id >= p_text and i.external_id < p_end
     order by i.external_id limit p_rows);
begin
  return query
    select 'start', k.id, 1 from keys k
     where k.workspace_id = p_workspace and k.start collate "C" >= p_text and k.start collate "C" < p_end
       and k.deleted_at is null and k.for_workspace_id is null
     order by k.start collate "C" limit p_rows;
  return query
    select 'name', k.id, 1 from keys k
     where k.workspace_id = p_workspace
       and lower(k.name) collate "C" >= lower(p_text) and lower(k.name) collate "C" < lower(p_end)
       and k.deleted_at is null and k.for_workspace_id is null and k.name is not null
     order by lower(k.name) collate "C" limit p_rows;
  return query
    select 'id', k.id, 1 from keys k where k.id >= p_text and k.id < p_end order by k.id limit p_rows;
  return query
    select 'identity', found.id, 1
      from unnest(named) as n (id)
     cross join lateral (
           -- Not =, for which another index has this order.
           select k.id from keys k
            where (k.identity_id) >= (n.id) and (k.identity_id) <= (n.id) and k.deleted_at is null
            order by k.identity_id, k.keyspace_id, k.id limit p_rows) as found
     limit p_rows;
  return query select 'identities', null::text, cardinality(named);
end
$$;
