import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads'
import { Episode } from './episodes.ts'
import { unavailablePart } from './errors.ts'
import type { LOG_EVENTS, LogEvent } from './log-events.ts'

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export type LogOptions = {
  /** What is less than this is not written. */
  level: LogLevel
  /** For eyes, not for programs: time, level, event and fields in columns. */
  isPretty: boolean
}

/** Facts of one event. Never a key, a root key or any other secret: those have ids. */
export type LogFields = Record<string, unknown>

/** Threads started later have the same: it is part of what a worker inherits. */
export function configureLog(chosen: LogOptions): void {
  options = chosen
  setEnvironmentData(INHERITED, chosen)
}

const INHERITED = 'tollgate.log'
// What was put there is what is got: only configureLog sets it.
let options = (getEnvironmentData(INHERITED) as LogOptions | undefined) ?? { level: 'info', isPretty: false } // see above

// What keeps the log may die before the server: a pipe's reader (EPIPE), a terminal that was closed (EIO), a disk that is
// full (ENOSPC). The server goes on without: nobody is to be locked out, and no stop cut short, for want of a log. Here, as
// each thread has streams of its own.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})

/**
 * One JSON line an event: `at` (ISO 8601), `level`, `event`, `message`, then the fields. Warnings and errors go to stderr.
 * @param event A stable name to alert on, with its level, from `log-events.ts`.
 * @param message A sentence for people, the same each time: what varies is a field.
 */
export function log<Event extends LogEvent>(
  level: (typeof LOG_EVENTS)[Event],
  event: Event,
  message: string,
  fields: LogFields = {},
): void {
  if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(options.level)) return
  const line = logLine({ at: new Date(), level, event, message, fields, isPretty: options.isPretty })
  if (level === 'error' || level === 'warn') process.stderr.write(`${line}\n`)
  else process.stdout.write(`${line}\n`)
}

/** One event as it is written, without the line end. */
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
 * Logs rejections that nobody awaits, instead of ending the thread with one. The database driver leaves such: its own
 * question about types, asked on each new connection, has nobody to hear that the connection broke.
 */
export function logUnhandledRejections(): void {
  const outage = new Episode('database')
  process.on('unhandledRejection', (cause) => {
    // Of an outage that is told already.
    if (outage.isOn && unavailablePart(cause) === 'database') return
    log('error', 'unhandled_rejection', 'a promise failed that nobody awaited', { cause })
  })
}

/**
 * Errors as name, message, code and cause. A database error's `detail`, `parameters` and `query` stay out:
 * they can hold what a caller sent, keys included.
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
