-- oldest server: 0.1
-- A rerolled key has a successor. Until the rerolled key ends, both are accepted, share the successor's credits, and count
-- against the same windows of limits.
alter table keys
  add column successor_id text collate "C",
  add column counts_as text collate "C";
comment on column keys.successor_id is 'The key that this one was rerolled into; of keys with credits the newest, which has them. Null = never rerolled.';
comment on column keys.counts_as is 'The first key of a row of rerolled keys, under whose id their own limits are counted; null = the key itself.';
-- As before (0014), but calls for a rerolled key spend what its successor has. A rerolled key whose successor was deleted has
-- no credits left.
create or replace function spend_credits(p_key_ids text[], p_costs bigint[], p_now bigint, p_waits boolean)
returns table (call integer, passed boolean, remaining bigint)
language plpgsql set lock_timeout = '50ms' as $$
declare
  k record;
  i integer;
  credits bigint;
  successor text;
  holder text;
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
    select keys.remaining, keys.successor_id into credits, successor
      from keys where keys.id = k.key_id and keys.deleted_at is null
       for no key update skip locked;
    is_there := found;
    is_locked := not is_there and exists (select from keys where keys.id = k.key_id and keys.deleted_at is null);
    if is_locked and p_waits and clock_timestamp() < wait_until then
      begin
        select keys.remaining, keys.successor_id into credits, successor
          from keys where keys.id = k.key_id and keys.deleted_at is null
           for no key update;
        is_there := found;
        is_locked := false;
      exception when lock_not_available then
        null; -- as if it had not been waited for
      end;
    end if;
    continue when not is_there and not is_locked;
    holder := k.key_id;
    if is_there and successor is not null and credits is not null
       and exists (select from keys where keys.id = successor and keys.deleted_at is null) then
      holder := successor;
      select keys.remaining into credits
        from keys where keys.id = successor and keys.deleted_at is null
         for no key update skip locked;
      is_locked := not found;
    end if;
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
      update keys set remaining = credits, updated_at = p_now where keys.id = holder;
    end if;
  end loop;
end
$$;
