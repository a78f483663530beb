import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'
import { Episode } from './episodes.ts'
import { unavailablePart } from './errors.ts'
import { type LevelOf, LOG_LEVELS, type LogEvent, type LogLevel } from './log-events.ts'

export type LogOptions = {
  /** Events below this level are not written. */
  level: LogLevel
  /** Columns for people: time, level, event and fields. */
  isPretty: boolean
}

/** Fields of one event. Never a key, a root key or another secret; log their ids. */
export type LogFields = Record<string, unknown>

/** Also sets the options of threads started later: workers inherit them as environment data. */
export function configureLog(chosen: LogOptions): void {
  options = chosen
  setEnvironmentData(INHERITED, chosen)
}

const INHERITED = 'tollgate.log'
// Only `configureLog` writes this entry, so its type is known.
let options = (getEnvironmentData(INHERITED) as LogOptions | undefined) ?? { level: 'info', isPretty: false } // see above

// The reader of the log may fail before the server does: a closed pipe (EPIPE), a closed terminal (EIO), a full disk
// (ENOSPC). The server continues without a log: this must neither lock clients out nor cut a stop short. Set here because
// each thread has its own streams.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})

/**
 * Writes one event as a line of JSON: `at` (ISO 8601), `level`, `event`, `message`, then the fields. Warnings and errors go
 * to stderr.
 * @param event A stable name to alert on, from `log-events.ts`, which has its level.
 * @param message A sentence for people, always the same: what varies is a field.
 */
export function log<Event extends LogEvent>(
  level: LevelOf<Event>,
  event: Event,
  message: string,
  fields: LogFields = {},
): void {
  if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(options.level)) return
  const line = logLine({ at: new Date(), level, event, message, fields, isPretty: options.isPretty })
  if (level === 'error' || level === 'warn') process.stderr.write(`${line}\n`)
  else process.stdout.write(`${line}\n`)
}

/**
 * Says once in a thread that something is of a newer release and was left alone.
 * @param what From a fixed list: it is remembered.
 */
export function logUnknownFormat(what: string, format: unknown): void {
  if (unknownFormats.has(what)) return
  unknownFormats.add(what)
  log('warn', 'unknown_format', 'something that a newer release wrote was left alone', { what, format })
}

const unknownFormats = new Set<string>()

/** The text of one event, without the line end. */
export function logLine({
  at,
  level,
  event,
  message,
  fields,
  isPretty,
}: {
  at: Date
  level: LogLevel
  event: LogEvent
  message: string
  fields: LogFields
  isPretty: boolean
}): string {
  if (!isPretty)
    return JSON.stringify({ at: at.toISOString(), level, event, message, ...fields }, describeErrors)
  const facts = Object.entries({ event, ...fields }).map(([name, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value, describeErrors)
    return `  \x1b[2m${name}=\x1b[22m${text}`
  })
  return `\x1b[2m${at.toISOString().slice(11, 23)}\x1b[22m ${COLOURS[level]}${level.padEnd(5)}\x1b[39m ${message}${facts.join('')}`
}

const COLOURS: Record<LogLevel, string> = {
  debug: '\x1b[90m',
  info: '\x1b[32m',
  warn: '\x1b[33m',
  error: '\x1b[31m',
}

/**
 * Logs unhandled rejections instead of ending the thread. The database driver causes some: it queries types on each new
 * connection, and does not handle the error when that connection breaks.
 */
export function logUnhandledRejections(): void {
  const outage = new Episode('database')
  process.on('unhandledRejection', (cause) => {
    // Part of an outage that is already logged.
    if (outage.isOn && unavailablePart(cause) === 'database') return
    log('error', 'unhandled_rejection', 'a background task failed; the server continues', { cause })
  })
}

/**
 * Writes errors as name, message, code and cause. A database error's `detail`, `parameters` and `query` are left out: they
 * can contain callers' data, keys included.
 */
function describeErrors(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString()
  if (!(value instanceof Error)) return value
  const code = 'code' in value ? value.code : undefined
  const stack = value.stack
    ?.split('\n')
    .slice(1, 6)
    .map((line) => line.trim())
  return { name: value.name, message: value.message, code, cause: value.cause, stack }
}
