-- oldest server: 0.1
-- Servers that share their limits (src/fleet/members.ts): which engine counts them, and who they are.
create table fleet (
  only_row  boolean  primary key default true check (only_row),
  engine_id text     not null,
  kind      text     not null,
  buckets   smallint not null
);
comment on table fleet is 'One row, once a server has had TOLLGATE_FLEET set. Changed only while no such server runs.';
comment on column fleet.engine_id is 'Made at random. The engine keeps it too: one without it, or with another, is another engine.';

create table fleet_members (
  process_id text collate "C" primary key,
  host       text   not null,
  engine     text   not null,
  seen_at    bigint not null
);
comment on table fleet_members is 'One row for each running server that shares its limits, written every 5 s. Rows of killed servers count for 20 s.';
comment on column fleet_members.engine is 'Its TOLLGATE_FLEET, without user and password, for people.';
comment on column fleet_members.seen_at is 'By the clock of the database, Unix ms.';

-- A number for each start of a shard thread, never used again: the engine counts by it, and hears old messages by it.
create sequence fleet_server_ids;
