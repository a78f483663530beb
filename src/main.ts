#!/usr/bin/env bun
import { runMigrate } from './cli/migrate.ts'
import { serve } from './cli/serve.ts'
import { resealVault } from './cli/vault-reseal.ts'

const HELP = `usage: tollgate <command>

  serve          start the server (see README for the environment variables)
  migrate        bring the database up to date without serving
  vault reseal   seal recoverable keys with the first master key of TOLLGATE_VAULT_KEY
`

const command = process.argv.slice(2).join(' ') || 'serve'
switch (command) {
  case 'serve':
    await serve()
    break
  case 'migrate':
    await runMigrate()
    break
  case 'vault reseal':
    await resealVault()
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
