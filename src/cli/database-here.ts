import type { Config } from '../config.ts'
import { DataDirInUse, openDataDir } from '../data-dir/data-dir.ts'
import { connect, type DatabaseAddress, type Sql } from '../db/connect.ts'
import { hasEmbedded, runningEmbedded, startEmbedded } from '../db/embedded/embedded.ts'
import { StartError } from '../errors.ts'
import { admitDatabase, explained } from '../server/admit.ts'

/** The configured database, opened by a command of this machine. */
export type DatabaseHere = {
  sql: Sql
  address: DatabaseAddress
  /** The embedded database of a server that runs: its one session is shared with that server, which does not hear of changes. */
  isShared: boolean
}

/**
 * Opens the database of the configuration. The embedded one is started, or, where a server runs on the data directory, reached
 * through that server's socket.
 * @param options.mayShare False = refuse where a server runs on the embedded database.
 * @param options.mayCreate False = refuse an embedded database that does not exist.
 * @throws StartError: one line that says what to do.
 */
export async function withDatabase<T>(
  config: Config,
  options: { mayShare: boolean; mayCreate: boolean },
  work: (database: DatabaseHere) => Promise<T>,
): Promise<T> {
  await using opening = new AsyncDisposableStack()
  const { address, isShared } = await open(config, options, opening)
  const sql = connect(address, { connectionsMax: 1 })
  opening.defer(() => sql.end({ timeout: 2 }))
  return await explained(address, () => work({ sql, address, isShared }))
}

async function open(
  { databaseUrl, dataDir }: Config,
  { mayShare, mayCreate }: { mayShare: boolean; mayCreate: boolean },
  opening: AsyncDisposableStack,
): Promise<Omit<DatabaseHere, 'sql'>> {
  if (databaseUrl !== null)
    return { address: await admitDatabase(databaseUrl, { connections: 1 }), isShared: false }
  if (!mayCreate && !hasEmbedded(dataDir))
    throw new StartError(
      `there is no embedded database in ${dataDir}; set TOLLGATE_DATA_DIR or DATABASE_URL as the server has them`,
    )
  try {
    opening.use(openDataDir(dataDir, { exclusive: true }))
  } catch (cause) {
    if (!(cause instanceof DataDirInUse) || !mayShare) throw cause
    const address = runningEmbedded(dataDir)
    if (address !== null) return { address, isShared: true }
    throw new StartError(
      `a server runs on ${dataDir} and cannot be reached from here, as the path of that folder is too long; stop the server first`,
      { cause },
    )
  }
  const embedded = await startEmbedded(dataDir)
  opening.defer(() => embedded.stop())
  return { address: embedded.address, isShared: false }
}
