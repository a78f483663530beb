-- As spend_credits with three arguments (0002), which stays for servers of the version before, but a key that another
-- transaction holds does not hold up the others: its calls get rows with `passed` null, nothing is taken for them, and
-- whoever asked asks again. With p_waits it waits for such keys first, 100 ms in all at most: the transactions of other
-- servers that spend of the same keys are over by then, and in Postgres's own queue each has its turn. Keys are still
-- locked in the order of their ids, so two that wait cannot deadlock. The lock is the weakest that an update takes: rows
-- that refer to a key, being written, do not hold it.
create function spend_credits(p_key_ids text[], p_costs integer[], p_now bigint, p_waits boolean)
returns table (call integer, passed boolean, remaining integer)
language plpgsql set lock_timeout = '50ms' as $$
declare
  k record;
  i integer;
  credits integer;
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
