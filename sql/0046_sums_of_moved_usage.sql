-- oldest server: 0.1
-- As in 0040, where rows that were in no sum yet took away the sums of what stayed.
create or replace function remake_days_of_moved_usage() returns trigger
language plpgsql as $$
declare
  open_hours_from bigint;
  open_days_from bigint;
begin
  if hold_usage_days((select min(hour) from moved)) then
    select open_from into open_hours_from from usage_days_made;
    select open_from into open_days_from from usage_months_made;
    -- Only what is made again below: rows of hours that are in no sum yet leave the sums as they are.
    delete from usage_verification_days d
     using moved
     where d.keyspace_id = moved.keyspace_id and d.day = moved.hour - moved.hour % 86400000
       and d.key_id = moved.key_id and d.identity_id = moved.identity_id and d.tag_set = moved.tag_set
       and moved.hour < open_hours_from;
    delete from usage_verification_months m
     using (select distinct keyspace_id, usage_month_of(day) as month, key_id, identity_id, tag_set
              from (select distinct keyspace_id, hour - hour % 86400000 as day, key_id, identity_id, tag_set
                      from moved where hour < open_hours_from) as days
             where day < open_days_from) as gone
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
