import { type Config, readConfig } from '../config.ts'
import { openDataDir } from '../data-dir/data-dir.ts'
import { connect, type DatabaseAddress } from '../db/connect.ts'
import { startEmbedded } from '../db/embedded/embedded.ts'
import { ensureSchema } from '../db/inspect.ts'
import { migrate } from '../db/migrate.ts'
import { configureLog } from '../log.ts'
import { admitDatabase, explained } from '../server/admit.ts'
import type { Command } from './arguments.ts'

/** Migrates the database without serving, for operators who want this step apart. A start does the same first. */
export const migrateCommand: Command = {
  name: 'migrate',
  isLocal: true,
  about: 'apply database migrations without starting the server',
  example: 'migrate',
  async run(given) {
    // Only the result goes to stdout, so that programs can parse it.
    configureLog({ level: 'warn', isPretty: false })
    const { applied } = await migrateDatabase(readConfig(given.terminal.environment))
    given.print(applied.length === 0 ? 'no migrations to apply' : `applied ${applied.join(', ')}`, {
      applied,
    })
  },
}

async function migrateDatabase(config: Config): Promise<{ applied: string[] }> {
  await using opening = new AsyncDisposableStack()
  opening.use(openDataDir(config.dataDir, { exclusive: config.databaseUrl === null }))
  let address: DatabaseAddress
  if (config.databaseUrl === null) {
    const embedded = await startEmbedded(config.dataDir)
    opening.defer(() => embedded.stop())
    address = embedded.address
  } else address = await admitDatabase(config.databaseUrl, { connections: 1 })
  const sql = connect(address, { connectionsMax: 1 })
  opening.defer(() => sql.end({ timeout: 2 }))
  return await explained(address, async () => {
    if (address.kind === 'url') await ensureSchema(sql, address)
    return await migrate(sql)
  })
}
