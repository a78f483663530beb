import { readConfig } from '../config.ts'
import { connect } from '../db/connect.ts'
import { openDataDir } from '../db/data-dir.ts'
import { startEmbedded } from '../db/embedded.ts'
import { migrate } from '../db/migrate.ts'
import type { Command } from './arguments.ts'

/** Brings the database to this version's state without serving: what a start does first, for those who want it apart. */
export const migrateCommand: Command = {
  name: 'migrate',
  isLocal: true,
  about: 'bring the database up to date without serving',
  async run(given) {
    const { applied } = await migrateDatabase()
    given.print(applied.length === 0 ? 'nothing to apply' : `applied ${applied.join(', ')}`, { applied })
  },
}

async function migrateDatabase(): Promise<{ applied: string[] }> {
  const config = readConfig()
  await using opening = new AsyncDisposableStack()
  opening.use(openDataDir(config.dataDir, { exclusive: config.databaseUrl === null }))
  const embedded = config.databaseUrl === null ? await startEmbedded(config.dataDir) : null
  if (embedded !== null) opening.defer(() => embedded.stop())
  const sql = connect(embedded?.address ?? { kind: 'url', url: config.databaseUrl ?? '' }, {
    connectionsMax: 1,
  })
  opening.defer(() => sql.end({ timeout: 2 }))
  return await migrate(sql)
}
