export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/**
 * Every logged event. Names are contract, as people alert on them: add one, never rename one. `about` says what it means,
 * `remedy` what to do, both in Markdown whose links start in a folder of `docs/`. `bun run docs` makes two pages of it:
 * `docs/reference/logs.md` has every event, `docs/how-to/runbook.md` the warnings and errors.
 */
export const LOG_EVENTS = {
  // Start and stop
  unknown_variable: {
    level: 'warn',
    about: 'The environment has a `TOLLGATE_` variable that does not exist (`variable`); it has no effect.',
    remedy: 'Correct the name: `nearest` is the most similar known one.',
  },
  secret_file_exposed: {
    level: 'warn',
    about: 'Every user of this machine can read a file with a secret (`path`, named by `from`).',
    remedy: '`chmod 600` it, or give it to the server’s group alone.',
  },
  vault_key_missing: {
    level: 'warn',
    about:
      'Something in the database is sealed by a vault key (`vaultKeyId`) that this server does not have: it cannot show recoverable keys of it.',
    remedy:
      'Nothing while you [change the vault key](../how-to/backups.md#change-the-vault-key) server by server. Else add that key to `TOLLGATE_VAULT_KEY`.',
  },
  vault_key_lost: {
    level: 'warn',
    about:
      '`TOLLGATE_VAULT_LOST` gave up the vault keys `vaultKeyIds`: recoverable keys of `dataKeys` workspaces cannot be shown any more.',
    remedy: 'Remove `TOLLGATE_VAULT_LOST`. [What is lost](../how-to/backups.md#when-the-vault-key-is-lost).',
  },
  starting: {
    level: 'info',
    about:
      'The server starts. Fields: `version`, `commit`, the data directory and whether it is `new` or `found`, the database, the number of threads.',
    remedy:
      'Nothing. If it says `new` although you have data, the folder is the wrong one: set `TOLLGATE_DATA_DIR`.',
  },
  database_creating: {
    level: 'info',
    about: 'The first start on a data directory creates the embedded database.',
    remedy: 'Wait some seconds.',
  },
  database_created: {
    level: 'info',
    about: 'The embedded database was created (`tookMs`).',
    remedy: 'Nothing.',
  },
  database_migrated: {
    level: 'info',
    about: 'Database migrations were applied (`applied`).',
    remedy: 'Nothing.',
  },
  schema_ahead: {
    level: 'warn',
    about: 'A newer release has migrated the database (`migrations`). This release works with it.',
    remedy: 'Nothing during an [upgrade](../how-to/upgrade.md). Later: upgrade this server too.',
  },
  unknown_format: {
    level: 'warn',
    about:
      'The server found something (`what`) that a newer release wrote in a `format` that this one does not know. It was left where it is. Logged once for each kind and thread.',
    remedy:
      'Finish the [upgrade](../how-to/upgrade.md), or go on with the newer release: it reads what was left.',
  },
  shard_started: {
    level: 'info',
    about: 'A shard has restored its open windows (`windowsRestored`) and runs.',
    remedy: 'Nothing.',
  },
  start_failed: {
    level: 'error',
    about: 'The start failed because of a bug in Tollgate. The exit status is 1.',
    remedy: 'Report it with `cause`.',
  },
  stopping: {
    level: 'info',
    about: 'The server received a signal (`signal`). It answers in-flight requests and writes counts.',
    remedy: 'Nothing.',
  },
  draining: {
    level: 'info',
    about: 'The server was told to stop: readiness answers 503, and requests are answered for `drainMs`.',
    remedy: 'Nothing.',
  },
  stopped: {
    level: 'info',
    about: 'Everything is written and closed; the exit status is 0.',
    remedy: 'Nothing.',
  },
  stop_cut_short: {
    level: 'warn',
    about:
      'A second signal came more than two seconds after the first. The stop ends at once with exit status 1; counts that were not written are lost.',
    remedy: 'Send only one signal, and allow a stop ten seconds.',
  },
  stop_failed: {
    level: 'error',
    about: 'A part did not close; counts since the last flush may be lost. The exit status is 1.',
    remedy: 'Read `cause`: most likely database and disk were both unavailable.',
  },
  stop_timed_out: {
    level: 'error',
    about: 'The stop took longer than 9.5 seconds and was cut off. The exit status is 1.',
    remedy: 'Look for a database or disk that hangs.',
  },
  unhandled_rejection: {
    level: 'error',
    about: 'A background task failed. The server continues.',
    remedy: 'Report it, with the line.',
  },
  // Requests
  request: {
    level: 'info',
    about: 'A request was answered. Only with `TOLLGATE_ACCESS_LOG=1`.',
    remedy: 'Nothing.',
  },
  slow_request: {
    level: 'warn',
    about: 'A request took longer than `TOLLGATE_SLOW_MS`.',
    remedy:
      'A few are normal while the database is slow; many: look at `tollgate_event_loop_lag_seconds` and the database.',
  },
  request_failed: {
    level: 'error',
    about:
      'A request was answered with a 500 because of a fault in the server (the client was told `requestId`).',
    remedy: 'Read `cause`, and report it.',
  },
  requests_failing: {
    level: 'error',
    about:
      "Requests are answered with a 500 because a `part` does not work, for which there is no `database_unavailable` line: Postgres' disk or memory is full (`code` 53100 or 53200), the database is read only, a shard is down. Each reason has a line of its own. `failed` counts them so far; `because` and `requestId` are those of the first.",
    remedy: 'Read `because`.',
  },
  requests_recovered: {
    level: 'info',
    about: 'No request failed for that reason for ten seconds (`failed`, `lastedMs`).',
    remedy: 'Nothing.',
  },
  connections_refused: {
    level: 'warn',
    about: '`TOLLGATE_CONNECTIONS_MAX` client connections are open; further ones are refused.',
    remedy: 'Let clients reuse connections, or raise the bound.',
  },
  connections_accepted: {
    level: 'info',
    about: 'No connection was refused for ten seconds (`refused`, `lastedMs`).',
    remedy: 'Nothing.',
  },
  connections_lowered: {
    level: 'warn',
    about:
      'The limit of open files (`openFilesMax`) is too low for `TOLLGATE_CONNECTIONS_MAX`; each thread accepts `connectionsMax` connections instead.',
    remedy: 'Raise `LimitNOFILE` (systemd) or `ulimit -n`, or lower `TOLLGATE_CONNECTIONS_MAX`.',
  },
  // Database
  database_unavailable: {
    level: 'warn',
    about: 'The database does not answer. Rate limits and cached keys work; everything else answers 500.',
    remedy: 'Bring Postgres back. Page someone if it lasts.',
  },
  database_available: {
    level: 'info',
    about: 'The database answers again (`awayMs`); `refused` calls answered 500 in between.',
    remedy: 'Nothing.',
  },
  database_replaced: {
    level: 'warn',
    about:
      'The database is another copy of the one that the server used, or an older state of it (`what`): a dump was restored, a snapshot brought back, or a standby took over that lacked the last writes. Caches were emptied; open windows are written again.',
    remedy:
      'Nothing after a [restore](../how-to/backups.md#when-the-database-is-replaced-under-running-servers). Else find out who replaced it: what was written since is gone.',
  },
  database_replaced_unusable: {
    level: 'error',
    about:
      'The database that replaced the one of this server cannot be used, for example because its migrations fail (`cause`). Attempts continue.',
    remedy: 'Mend what `cause` says, or restart the server, which then says why it does not start.',
  },
  database_read_only: {
    level: 'warn',
    about:
      'The database is read only, as after a failover. Rate limits, cached keys and reads work; changes, credits and new keys answer 500.',
    remedy: 'Point `DATABASE_URL` to the primary.',
  },
  database_writable: {
    level: 'info',
    about: 'The database takes writes again (`readOnlyMs`); `refused` calls answered 500 in between.',
    remedy: 'Nothing.',
  },
  database_warning: {
    level: 'warn',
    about: 'At the start, the database has a setting that should be changed (`check`, `text`).',
    remedy: 'Do what `text` says; [`tollgate doctor`](../how-to/postgres.md#doctor) looks again.',
  },
  changes_unheard: {
    level: 'warn',
    about: 'Changes made through other servers may have been missed; all caches were emptied.',
    remedy: 'Nothing once. If it repeats: look for a firewall that drops idle connections.',
  },
  changes_heard: {
    level: 'info',
    about: 'Changes made through other servers arrive again.',
    remedy: 'Nothing.',
  },
  change_not_passed_on: {
    level: 'error',
    about:
      'A change could not be sent to other threads or servers; they may use the old state for some seconds.',
    remedy: 'Report it, with the line.',
  },
  sweep_unfinished: {
    level: 'warn',
    about:
      'Rows of deleted resources could not be removed. They have no effect: no key of them verifies. The next attempt is within a minute.',
    remedy: 'Read `cause`.',
  },
  embedded_database_died: {
    level: 'error',
    about: 'The embedded database crashed and restarts. No answered change is lost.',
    remedy: 'Read `cause`: most often the disk is full.',
  },
  embedded_database_restart_failing: {
    level: 'error',
    about: 'The embedded database cannot be restarted; attempts continue.',
    remedy: 'Free disk space, or restore the data directory.',
  },
  embedded_database_restarted: {
    level: 'info',
    about: 'The embedded database runs again.',
    remedy: 'Nothing.',
  },
  embedded_database_unclean: {
    level: 'warn',
    about: 'The embedded database did not close in time; its next start recovers it.',
    remedy: 'Nothing.',
  },
  embedded_connection_failed: {
    level: 'warn',
    about: 'A connection between the server and its embedded database broke.',
    remedy: 'Nothing once. If it repeats: report it.',
  },
  embedded_transaction_ended: {
    level: 'warn',
    about: 'An idle transaction on the embedded database was rolled back.',
    remedy: 'Nothing once. If it repeats: report it.',
  },
  housekeeping_failing: {
    level: 'warn',
    about: 'Vacuum or checkpoint of the embedded database failed and is repeated every 30 seconds.',
    remedy: 'Read `cause`: most often the disk is full.',
  },
  housekeeping_recovered: {
    level: 'info',
    about: 'Vacuum and checkpoint work again.',
    remedy: 'Nothing.',
  },
  old_rows_removed: {
    level: 'info',
    about:
      'A workspace (`workspaceId`) had more old records than its `bound`; the oldest `rows` were removed.',
    remedy: 'Nothing, or raise the [bound](../reference/bounds.md).',
  },
  old_rows_not_removed: {
    level: 'warn',
    about: 'Records beyond a bound could not be removed; the next attempt is within five minutes.',
    remedy: 'Read `cause`: most often the database is slow or away.',
  },
  // Shared limits
  fleet_away: {
    level: 'warn',
    about:
      'The engine on which servers share their limits does not answer this server (`fault`, `cause`). Leases are still spent; every other call is decided by `TOLLGATE_FLEET_OUTAGE`.',
    remedy:
      'Bring the engine back, or its network. [What servers do meanwhile](../how-to/several-servers.md#when-something-fails).',
  },
  fleet_back: {
    level: 'info',
    about:
      'The engine answers again (`awayMs`); the outage rule decided `decided` calls of one shard in between.',
    remedy: 'Nothing: limits are exact again.',
  },
  fleet_learning: {
    level: 'info',
    about:
      'Redis was restarted, emptied or replaced, or nobody spoke to it for a second. It gives nothing for three times `TOLLGATE_FLEET_TIMEOUT_MS` while servers tell it what they hold. Also logged by the first server to start.',
    remedy:
      'Nothing. If it repeats without a restart or failover: look whether Redis stalls, for example while it writes to disk.',
  },
  fleet_foreign: {
    level: 'error',
    about:
      'The Redis of `TOLLGATE_FLEET` has the id of another fleet now. This server asks it for nothing; the outage rule decides.',
    remedy: 'Find out who else uses that Redis, and give each fleet its own.',
  },
  fleet_warning: {
    level: 'warn',
    about: 'At the start, the engine has a setting with which limits may not be exact (`text`).',
    remedy: 'Do what `text` says; [`tollgate doctor`](../how-to/postgres.md#doctor) looks again.',
  },
  fleet_time_stepped: {
    level: 'warn',
    about: 'The clock of the database stepped (`stepMs`). Windows of shared limits begin and end by it.',
    remedy: 'Let NTP adjust that clock gradually.',
  },
  // Threads
  http_thread_died: {
    level: 'error',
    about: 'An HTTP thread died and restarts; its usage since the last flush is lost.',
    remedy: 'Report it, with the line.',
  },
  http_thread_restarted: {
    level: 'info',
    about: 'The HTTP thread was restarted.',
    remedy: 'Nothing.',
  },
  http_thread_restart_failing: {
    level: 'error',
    about: 'An HTTP thread cannot be restarted; the other threads answer requests.',
    remedy: 'Check memory and open files; restart the server if it lasts.',
  },
  shard_died: {
    level: 'error',
    about: 'A shard died and restarts; its counts since the last flush are lost.',
    remedy: 'Report it, with the line.',
  },
  shard_restart_failing: {
    level: 'error',
    about: 'A shard cannot be restarted; calls for its rate limits answer 500.',
    remedy: 'Check memory and the database; restart the server if it lasts.',
  },
  shard_stop_failed: {
    level: 'error',
    about: 'A shard did not stop in time; its counts since the last flush may be lost.',
    remedy: 'Look for a database or disk that hangs.',
  },
  // Rate limits
  windows_restoring: {
    level: 'info',
    about:
      'A start has read `segmentsRead` of `segments` stored segments of open windows; logged every five seconds. The server answers when all are read: two to three seconds a million windows.',
    remedy: 'Wait.',
  },
  limiter_memory_full: {
    level: 'warn',
    about:
      'Open windows need more than `TOLLGATE_LIMITER_MEMORY_MIB`. New identifiers of the workspaces with the most windows may be limited too early, never too late; `largestWorkspace` names the first.',
    remedy: 'Raise `TOLLGATE_LIMITER_MEMORY_MIB`, or ask that workspace why it uses so many identifiers.',
  },
  limiter_memory_recovered: {
    level: 'info',
    about: 'Every window has a counter of its own again.',
    remedy: 'Nothing.',
  },
  window_flush_failing: {
    level: 'warn',
    about:
      'Windows cannot be written to the database. Rate limits continue in memory; a crash would lose the counts since then.',
    remedy: 'Bring the database back.',
  },
  window_flush_recovered: {
    level: 'info',
    about: 'Windows are written again.',
    remedy: 'Nothing.',
  },
  windows_spilled: {
    level: 'warn',
    about: 'At a stop, windows could not be written to the database; they are in a spill file.',
    remedy: 'Keep the data directory: the next start sends them.',
  },
  spilled_windows_sent: {
    level: 'info',
    about: 'The windows of a spill file were written to the database.',
    remedy: 'Nothing.',
  },
  // Usage
  usage_flush_failing: {
    level: 'warn',
    about: 'Usage cannot be written to the database; it is kept and written later.',
    remedy: 'Bring the database back.',
  },
  usage_flush_recovered: {
    level: 'info',
    about: 'Usage is written again.',
    remedy: 'Nothing.',
  },
  usage_spill_failing: {
    level: 'error',
    about: 'Usage can be written neither to the database nor to a spill file; it stays in memory.',
    remedy: 'Free disk space.',
  },
  usage_spill_recovered: {
    level: 'info',
    about: 'Usage can be written to spill files again.',
    remedy: 'Nothing.',
  },
  usage_batch_refused: {
    level: 'error',
    about: 'The database rejects some usage as invalid; it is kept in `spill/rejected-usage-…`.',
    remedy: 'Report it, with the line.',
  },
  usage_file_invalid: {
    level: 'error',
    about: 'A spill file of usage has invalid content; it stays in the data directory.',
    remedy: 'Find out where the file came from, then remove it.',
  },
  usage_months_dropped: {
    level: 'info',
    about: 'Months older than `TOLLGATE_USAGE_RETENTION_MONTHS` were dropped (`tables`).',
    remedy: 'Nothing.',
  },
  usage_retention_waiting: {
    level: 'info',
    about: 'A long query blocks dropping old months of usage.',
    remedy: 'Nothing: the next attempt is within five minutes after the query ends.',
  },
  usage_retention_failing: {
    level: 'error',
    about: 'Old months of usage could not be dropped; the next attempt is in five minutes.',
    remedy: 'Read `cause`: most often a permission is missing.',
  },
  usage_retention_recovered: {
    level: 'info',
    about: 'Old months can be dropped again.',
    remedy: 'Nothing.',
  },
  usage_upkeep_failing: {
    level: 'warn',
    about:
      'Usage could not be summed up by day and month, or old hours of rate limits could not be closed. Answers stay exact; the next attempt is within a minute.',
    remedy: 'Read `cause`: most often the database is slow or away.',
  },
  // Audit log
  audit_months_dropped: {
    level: 'info',
    about: 'Months older than `TOLLGATE_AUDIT_RETENTION_MONTHS` were dropped (`tables`).',
    remedy: 'Nothing.',
  },
  audit_retention_waiting: {
    level: 'info',
    about: 'A long query blocks creating or dropping a month of the audit log.',
    remedy: 'Nothing: the next attempt is within five minutes after the query ends.',
  },
  audit_retention_failing: {
    level: 'error',
    about:
      'A month of the audit log could not be created or dropped; the next attempt is in five minutes. New events are still kept.',
    remedy: 'Read `cause`: most often a permission is missing.',
  },
  audit_retention_recovered: {
    level: 'info',
    about: 'Months of the audit log can be created and dropped again.',
    remedy: 'Nothing.',
  },
  // Files in the data directory
  spill_of_other_database: {
    level: 'warn',
    about: 'The data directory holds spill files of another database (`files`); they stay.',
    remedy: 'Start once with that database, or remove them.',
  },
  spill_unreadable: {
    level: 'error',
    about: 'A spill file is damaged and was renamed to `….unreadable`.',
    remedy: 'Restore it from a backup, or accept the loss.',
  },
  // Keys
  erasure_unfinished: {
    level: 'warn',
    about:
      'Some records of an erased person or key could not be rewritten; the next attempt is within an hour.',
    remedy: 'Read `cause`. Repeat the erasure call to wait for it.',
  },
  keys_refilled: {
    level: 'info',
    about: 'Credits were refilled at midnight UTC (`refilled` keys).',
    remedy: 'Nothing.',
  },
  refill_failing: {
    level: 'error',
    about: 'The refill at midnight failed; the next attempt is in five minutes.',
    remedy: 'Read `cause`. A key that is verified is refilled anyway.',
  },
  refill_recovered: {
    level: 'info',
    about: 'The refill works again.',
    remedy: 'Nothing.',
  },
  key_import_waiting: {
    level: 'error',
    about: 'Enqueued keys wait for the database.',
    remedy: 'Bring the database back.',
  },
  key_import_resumed: {
    level: 'info',
    about: 'Enqueued keys are imported again.',
    remedy: 'Nothing.',
  },
  key_import_batch_failed: {
    level: 'warn',
    about: 'A batch of enqueued keys could not be imported; each key is tried alone.',
    remedy: 'Nothing: each key that fails has a line of its own.',
  },
  key_import_failed: {
    level: 'error',
    about: 'An enqueued key could not be imported (`import` is its id in `key_imports`) and is tried again.',
    remedy: 'Read `cause`.',
  },
  keys_not_imported: {
    level: 'warn',
    about: 'Enqueued keys failed after ten retries and are not tried again.',
    remedy: 'Read their reasons in the table `key_imports`.',
  },
  // Traces
  span_export_failing: {
    level: 'warn',
    about:
      'The collector does not accept trace spans. Requests are not affected; spans are dropped when the queue is full.',
    remedy: 'Check the collector and `OTEL_EXPORTER_OTLP_ENDPOINT`.',
  },
  span_export_recovered: {
    level: 'info',
    about: 'Trace spans are exported again.',
    remedy: 'Nothing.',
  },
  spans_lost_at_stop: {
    level: 'warn',
    about: 'Some trace spans were not exported before the stop and are lost.',
    remedy: 'Check the collector.',
  },
} as const satisfies Record<string, { level: LogLevel; about: string; remedy: string }>

export type LogEvent = keyof typeof LOG_EVENTS
export type LevelOf<Event extends LogEvent> = (typeof LOG_EVENTS)[Event]['level']
