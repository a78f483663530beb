-- Counts what existed before the triggers of 0021, without a lock: rows and counts are read as of one moment, and what the rows
-- are more is what no trigger saw. It gets a part that no transaction counts in. A million keys take half a second.
insert into workspace_counts (workspace_id, name, part, used, room)
select workspace_id, name, 8, sum(rows), 0
  from (select workspace_id, 'keys/' || keyspace_id as name, count(*) as rows from keys
         where deleted_at is null and for_workspace_id is null group by workspace_id, keyspace_id
         union all
        select workspace_id, 'overrides/' || namespace_id, count(*) from ratelimit_overrides
         where deleted_at is null group by workspace_id, namespace_id
         union all
        select workspace_id, name, -used from workspace_counts where position('/' in name) > 0
         union all
        select workspace_id, name, rows from workspace_returns where position('/' in name) > 0) as unseen
 group by workspace_id, name having sum(rows) <> 0;
