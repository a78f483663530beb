-- oldest server: 0.1
-- Limits that servers share, counted here when TOLLGATE_FLEET is postgres: see src/fleet/postgres.ts.
create table fleet_windows (
  cell        uuid     primary key,
  ends_at     bigint   not null,
  used        bigint   not null,
  loose_until bigint   not null,
  gift        bigint   not null,
  place       smallint not null
) with (fillfactor = 50); -- a count rewrites its row, and should stay on the page
comment on table fleet_windows is 'One row a counter, used again by its next window. No index on ends_at: with one no update would stay on its page.';
comment on column fleet_windows.used is 'Given to all servers.';
comment on column fleet_windows.loose_until is 'Until then somebody may bring back what was given. 0 = nobody.';
comment on column fleet_windows.gift is 'What the message that wrote the row last was given.';
comment on column fleet_windows.place is 'Which entry of that message it was.';

-- One message of a server: each entry is decided by itself, and all rows are locked in one order. Returns a row an entry.
-- A row that ends later than the entry is charged instead, with nothing but what is asked. What changes nothing is not
-- written.
create function fleet_take(
  now_ms bigint, loose_ms bigint, share bigint,
  cells uuid[], ends bigint[], limits bigint[], held bigint[], returned bigint[], owed bigint[],
  asked bigint[], needed bigint[], ahead bigint[], tentative boolean[]
) returns table (entry smallint, window_end bigint, gift bigint, total bigint, loose bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  most constant bigint := 9007199254740991;
  places smallint[];
  new_ends bigint[];
  gifts bigint[];
  totals bigint[];
  looses bigint[];
begin
  -- A gift that a crash forgets would be given again.
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  with written as (
    insert into fleet_windows as w (cell, ends_at, used, loose_until, gift, place)
    select cells[p], ends[p], least(c + g, most),
           case when g > 0 and (g <> asked[p] or tentative[p]) then now_ms + loose_ms else 0 end, g, p
      from generate_series(1, cardinality(cells)) as p,
           lateral (select held[p] + owed[p] as c) as counted,
           lateral (select greatest(0, limits[p] - c) as f) as free,
           lateral (select case when least(asked[p], f) < needed[p] then 0
                                when f < asked[p] then f
                                else asked[p] + least(ahead[p], (f - asked[p]) / share) end as g) as decided
     where c + g > 0
        or (returned[p] > 0 and exists (select from fleet_windows there where there.cell = cells[p]))
     order by cells[p]
    on conflict (cell) do update
       set (ends_at, used, loose_until, gift, place) = (
         select greatest(w.ends_at, excluded.ends_at), least(c + g, most),
                greatest(case when w.ends_at >= excluded.ends_at then w.loose_until else 0 end,
                         case when g > 0 and (g <> asked[excluded.place] or tentative[excluded.place])
                              then now_ms + loose_ms else 0 end),
                g, excluded.place
           from (select case when w.ends_at > excluded.ends_at then w.used
                             when w.ends_at = excluded.ends_at
                               then greatest(0, w.used - returned[excluded.place]) + owed[excluded.place]
                             else held[excluded.place] + owed[excluded.place] end as c) as counted,
                lateral (select greatest(0, limits[excluded.place] - c) as f) as free,
                lateral (select case when least(asked[excluded.place], f) < needed[excluded.place] then 0
                                     when f < asked[excluded.place] then f
                                     else asked[excluded.place]
                                          + least(ahead[excluded.place], (f - asked[excluded.place]) / share)
                                     end as g) as decided)
     where (w.ends_at < excluded.ends_at and excluded.used > 0)
        or (w.ends_at = excluded.ends_at and (returned[excluded.place] > 0 or owed[excluded.place] > 0))
        or (w.ends_at >= excluded.ends_at and asked[excluded.place] > 0 and limits[excluded.place] - w.used >= greatest(1, needed[excluded.place]))
        or (w.ends_at >= excluded.ends_at and asked[excluded.place] = 0 and ahead[excluded.place] > 0 and limits[excluded.place] - w.used >= share)
    returning w.place, w.ends_at, w.gift, w.used, w.loose_until
  )
  select coalesce(array_agg(place), '{}'), array_agg(ends_at), array_agg(gift), array_agg(used), array_agg(loose_until)
    into places, new_ends, gifts, totals, looses
    from written;
  return query select * from unnest(places, new_ends, gifts, totals, looses);
  if cardinality(places) < cardinality(cells) then
    -- A statement of its own, because it sees what others have written in the meantime.
    return query
      select p::smallint, greatest(ends[p], w.ends_at), 0::bigint,
             case when w.ends_at >= ends[p] then w.used else 0 end,
             case when w.ends_at >= ends[p] then w.loose_until else 0 end
        from generate_series(1, cardinality(cells)) as p
        left join unnest(places) as written (place) on written.place = p
        left join fleet_windows w on w.cell = cells[p]
       where written.place is null;
  end if;
end
$$;
