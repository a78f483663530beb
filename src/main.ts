#!/usr/bin/env bun
import { runMigrate } from './cli/migrate.ts'
import { serve } from './cli/serve.ts'

const HELP = `usage: tollgate <command>

  serve     start the server (see README for the environment variables)
  migrate   bring the database up to date without serving
`

const [command = 'serve'] = process.argv.slice(2)
switch (command) {
  case 'serve':
    await serve()
    break
  case 'migrate':
    await runMigrate()
    break
  case 'help':
  case '--help':
  case '-h':
    process.stdout.write(HELP)
    break
  default:
    process.stderr.write(`unknown command ${JSON.stringify(command)}\n\n${HELP}`)
    process.exit(2)
}
