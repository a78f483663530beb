-- Spends credits for calls that arrived together: one statement, one commit, and for each key one lock and one write.
-- Calls of one key are decided in the order given; a call that asks for more than is left spends nothing.
-- Returns one row per call, in the order given: whether it passed, and what is left after it (null = the key is
-- unlimited; no row = no such key). Keys are locked in the order of their ids, so two servers cannot deadlock.
create function spend_credits(p_key_ids text[], p_costs integer[], p_now bigint)
returns table (call integer, passed boolean, remaining integer)
language plpgsql as $$
declare
  k record;
  i integer;
  credits integer;
  spent boolean;
begin
  for k in
    select c.key_id, array_agg(c.at order by c.at) as calls
      from unnest(p_key_ids) with ordinality as c (key_id, at)
     group by c.key_id
     order by c.key_id collate "C"
  loop
    select keys.remaining into credits from keys where keys.id = k.key_id and keys.deleted_at is null for update;
    continue when not found;
    spent := false;
    foreach i in array k.calls loop
      call := i - 1;
      if credits is null then
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
