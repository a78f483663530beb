-- Overrides of a person, for an erasure. Changes of overrides wait for this: 2 s for a million of them, which take 56 MB in it.
-- One digest of both columns: of an index that begins with workspace_id, the planner would also make use where the unique one of
-- namespace and identifier finds the row, and read all overrides of the namespace to combine both.
create index ratelimit_overrides_of_identifier on ratelimit_overrides (md5(workspace_id || ' ' || identifier));
