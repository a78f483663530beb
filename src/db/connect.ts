import postgres from 'postgres'
import { type DatabaseUrl, readDatabaseUrl } from '../lib/database-url.ts'
import { arrayTypes } from './array-types.ts'
import { dialer } from './dial.ts'

/** How a thread reaches the database. Plain data: it crosses to worker threads. */
export type DatabaseAddress = (
  | {
      kind: 'url'
      url: string
      /** A pooler is in between: no session is ours, so nothing may be set in one, named in one or listened for. */
      isPooled?: boolean
      /** Where the tables are, when that is not what the role's own search path says. */
      schema?: string
    }
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
  }
  if (address.kind === 'url') {
    const url = readDatabaseUrl(address.url)
    return postgres({
      ...common,
      ...placeOf(url),
      ...(url.user === undefined ? {} : { user: url.user }),
      ...(url.password === undefined ? {} : { pass: url.password }),
      ...(url.database === undefined ? {} : { database: url.database }),
      keep_alive: url.keepAliveSeconds,
      prepare: address.isPooled !== true,
      connection: startupParameters(url, address, statementTimeoutMs),
      ...(statementTimeoutMs === undefined ? {} : { max_pipeline: 0 }),
      max: options.connectionsMax,
    })
  }
  return postgres({
    ...common,
    connection: { application_name: 'tollgate' },
    path: address.socketPath,
    user: 'postgres',
    database: 'postgres',
    ssl: false,
    max: Math.min(2, options.connectionsMax),
  })
}

/** One host without TLS is the driver's own affair; anything else is dialled here. Never TLS by the driver. */
function placeOf(url: DatabaseUrl) {
  const [{ host, port } = { host: 'localhost', port: 5432 }] = url.hosts
  const place = {
    host,
    port,
    ssl: false,
    // The driver knows one limit for all hosts.
    connect_timeout: url.connectTimeoutSeconds * url.hosts.length,
  }
  const isPlain = url.hosts.length === 1 && url.tls.mode === 'disable' && !host.includes(':')
  if (!isPlain) return { ...place, socket: dialer(url) }
  return host.startsWith('/') ? { ...place, path: `${host}/.s.PGSQL.${port}` } : place
}

/**
 * What this program relies on, whatever database and role are set to. Time limits are ours: a statement has that of its
 * request, and some writes are given minutes. Poolers refuse most of it: there `inspect.ts` looks whether it is so already.
 */
function startupParameters(
  url: DatabaseUrl,
  { isPooled, schema }: { isPooled?: boolean; schema?: string },
  statementTimeoutMs = 0,
): Partial<postgres.ConnectionParameters> {
  const asked: Record<string, string> = { application_name: url.applicationName, ...url.settings }
  if (url.rawOptions !== null) asked.options = url.rawOptions
  const ours = {
    ...SESSION_SETTINGS,
    statement_timeout: String(statementTimeoutMs),
    ...(schema === undefined ? {} : { search_path: quoted(schema) }),
  }
  const all: Record<string, string> = isPooled === true ? asked : { ...asked, ...ours }
  return all as Partial<postgres.ConnectionParameters> // as texts: of a number 0 the driver thinks that it is not set
}

export const SESSION_SETTINGS = {
  default_transaction_isolation: 'read committed',
  lock_timeout: '0',
  idle_session_timeout: '0',
  // A server that stopped in the middle of a transaction must not hold its locks for ever.
  idle_in_transaction_session_timeout: '60000',
  bytea_output: 'hex',
  extra_float_digits: '1',
  array_nulls: 'on',
  standard_conforming_strings: 'on',
  TimeZone: 'UTC',
}

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`

/** Asks for nothing: whether the database answers. @throws the driver's error when it does not. */
export async function ping(sql: AnySql): Promise<void> {
  await sql`select 1`
}
