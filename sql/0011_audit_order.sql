-- The order in which things happened: ids tell it by the second alone, and by the clock of each server. What is there keeps
-- the order of its ids, in front of everything new: a constant default makes no row anew, however long the log is.
alter table audit_events add column seq bigint not null default 0;
create sequence audit_events_seq as bigint owned by audit_events.seq;
alter table audit_events alter column seq set default nextval('audit_events_seq');
comment on column audit_events.seq is 'Order of events of one database; 0 = before there was one, then by id.';
create index audit_events_in_order on audit_events (workspace_id, seq, id);
create index audit_events_of_actor on audit_events (workspace_id, actor_id, seq, id);
create index audit_events_of_kind on audit_events (workspace_id, event, seq, id);
drop index audit_events_by_actor, audit_events_by_event;
