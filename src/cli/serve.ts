import { ConfigError, exposedSecretFiles, readConfig, unknownVariables, VARIABLES } from '../config.ts'
import { StartError } from '../errors.ts'
import { configureLog, log, logUnhandledRejections } from '../log.ts'
import { type Server, startServer } from '../server/server.ts'
import type { Command } from './arguments.ts'
import { failureOf, failureText } from './failure.ts'
import { Stopping } from './stopping.ts'

export const serveCommand: Command = {
  name: 'serve',
  isLocal: true,
  tellsUnknownVariables: true,
  about: 'start the server; --help lists its environment variables',
  notes: variablesText(),
  example: 'serve',
  run: (given) => serve(given.isJson),
}

/**
 * Runs the server until a signal (`stopping.ts`). Exit status: 0 after a clean stop, 1 when the start or the stop fails.
 * @param isJson Write only lines of JSON, also on a terminal.
 */
async function serve(isJson: boolean): Promise<void> {
  const stopping = new Stopping()
  stopping.listen()
  logUnhandledRejections()
  let server: Server
  try {
    const config = readConfig()
    configureLog({ level: config.log.level, isPretty: !isJson && process.stdout.isTTY === true })
    for (const fields of unknownVariables())
      log('warn', 'unknown_variable', 'unknown environment variable; it has no effect', fields)
    for (const fields of exposedSecretFiles())
      log('warn', 'secret_file_exposed', 'every user of this machine can read a file with a secret', fields)
    server = await startServer(config, { signal: stopping.signal })
  } catch (cause) {
    if (stopping.signal.aborted && cause === stopping.signal.reason) return stopping.startAborted()
    // A bug: the log gets the stack.
    if (!(cause instanceof ConfigError || cause instanceof StartError))
      log('error', 'start_failed', 'the start failed because of a bug in Tollgate', { cause })
    else
      process.stderr.write(failureText(failureOf(cause, { command: 'serve', listCommand: null }), { isJson }))
    process.exit(1)
  }
  if (!stopping.started(server)) announce(server, isJson)
}

/** Printed last: a program that waits for it may send a signal at once. */
function announce(
  { places, url, dashboardUrl, rootKeyFile, isKeyNew, facts }: Server,
  isJson: boolean,
): void {
  // Without a port no URL leads to the documentation.
  const docs = places.includes(url) ? `${url}/docs` : null
  if (isJson) {
    process.stdout.write(
      `${JSON.stringify({ event: 'listening', places, docs, dashboard: dashboardUrl, rootKeyFile, ...facts })}\n`,
    )
    return
  }
  const lines = [
    rootKeyFile === null
      ? ''
      : `The ${isKeyNew ? 'operator root key is' : 'root key that an earlier start generated is'} in ${rootKeyFile}\n`,
    dashboardUrl === null ? '' : `The dashboard is at ${dashboardUrl}\n`,
    docs === null ? '' : `Documentation is at ${docs}\n`,
    `Tollgate listens on ${places.join(' and ')}\n`,
  ]
  process.stdout.write(lines.join(''))
}

/** All variables with their defaults, in columns. */
function variablesText(): string {
  const rows = Object.entries(VARIABLES)
  const width = Math.max(...rows.map(([name]) => name.length))
  const lines = rows.map(
    ([name, { about, otherwise }]) => `  ${name.padEnd(width)}  ${about} (default: ${otherwise})`,
  )
  return `environment:\n${lines.join('\n')}`
}
