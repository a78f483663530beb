import { readConfig } from '../config.ts'
import { ensureSchema } from '../db/inspect.ts'
import { migrate, type PlannedMigration, planMigrations } from '../db/migrate.ts'
import { configureLog } from '../log.ts'
import type { Command } from './arguments.ts'
import { withDatabase } from './database-here.ts'
import { UsageError } from './usage-error.ts'

/** Migrates the database without serving, for operators who want this step apart. A start does the same first. */
export const migrateCommand: Command = {
  name: 'migrate',
  isLocal: true,
  about: 'apply database migrations without starting the server',
  options: {
    plan: { value: null, about: 'show which migrations would run and what they lock, and change nothing' },
    contract: {
      value: null,
      about: 'also take away what only older releases need; refused while such a server runs',
    },
  },
  example: 'migrate --plan',
  async run(given) {
    // Only the result goes to stdout, so that programs can parse it.
    configureLog({ level: 'warn', isPretty: false })
    const isContract = given.has('contract')
    const config = readConfig(given.terminal.environment)
    const alone = { mayShare: false, mayCreate: true }
    if (given.has('plan')) {
      if (isContract)
        throw new UsageError('--plan shows what --contract would run too: give only one of them')
      const pending = await withDatabase(config, alone, ({ sql }) => planMigrations(sql))
      return given.print(pending.length === 0 ? 'no migrations to apply' : planTable(pending), { pending })
    }
    const { applied, later } = await withDatabase(config, alone, async ({ sql, address }) => {
      if (address.kind === 'url') await ensureSchema(sql, address)
      const { applied } = await migrate(sql, {
        isPooled: address.kind === 'url' && address.isPooled === true,
        isContract,
      })
      return { applied, later: (await planMigrations(sql)).map(({ name }) => name) }
    })
    const hint = later.length === 0 ? '' : `; left for --contract: ${later.join(', ')}`
    given.print((applied.length === 0 ? 'no migrations to apply' : `applied ${applied.join(', ')}`) + hint, {
      applied,
      later,
    })
  },
}

/** Lines of a table: name, phase, oldest server, what is locked. */
function planTable(pending: PlannedMigration[]): string {
  const width = Math.max(...pending.map(({ name }) => name.length))
  return pending
    .map(({ name, phase, transaction, oldestServer, locks }) => {
      const locked =
        locks.map(({ table, mode }) => `${table} (${mode})`).join(', ') || 'no table that is there'
      const how = { one: '', none: ' while the index is built', batches: ' in batches' }[transaction]
      return `${name.padEnd(width)}  ${phase.padEnd(8)}  servers from ${oldestServer}  locks ${locked}${how}`
    })
    .join('\n')
}
