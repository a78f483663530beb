-- What writes touched, for servers that reach this database through a pooler and so cannot LISTEN (src/db/change-poller.ts).
-- Rows are only made while such a server asks, and are deleted after some minutes.
create table change_notices (
  xact    xid8   not null default pg_current_xact_id(),
  at      bigint not null,
  payload text   not null
);
comment on column change_notices.xact is 'The transaction that made the change: a snapshot says whether it was over when somebody last asked.';
comment on column change_notices.payload is 'The same text that NOTIFY sends.';
create index change_notices_by_xact on change_notices (xact);
create index change_notices_by_time on change_notices (at);

create table change_polling (
  is_only   boolean primary key default true check (is_only),
  polled_at bigint  not null
);
comment on table change_polling is 'When a server that cannot LISTEN last said that it asks. No row, or an old one = nobody does.';
