-- Dropping a month needs its parent alone for a moment, and holds up who comes after it while it waits: of the audit log that
-- is every change. So how long it waits is told by who asks. drop_usage_months (sql/0004) stays for the release before.
create function drop_months(p_table text, p_before bigint, p_wait_ms integer) returns setof text
language plpgsql as $$
declare
  part text;
  before_month text := to_char(to_timestamp(p_before / 1000) at time zone 'UTC', 'YYYYMM');
begin
  perform set_config('lock_timeout', p_wait_ms || 'ms', true);
  perform pg_advisory_xact_lock(7305412001);
  for part in
    select c.relname
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
     where i.inhparent = p_table::regclass and c.relname ~ '_\d{6}$' and right(c.relname::text, 6) < before_month
     order by c.relname
  loop
    execute format('drop table %I', part);
    return next part;
  end loop;
end
$$;

-- As in sql/0022, but that lists of the log wait for no longer than this when a long query reads unplaced events.
alter function make_audit_month(bigint) set lock_timeout = '200ms';
