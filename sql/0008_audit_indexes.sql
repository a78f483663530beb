-- What one root key did, and where one kind of event occurred, is asked after something went wrong, without knowing when:
-- it should not read all that the workspace ever did.
create index audit_events_by_actor on audit_events (workspace_id, actor_id, id);
create index audit_events_by_event on audit_events (workspace_id, event, id);
