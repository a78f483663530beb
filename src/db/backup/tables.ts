/**
 * What a backup holds, in an order in which every row comes after those that it refers to. Partitioned tables stand for their
 * parts. A test compares both lists with the tables of a new database.
 */
export const BACKUP_TABLES = [
  'settings',
  'bounds',
  'workspaces',
  'keyspaces',
  'apis',
  'identities',
  'keys',
  'encrypted_keys',
  'vault_data_keys',
  'vault_check',
  'vault_lost_data_keys',
  'permissions',
  'roles',
  'ratelimits',
  'keys_permissions',
  'keys_roles',
  'roles_permissions',
  'ratelimit_namespaces',
  'ratelimit_overrides',
  'workspace_counts',
  'workspace_returns',
  'key_imports',
  'create_answers',
  'erasures',
  'sweeps',
  'audit_events',
  'ratelimit_windows',
  'ratelimit_segments',
  'fleet',
  'fleet_windows',
  'usage_writers',
  'usage_days_made',
  'usage_months_made',
  'usage_ratelimit_cuts',
  'usage_keyspace_hours',
  'usage_tag_sets',
  'usage_tag_set_hours',
  'usage_verifications',
  'usage_verification_days',
  'usage_verification_months',
  'usage_ratelimits',
  'usage_ratelimit_identifiers',
] as const

/** About the servers of one database, and what they tell each other; and the record of its migrations, which the file's head has. */
export const LEFT_OUT_TABLES = [
  'change_notices',
  'change_polling',
  'fleet_members',
  'server_marks',
  'servers',
  'tollgate_migrations',
] as const

export const BACKUP_SEQUENCES = [
  'audit_events_seq',
  'fleet_server_ids',
  'key_imports_id_seq',
  'override_revisions',
  'ratelimit_segments_id_seq',
  'sweeps_id_seq',
  'workspace_returns_id_seq',
] as const

/** Tables by month, and what makes the partition of a month (Unix ms). */
export const MONTHLY = {
  usage_verifications: 'make_usage_month',
  audit_events_by_month: 'make_audit_month',
} as const
