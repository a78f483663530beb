import postgres from 'postgres'
import { arrayTypes } from './array-types.ts'

/** How a thread reaches the database. Plain data: it crosses to worker threads. */
export type DatabaseAddress = (
  | { kind: 'url'; url: string }
  /** The embedded database behind its Unix socket. */
  | { kind: 'embedded'; socketPath: string }
) & {
  /** Who must answer there, once that is known: another database, say an empty standby, is as good as none. */
  databaseId?: string
}

type Int8AsNumber = { int8: number }

/** A pool of connections, one a thread. `int8` comes back as a number: ours are times and counts below 2^53. */
export type Sql = postgres.Sql<Int8AsNumber>
/** What runs statements, be it a pool or a transaction. */
export type AnySql = postgres.ISql<Int8AsNumber>
/** The same, where it must be inside a transaction. See `transactions.ts`. */
export type Transaction = AnySql

/** Told of each statement as it is sent, without its parameters. */
export type OnStatement = (text: string) => void

/**
 * Opens a pool; connections are made when first used.
 * @param options.connectionsMax Connections of this thread at most. The embedded database has one at heart, so more
 *   than two only wait for one another there.
 * @param options.statementTimeoutMs Postgres itself ends what takes longer, and a connection is sent nothing before
 *   it has answered: what waits behind a slow statement can still be taken back. Not the embedded database: its connections
 *   share one session.
 * @param options.onClose Called for each connection that closes, whoever closed it.
 */
export function connect(
  address: DatabaseAddress,
  options: {
    connectionsMax: number
    statementTimeoutMs?: number | undefined
    onClose?: () => void
    onStatement?: OnStatement | undefined
  },
): Sql {
  const { onStatement, statementTimeoutMs } = options
  const common = {
    types: { int8: { to: 20, from: [20], serialize: String, parse: Number }, ...arrayTypes },
    fetch_types: false,
    onnotice: () => {},
    onclose: () => options.onClose?.(),
    // Not even an empty function: with one, the driver's errors show the parameters of their statement.
    ...(onStatement === undefined ? {} : { debug: (_: number, text: string) => onStatement(text) }),
    connect_timeout: 5,
    // Else the driver ends each after 30 to 60 minutes, be it between two statements of a transaction.
    max_lifetime: null,
    connection: { application_name: 'tollgate' },
  }
  if (address.kind === 'url')
    return postgres(address.url, {
      ...common,
      ...(statementTimeoutMs === undefined
        ? {}
        : { connection: { ...common.connection, statement_timeout: statementTimeoutMs }, max_pipeline: 0 }),
      max: options.connectionsMax,
    })
  return postgres({
    ...common,
    path: address.socketPath,
    user: 'postgres',
    database: 'postgres',
    ssl: false,
    max: Math.min(2, options.connectionsMax),
  })
}

/** Asks for nothing: whether the database answers. @throws the driver's error when it does not. */
export async function ping(sql: AnySql): Promise<void> {
  await sql`select 1`
}
