-- oldest server: 0.1
-- A namespace may say for itself whether servers share its limits, and what decides while the engine cannot be asked.
alter table ratelimit_namespaces
  add column scope  text check (scope in ('fleet', 'local')),
  add column outage text check (outage in ('share', 'refuse', 'open'));
comment on column ratelimit_namespaces.scope is 'Of no effect without TOLLGATE_FLEET. local = each server counts its limits for itself. Null = as TOLLGATE_FLEET says.';
comment on column ratelimit_namespaces.outage is 'What decides while the engine of shared limits cannot be asked. Null = TOLLGATE_FLEET_OUTAGE.';
