-- Limits, uses left, costs and refills up to 2^53 - 1. This rewrites `keys`, `ratelimits` and `ratelimit_overrides`, which
-- nobody can read or write meanwhile.
alter table keys
  alter column remaining type bigint,
  alter column refill_amount type bigint;
alter table ratelimits alter column "limit" type bigint;
alter table ratelimit_overrides alter column "limit" type bigint;

-- Whose a stored window is, so that memory can be shared out among workspaces: 16 bits of the keyed hash of the workspace's
-- id; 0 = not known, as of what servers before this version wrote.
alter table ratelimit_windows add column owner integer not null default 0;
alter table ratelimit_segments add column format smallint not null default 0;
comment on column ratelimit_windows.owner is '16 bits of the keyed hash of the workspace''s id; 0 = not known.';
comment on column ratelimit_segments.format is 'How `cells` are packed: see limiter/segment.ts.';
comment on column ratelimit_segments.cells is 'Big-endian. Format 1, 32 bytes a window: keyed hash of the counter''s name (16), owner (2), end (6, Unix ms), used (8). Format 0, 28 bytes: name (16), end (8), used (4).';

-- As spend_credits with integers (0007), which stays for servers of the version before.
create function spend_credits(p_key_ids text[], p_costs bigint[], p_now bigint, p_waits boolean)
returns table (call integer, passed boolean, remaining bigint)
language plpgsql set lock_timeout = '50ms' as $$
declare
  k record;
  i integer;
  credits bigint;
  spent boolean;
  is_there boolean;
  is_locked boolean;
  wait_until timestamptz := clock_timestamp() + interval '50 ms';
begin
  for k in
    select c.key_id, array_agg(c.at order by c.at) as calls
      from unnest(p_key_ids) with ordinality as c (key_id, at)
     group by c.key_id
     order by c.key_id collate "C"
  loop
    select keys.remaining into credits
      from keys where keys.id = k.key_id and keys.deleted_at is null
       for no key update skip locked;
    is_there := found;
    is_locked := not is_there and exists (select from keys where keys.id = k.key_id and keys.deleted_at is null);
    if is_locked and p_waits and clock_timestamp() < wait_until then
      begin
        select keys.remaining into credits
          from keys where keys.id = k.key_id and keys.deleted_at is null
           for no key update;
        is_there := found;
        is_locked := false;
      exception when lock_not_available then
        null; -- as if it had not been waited for
      end;
    end if;
    continue when not is_there and not is_locked;
    spent := false;
    foreach i in array k.calls loop
      call := i - 1;
      if is_locked then
        passed := null;
        credits := null;
      elsif credits is null then
        passed := true;
      else
        passed := p_costs[i] <= credits;
        if passed and p_costs[i] > 0 then
          credits := credits - p_costs[i];
          spent := true;
        end if;
      end if;
      remaining := credits;
      return next;
    end loop;
    if spent then
      update keys set remaining = credits, updated_at = p_now where keys.id = k.key_id;
    end if;
  end loop;
end
$$;
