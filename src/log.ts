export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** Facts of one event. Never a key, a root key or any other secret: those have ids. */
export type LogFields = Record<string, unknown>

/** One JSON line an event: `at` (ISO 8601), `level`, `event`, then the fields. Errors go to stderr. */
export function log(level: LogLevel, event: string, fields: LogFields = {}): void {
  const line = JSON.stringify({ at: new Date().toISOString(), level, event, ...fields }, describeErrors)
  if (level === 'error' || level === 'warn') process.stderr.write(`${line}\n`)
  else process.stdout.write(`${line}\n`)
}

/**
 * Logs rejections that nobody awaits, instead of ending the thread with one. The database driver leaves such: its own
 * question about types, asked on each new connection, has nobody to hear that the connection broke.
 */
export function logUnhandledRejections(): void {
  process.on('unhandledRejection', (cause) => log('error', 'a promise failed that nobody awaited', { cause }))
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
