import postgres from 'postgres'
import { type DatabaseUrl, readDatabaseUrl } from '../lib/database-url.ts'
import { arrayTypes } from './array-types.ts'
import { dialer } from './dial.ts'

/** The address of the database. Plain data, so that it can be sent to worker threads. */
export type DatabaseAddress = (
  | {
      kind: 'url'
      url: string
      /** A pooler is in between: sessions change, so nothing may be set, prepared or listened for in one. */
      isPooled?: boolean
      /** The schema of the tables, when it is not first in the role's search path. */
      schema?: string
    }
  /** The embedded database on its Unix socket. */
  | { kind: 'embedded'; socketPath: string }
) & {
  /** Id of the expected database, once known. Another one, such as an empty standby, counts as unavailable. */
  databaseId?: string
}

type Int8AsNumber = { int8: number }

/** A pool of connections, one for each thread. `int8` is read as a number: all values are times and counts below 2^53. */
export type Sql = postgres.Sql<Int8AsNumber>
/** Runs statements: a pool or a transaction. */
export type AnySql = postgres.ISql<Int8AsNumber>
/** As {@link AnySql}, inside a transaction. See `transactions.ts`. */
export type Transaction = AnySql

/** Called with the text of each statement when it is sent, without parameters. */
export type OnStatement = (text: string) => void

/**
 * Opens a pool. Connections are opened on first use.
 * @param options.connectionsMax Largest number of connections. The embedded database has one session, so more than two only
 *   wait for each other.
 * @param options.statementTimeoutMs Postgres itself ends longer statements, and a connection sends the next statement only
 *   after the answer to the last, so queued statements can be cancelled. It plans each statement for its values. Not for the
 *   embedded database, whose connections share a session.
 * @param options.onClose Called for each connection that closes, for any reason.
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
    // Left undefined when unused: with any function, the driver's errors contain the statement's parameters.
    ...(onStatement === undefined ? {} : { debug: (_: number, text: string) => onStatement(text) }),
    connect_timeout: 5,
    // The driver's default ends connections after 30 to 60 minutes, even between two statements of a transaction.
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

/**
 * The driver dials a single host without TLS itself; everything else goes through {@link dialer}. The driver never does
 * TLS.
 */
function placeOf(url: DatabaseUrl) {
  const [{ host, port } = { host: 'localhost', port: 5432 }] = url.hosts
  const place = {
    host,
    port,
    ssl: false,
    // The driver has one limit for all hosts together.
    connect_timeout: url.connectTimeoutSeconds * url.hosts.length,
  }
  const isPlain = url.hosts.length === 1 && url.tls.mode === 'disable' && !host.includes(':')
  if (!isPlain) return { ...place, socket: dialer(url) }
  return host.startsWith('/') ? { ...place, path: `${host}/.s.PGSQL.${port}` } : place
}

/**
 * Session settings that this program relies on, whatever the defaults of the database and role. Time limits are the
 * program's own: a statement has that of its request, and some writes take minutes. Poolers refuse most settings; for them
 * `inspect.ts` checks that they are in effect.
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
    // These statements read a lot or a little depending on their values. A plan for all values can read a whole log for one page.
    ...(statementTimeoutMs === 0 ? {} : { plan_cache_mode: 'force_custom_plan' }),
    ...(schema === undefined ? {} : { search_path: quoted(schema) }),
  }
  const all: Record<string, string> = isPooled === true ? asked : { ...asked, ...ours }
  return all as Partial<postgres.ConnectionParameters> // as texts: the driver treats the number 0 as unset
}

export const SESSION_SETTINGS = {
  default_transaction_isolation: 'read committed',
  lock_timeout: '0',
  idle_session_timeout: '0',
  // If a server hangs in the middle of a transaction, its locks must not stay for ever.
  idle_in_transaction_session_timeout: '60000',
  bytea_output: 'hex',
  extra_float_digits: '1',
  array_nulls: 'on',
  standard_conforming_strings: 'on',
  TimeZone: 'UTC',
}

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`

/** Checks that the database answers. @throws the driver's error when it does not. */
export async function ping(sql: AnySql): Promise<void> {
  await sql`select 1`
}
