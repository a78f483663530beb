import { ConfigError, readConfig } from '../config.ts'
import { connect } from '../db/connect.ts'
import { openDataDir, StartError } from '../db/data-dir.ts'
import { startEmbedded } from '../db/embedded.ts'
import { migrate } from '../db/migrate.ts'
import { Transactions } from '../db/transactions.ts'
import { ApiError } from '../errors.ts'
import { readMasterKeys } from '../keys/master-keys.ts'
import { resealDataKeys } from '../keys/reseal.ts'

/**
 * `tollgate vault reseal`: the second step of changing the master key. First the servers run with
 * `TOLLGATE_VAULT_KEY=new,old`; after this, `old` can go. Servers on an external database may keep running.
 */
export async function resealVault(): Promise<void> {
  try {
    const { resealed, total } = await reseal()
    process.stdout.write(`resealed ${resealed} of ${total} data keys with the first master key\n`)
  } catch (cause) {
    const isExpected =
      cause instanceof ConfigError || cause instanceof StartError || cause instanceof ApiError
    if (!isExpected) throw cause
    const reason = cause.cause instanceof Error ? cause.cause.message : cause.message
    process.stderr.write(`nothing was changed: ${reason}\n`)
    process.exit(1)
  }
}

async function reseal() {
  const config = readConfig()
  await using opening = new AsyncDisposableStack()
  const dataDir = opening.use(openDataDir(config.dataDir, { exclusive: config.databaseUrl === null }))
  const masterKeys = readMasterKeys(config, dataDir)
  if (masterKeys.length === 0)
    throw new ConfigError(
      'TOLLGATE_VAULT_KEY is not set; it wants the new master key first, then those in use',
    )
  const embedded = config.databaseUrl === null ? await startEmbedded(config.dataDir) : null
  if (embedded !== null) opening.defer(() => embedded.stop())
  const address = embedded?.address ?? { kind: 'url' as const, url: config.databaseUrl ?? '' }
  const sql = connect(address, { connectionsMax: 1 })
  opening.defer(() => sql.end({ timeout: 2 }))
  await migrate(sql)
  const transactions = new Transactions(address, { connectionsMax: 1 })
  opening.defer(() => transactions.end({ timeout: 2 }))
  return await resealDataKeys((work) => transactions.run(work), masterKeys, Date.now())
}
