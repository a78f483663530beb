export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/**
 * Every logged event with its level. Names are contract, as people alert on them: add one, never rename one. The table of
 * `docs/reference/logs.md` explains each.
 */
export const LOG_EVENTS = {
  // Start and stop
  unknown_variable: 'warn',
  secret_file_exposed: 'warn',
  starting: 'info',
  database_creating: 'info',
  database_created: 'info',
  database_migrated: 'info',
  schema_ahead: 'warn',
  unknown_format: 'warn',
  shard_started: 'info',
  start_failed: 'error',
  stopping: 'info',
  draining: 'info',
  stopped: 'info',
  stop_cut_short: 'warn',
  stop_failed: 'error',
  stop_timed_out: 'error',
  unhandled_rejection: 'error',
  // Requests
  request: 'info',
  slow_request: 'warn',
  request_failed: 'error',
  requests_failing: 'error',
  requests_recovered: 'info',
  connections_refused: 'warn',
  connections_accepted: 'info',
  connections_lowered: 'warn',
  // Database
  database_unavailable: 'warn',
  database_available: 'info',
  database_read_only: 'warn',
  database_writable: 'info',
  database_warning: 'warn',
  changes_unheard: 'warn',
  changes_heard: 'info',
  change_not_passed_on: 'error',
  sweep_unfinished: 'warn',
  embedded_database_died: 'error',
  embedded_database_restart_failing: 'error',
  embedded_database_restarted: 'info',
  embedded_database_unclean: 'warn',
  embedded_connection_failed: 'warn',
  embedded_transaction_ended: 'warn',
  housekeeping_failing: 'warn',
  housekeeping_recovered: 'info',
  old_rows_removed: 'info',
  old_rows_not_removed: 'warn',
  // Threads
  http_thread_died: 'error',
  http_thread_restarted: 'info',
  http_thread_restart_failing: 'error',
  shard_died: 'error',
  shard_restart_failing: 'error',
  shard_stop_failed: 'error',
  // Rate limits
  windows_restoring: 'info',
  limiter_memory_full: 'warn',
  limiter_memory_recovered: 'info',
  window_flush_failing: 'warn',
  window_flush_recovered: 'info',
  windows_spilled: 'warn',
  spilled_windows_sent: 'info',
  // Usage
  usage_flush_failing: 'warn',
  usage_flush_recovered: 'info',
  usage_spill_failing: 'error',
  usage_spill_recovered: 'info',
  usage_batch_refused: 'error',
  usage_file_invalid: 'error',
  usage_months_dropped: 'info',
  usage_retention_waiting: 'info',
  usage_retention_failing: 'error',
  usage_retention_recovered: 'info',
  usage_upkeep_failing: 'warn',
  // Audit log
  audit_months_dropped: 'info',
  audit_retention_waiting: 'info',
  audit_retention_failing: 'error',
  audit_retention_recovered: 'info',
  // Files in the data directory
  spill_of_other_database: 'warn',
  spill_unreadable: 'error',
  // Keys
  erasure_unfinished: 'warn',
  keys_refilled: 'info',
  refill_failing: 'error',
  refill_recovered: 'info',
  key_import_waiting: 'error',
  key_import_resumed: 'info',
  key_import_batch_failed: 'warn',
  key_import_failed: 'error',
  keys_not_imported: 'warn',
  // Traces
  span_export_failing: 'warn',
  span_export_recovered: 'info',
  spans_lost_at_stop: 'warn',
} as const satisfies Record<string, LogLevel>

export type LogEvent = keyof typeof LOG_EVENTS
