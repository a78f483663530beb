-- oldest server: 0.1
-- How a running server notices that another copy of its database answers, or an older state of it: src/records/continuity.ts.
create table server_marks (
  process_id text collate "C" primary key,
  mark       bigint not null,
  marked_at  bigint not null
);
comment on table server_marks is 'One row for each process of a server, written every 2 s. Rows of ended ones go after a day.';
comment on column server_marks.mark is 'Rises with each write. When it is lower than what was answered, the database went back in time.';
comment on column server_marks.marked_at is 'By the clock of the database, Unix ms.';

-- Where this database is: the Postgres, the database in it, and the table with its id. Each restore of a dump makes at least one of
-- them anew. Empty where a hosted Postgres does not say.
create function database_place() returns text
language plpgsql stable as $$
declare
  system text := '';
begin
  begin
    select system_identifier::text into system from pg_control_system();
  exception when insufficient_privilege or undefined_function then
    system := '';
  end;
  return system || '/' || (select oid from pg_database where datname = current_database()) || '/' || 'settings'::regclass::oid;
end
$$;
