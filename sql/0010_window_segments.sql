-- Rate limit windows still open, as a server process flushed them: up to a thousand packed into a row, because a row for
-- each takes Postgres 4 to 9 µs whenever it changes and this a twentieth. Nothing is ever updated. A window that changes is
-- in a later segment again; what counts of a window is, for each node, the newest end and the highest count, in whatever
-- order its segments are read. Beside what changed, each flush writes part of what did not, so that after a whole pass over
-- all windows the segments of passes before are superseded and go.
-- `ratelimit_windows` stays: for windows that the memory of their shard had no room for, what spill files held, and what
-- servers before this version wrote.
create table ratelimit_segments (
  id         bigint generated always as identity primary key,
  node_id    text collate "C" not null,
  pass       bigint not null,
  first_hash bigint not null,
  last_hash  bigint not null,
  ends_at    bigint not null,
  cells      bytea not null
);
-- Hashes do not compress.
alter table ratelimit_segments alter column cells set storage external;
comment on column ratelimit_segments.pass is 'Number of the pass over all windows of a node that it was written in. Counts up, over restarts too.';
comment on column ratelimit_segments.first_hash is 'Lowest and highest of the first 32 bits of its cells: shards own ranges of them.';
comment on column ratelimit_segments.ends_at is 'End of the last of its windows, exclusive. A segment whose windows are over is garbage, deleted in slices.';
comment on column ratelimit_segments.cells is '28 bytes a window, big-endian: keyed hash of the counter''s name (16), end (8, Unix ms, integer), used (4).';
create index ratelimit_segments_by_node on ratelimit_segments (node_id, pass);
create index ratelimit_segments_by_end on ratelimit_segments (ends_at);
