-- Root keys are disabled, as the number of a workspace's root keys is kept by servers. Keys that are not there were never restored.
update keys k set enabled = false, updated_at = floor(extract(epoch from now()) * 1000)
  from revoked r
 where r.id = k.id and k.enabled and (r.kind = 'disable-key' or (r.kind = 'delete-key' and k.for_workspace_id is not null));
update keys k set deleted_at = floor(extract(epoch from now()) * 1000), updated_at = floor(extract(epoch from now()) * 1000)
  from revoked r
 where r.kind = 'delete-key' and r.id = k.id and k.deleted_at is null and k.for_workspace_id is null;
update keys k set expires_at = r.at, updated_at = floor(extract(epoch from now()) * 1000)
  from revoked r
 where r.kind = 'expire-key' and r.id = k.id and (k.expires_at is null or k.expires_at > r.at);
-- The API itself is there again, without keys.
update keys k set deleted_at = floor(extract(epoch from now()) * 1000), updated_at = floor(extract(epoch from now()) * 1000)
  from revoked r join apis a on a.id = r.id
 where r.kind = 'delete-api' and k.keyspace_id = a.keyspace_id and k.deleted_at is null and k.for_workspace_id is null;
update workspaces w set enabled = false
  from revoked r where r.kind = 'disable-workspace' and r.id = w.id;
