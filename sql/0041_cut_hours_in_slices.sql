-- oldest server: 0.1
-- Hours of rate limits with many identifiers are closed in slices, which no question sees: the identifiers that an hour keeps are chosen
-- and marked first, then the hour is closed and noted in usage_ratelimit_cuts, and from then on only those are shown. The others
-- are deleted afterwards. See src/usage/close-hours.ts.

alter table usage_ratelimit_identifiers add column is_kept boolean;
comment on column usage_ratelimit_identifiers.is_kept is 'Only matters while the hour is in usage_ratelimit_cuts: what is not kept is counted in the rest, and deleted soon.';

create table usage_ratelimit_cuts (
  namespace_id text collate "C" not null,
  hour         bigint not null,
  primary key (namespace_id, hour)
);
comment on table usage_ratelimit_cuts is 'Closed hours that still have rows of identifiers that they do not keep.';

-- As close_ratelimit_hours of 0023, which stays for the release before: this one leaves an hour with more than p_keep identifiers open, and
-- returns at once with it.
create function close_small_ratelimit_hours(
  p_before bigint, p_keep integer, p_hours_max integer, p_after_hour bigint, p_after_namespace text
) returns table (hour bigint, namespace_id text, is_large boolean)
language plpgsql set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  open record;
  at_hour bigint := p_after_hour;
  after_namespace text collate "C" := p_after_namespace;
  closed integer := 0;
begin
  -- Hour by hour: then the index has the rows in order, whatever the statistics say.
  while at_hour is not null loop
    for open in
      select t.namespace_id, t.identifiers
        from usage_ratelimits t
       where not t.is_closed and t.hour = at_hour and t.namespace_id > after_namespace
       order by t.namespace_id
       limit p_hours_max - closed
         for update skip locked
    loop
      after_namespace := open.namespace_id;
      if open.identifiers > p_keep then
        return query select at_hour, after_namespace, true;
        return;
      end if;
      update usage_ratelimits set is_closed = true where namespace_id = open.namespace_id and hour = at_hour;
      closed := closed + 1;
      if closed = p_hours_max then
        return query select at_hour, after_namespace, false;
        return;
      end if;
    end loop;
    select min(t.hour) into at_hour from usage_ratelimits t where not t.is_closed and t.hour > at_hour and t.hour < p_before;
    after_namespace := '';
  end loop;
end
$$;
