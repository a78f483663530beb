#!/usr/bin/env bash
# Lists what was revoked since a time, from the Postgres of DATABASE_URL: keys and root keys that were deleted, disabled or given an end,
# APIs that were deleted, workspaces that were disabled. restore.sh applies the list, so that nothing of it comes back. Run it every few
# minutes and keep the list away from the database.
set -euo pipefail
[ $# = 1 ] || { echo "usage: DATABASE_URL=… revocations.sh <time, such as 2026-11-28T06:00:00Z> > <list>" >&2; exit 2; }
psql --no-psqlrc --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 --set since="$1" "${DATABASE_URL:?set DATABASE_URL}" <<'SQL'
select floor(extract(epoch from :'since'::timestamptz) * 1000)::bigint as since \gset
select 'delete-key ' || id from keys where deleted_at >= :since
 union
select 'delete-key ' || (r ->> 'id')
  from audit_events e cross join jsonb_array_elements(e.resources) as r
 where e.occurred_at >= :since and e.event in ('key.delete', 'rootKey.delete') and r ->> 'type' in ('key', 'rootKey')
 union
select 'disable-key ' || id from keys where not enabled and updated_at >= :since
 union
select 'expire-key ' || id || ' ' || expires_at from keys where expires_at is not null and updated_at >= :since
 union
select 'delete-api ' || (r ->> 'id')
  from audit_events e cross join jsonb_array_elements(e.resources) as r
 where e.occurred_at >= :since and e.event = 'api.delete' and r ->> 'type' = 'api'
 union
select 'disable-workspace ' || (r ->> 'id')
  from audit_events e cross join jsonb_array_elements(e.resources) as r join workspaces w on w.id = r ->> 'id'
 where e.occurred_at >= :since and e.event = 'workspace.update' and r ->> 'type' = 'workspace' and not w.enabled
 order by 1;
SQL
