-- oldest server: 0.1
-- The servers that run on this database, for what must not happen while an older one does (src/db/servers.ts).
create table servers (
  node_id text collate "C" primary key,
  host    text   not null,
  version text   not null,
  seen_at bigint not null
);
comment on table servers is 'One row for each running server, written every 20 s. Rows of killed servers go after two minutes.';
comment on column servers.node_id is 'Of the server''s data directory, as in ratelimit_segments: the same after a restart.';
comment on column servers.seen_at is 'By the clock of the database, Unix ms.';
