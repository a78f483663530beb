import { ConfigError, readConfig, unknownVariables, VARIABLES } from '../config.ts'
import { StartError } from '../db/data-dir.ts'
import { configureLog, log, logUnhandledRejections } from '../log.ts'
import { type Server, startServer } from '../server.ts'
import type { Command } from './arguments.ts'
import { errorText } from './text.ts'

export const serveCommand: Command = {
  name: 'serve',
  about: 'start the server; --help lists its environment variables',
  notes: variablesText(),
  run: (given) => serve(given.isJson),
}

/**
 * Runs the server until SIGTERM or SIGINT. The first stops it cleanly, the second at once. Exit status: 0 after a clean
 * stop, 1 when the start fails or a stop takes longer than {@link STOP_MS}.
 * @param isJson Nothing but lines of JSON, whoever reads them.
 */
async function serve(isJson: boolean): Promise<void> {
  logUnhandledRejections()
  let server: Server
  try {
    const config = readConfig()
    configureLog({ level: config.log.level, isPretty: !isJson && process.stdout.isTTY === true })
    for (const fields of unknownVariables())
      log('warn', 'unknown_variable', 'an environment variable is not known and has no effect', fields)
    server = await startServer(config)
  } catch (cause) {
    if (!(cause instanceof ConfigError || cause instanceof StartError)) throw cause
    process.stderr.write(`${errorText(cause, { isJson })}\n`)
    process.exit(1)
  }
  let isStopping = false
  const stop = (signal: NodeJS.Signals) => {
    if (isStopping) process.exit(1)
    isStopping = true
    log('info', 'stopping', 'stopping', { signal })
    setTimeout(() => {
      log('error', 'stop_timed_out', 'the stop took too long and was cut off', { afterMs: STOP_MS })
      process.exit(1)
    }, STOP_MS).unref()
    server.stop().then(
      () => {
        log('info', 'stopped', 'stopped')
        process.exit(0)
      },
      (cause: unknown) => {
        log('error', 'stop_failed', 'the stop failed', { cause })
        process.exit(1)
      },
    )
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  // Said last: whoever waits for it may send a signal at once.
  if (isJson) {
    const { places, rootKeyFile } = server
    process.stdout.write(`${JSON.stringify({ event: 'listening', places, rootKeyFile })}\n`)
    return
  }
  if (server.rootKeyFile !== null) process.stdout.write(`The operator root key is in ${server.rootKeyFile}\n`)
  process.stdout.write(`Tollgate listens on ${server.places.join(' and ')}\n`)
}

/** Every variable with its default, in columns. */
function variablesText(): string {
  const rows = Object.entries(VARIABLES)
  const width = Math.max(...rows.map(([name]) => name.length))
  const lines = rows.map(
    ([name, { about, otherwise }]) => `  ${name.padEnd(width)}  ${about} (default: ${otherwise})`,
  )
  return `environment:\n${lines.join('\n')}`
}

const STOP_MS = 9500
