-- Rate limit windows still open, as each server process last flushed them: one row per counter and node, replaced when
-- the counter moves on to its next window. The used count of a counter is the sum over its nodes. Rows are absolute,
-- so writing one twice changes nothing. Fill factor: most updates raise `used` alone and stay on their page (HOT).
create table ratelimit_windows (
  cell    uuid not null,
  node_id text collate "C" not null,
  ends_at bigint not null,
  used    bigint not null,
  primary key (cell, node_id)
) with (fillfactor = 80);
comment on column ratelimit_windows.cell is 'Keyed hash of the counter''s name. Shards own ranges of it, so restoring one is a range scan.';
comment on column ratelimit_windows.ends_at is 'End of the window, exclusive. A row whose window is over is garbage, deleted in slices.';
create index ratelimit_windows_by_end on ratelimit_windows (ends_at);
