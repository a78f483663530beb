import { readDatabaseUrl } from '../lib/database-url.ts'
import { type AnySql, connect, type DatabaseAddress, SESSION_SETTINGS, type Sql } from './connect.ts'
import { explain } from './explain.ts'
import { clockAhead } from './status.ts'

/**
 * Checks whether this program can run on a database. Each problem and each risk is one line with what to do; two things are
 * adapted to: a pooler in between, and a schema that is not first in the search path. Changes nothing.
 */
export type Inspection = {
  /** The address to use from now on. */
  address: DatabaseAddress
  /** In the order of the checks. A problem ends them where later ones would have no basis. */
  findings: Finding[]
}

/** `fail`: no server can run. `warn`: one can, and the text names the cost. The text also says what to do. */
export type Finding = { check: string; status: 'ok' | 'warn' | 'fail'; text: string }

/**
 * @param options.connections Largest number of connections that a server opens.
 * @param options.trustsKeys False ignores a made-up cancel key as the sign of a pooler; for tests of the other signs.
 */
export async function inspectDatabase(
  address: DatabaseAddress & { kind: 'url' },
  options: { connections: number; trustsKeys?: boolean },
): Promise<Inspection> {
  try {
    // Nothing is set or prepared on the connection, so that it works through any pooler.
    const asking = { ...address, isPooled: true }
    let { inspection, wasClosed } = await inspect(asking, address, options)
    // A pooler that cannot connect to its server closes the client's connection. The next attempt may succeed.
    for (let attempt = 1; wasClosed && attempt < ATTEMPTS; attempt++)
      ({ inspection, wasClosed } = await inspect(asking, address, options))
    return inspection
  } catch (cause) {
    if (!isCanceled(cause)) throw cause
  }
  // The role or database may have a statement_timeout too short for the checks. Without a pooler, connections set their
  // own.
  const again = await inspect(address, address, options).catch((cause: unknown) => {
    if (isCanceled(cause)) return null
    throw cause
  })
  if (again !== null && !again.inspection.findings.some(({ check }) => check === 'connection'))
    return again.inspection
  const text =
    'statement_timeout is too short to ask anything, and through a pooler it cannot be set for a connection; set it to 0 for the role of DATABASE_URL, then restart the pooler’s connections'
  return { address, findings: [fail('timeouts', text)] }
}

const ATTEMPTS = 3

/** Postgres ended a statement that took too long. */
const isCanceled = (cause: unknown) => cause instanceof Error && 'code' in cause && cause.code === '57014'

/**
 * @param asking Address for the checks' own connections.
 * @throws the driver's error when Postgres ends a check.
 */
async function inspect(
  asking: DatabaseAddress,
  address: DatabaseAddress & { kind: 'url' },
  options: { connections: number; trustsKeys?: boolean },
): Promise<{ inspection: Inspection; wasClosed: boolean }> {
  const url = readDatabaseUrl(address.url)
  const findings: Finding[] = []
  if (url.ignored.length > 0)
    findings.push(warn('url', `DATABASE_URL has parameters that are ignored: ${url.ignored.join(', ')}`))
  const sql = connect(asking, { connectionsMax: 1 })
  try {
    const server = await readServer(sql)
    findings.push(...lookAtServer(server))
    if (findings.some(isFailure)) return { inspection: { address, findings }, wasClosed: false }
    const pooler = url.isPooled ? 'shared' : await findPooler(sql, asking, options)
    const isPooled = pooler !== 'none'
    findings.push(...lookAtSession(server, pooler))
    if (!isPooled) findings.push(...lookAtConnections(server, options))
    const place = await readPlace(sql, url.schema)
    findings.push(...lookAtPlace(place, server, isPooled))
    if (server.version >= 150_000) findings.push(...(await lookAtCollation(sql)))
    const isElsewhere = place.schema !== null && place.schema !== place.currentSchema
    const reached = {
      ...address,
      ...(isPooled ? { isPooled } : {}),
      ...(place.schema !== null && (isElsewhere || url.schema !== null) ? { schema: place.schema } : {}),
    }
    return { inspection: { address: reached, findings }, wasClosed: false }
  } catch (cause) {
    if (isCanceled(cause)) throw cause
    findings.push(fail('connection', explain(cause, url)))
    const wasClosed = cause instanceof Error && 'code' in cause && cause.code === 'CONNECTION_CLOSED'
    return { inspection: { address, findings }, wasClosed }
  } finally {
    await sql.end({ timeout: 1 }).catch(() => {}) // it served only the checks
  }
}

/** Creates the schema that the URL names, if it is missing. @throws the driver's error. */
export async function ensureSchema(sql: AnySql, { schema }: { schema?: string }): Promise<void> {
  if (schema === undefined) return
  const [row] = await sql`select from pg_namespace where nspname = ${schema}`
  if (row === undefined) await sql`create schema if not exists ${sql(schema)}`
}

export const finding = (status: Finding['status'], check: string, text: string): Finding => ({
  check,
  status,
  text,
})
const ok = (check: string, text: string) => finding('ok', check, text)
const warn = (check: string, text: string) => finding('warn', check, text)
const fail = (check: string, text: string) => finding('fail', check, text)
/** Quotes a name, where needed, so that it can be pasted into a statement. */
const inSql = (name: string) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`)

export const isFailure = ({ status }: Finding) => status === 'fail'

/** Facts that a server reports about itself. */
export type ServerFacts = Awaited<ReturnType<typeof readServer>>

/** Uses only what Postgres 9.6 has too, so that an old server can report its version. */
async function readServer(sql: AnySql) {
  const sentAt = Date.now()
  const [row] = await sql<
    {
      version: number
      versionText: string
      encoding: string
      database: string
      role: string
      isStandby: boolean
      isReadOnly: boolean
      nowMs: number
      synchronousCommit: string
      replicationRole: string
      fsync: string
      fullPageWrites: string
      transactionTimeout: string | null
      statementTimeout: string
      idleTimeout: string
      settings: Record<string, string>
      connectionsMax: number
      connectionsUsed: number
      roleLimit: number
      databaseLimit: number
    }[]
  >`
    select current_setting('server_version_num')::int as "version",
           current_setting('server_version') as "versionText",
           current_setting('server_encoding') as "encoding",
           current_database()::text as "database",
           current_user::text as "role",
           pg_is_in_recovery() as "isStandby",
           current_setting('transaction_read_only') = 'on' as "isReadOnly",
           (extract(epoch from clock_timestamp()) * 1000)::int8 as "nowMs",
           current_setting('synchronous_commit') as "synchronousCommit",
           current_setting('session_replication_role') as "replicationRole",
           current_setting('fsync') as "fsync",
           current_setting('full_page_writes') as "fullPageWrites",
           current_setting('transaction_timeout', true) as "transactionTimeout",
           current_setting('statement_timeout') as "statementTimeout",
           current_setting('idle_in_transaction_session_timeout') as "idleTimeout",
           (select json_object_agg(name, setting) from pg_settings
             where name in ('default_transaction_isolation', 'bytea_output', 'array_nulls', 'standard_conforming_strings')) as "settings",
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
             - coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0) as "connectionsMax",
           (select count(*)::int from pg_stat_activity where datid is not null and pid <> pg_backend_pid()) as "connectionsUsed",
           (select rolconnlimit from pg_roles where rolname = current_user) as "roleLimit",
           (select datconnlimit from pg_database where datname = current_database()) as "databaseLimit"`
  if (row === undefined) throw new Error('the database does not say what it is')
  return { ...row, clockAheadMs: clockAhead({ sentAt, nowMs: row.nowMs, receivedAt: Date.now() }) }
}

/** Checks of the server itself. Exported for tests, which do not have every version. */
export function lookAtServer(server: ServerFacts): Finding[] {
  const { version, versionText, role, database } = server
  if (version < 140_000)
    return [
      fail('version', `the server is Postgres ${versionText}; Tollgate needs 14 or newer: upgrade Postgres`),
    ]
  const found = [ok('version', `Postgres ${versionText}, database ${database}, role ${role}`)]
  found.push(
    server.encoding === 'UTF8'
      ? ok('encoding', 'UTF8')
      : fail(
          'encoding',
          `database ${database} is encoded in ${server.encoding}, which cannot store all texts; create a database with: create database … encoding 'UTF8' template template0`,
        ),
  )
  if (server.isStandby)
    found.push(fail('writable', 'the server is a standby and read only; connect to the primary'))
  else if (server.isReadOnly)
    found.push(
      fail(
        'writable',
        `transactions of role ${role} in database ${database} are read only (default_transaction_read_only); connect to the primary, or: alter database ${inSql(database)} reset default_transaction_read_only`,
      ),
    )
  else found.push(ok('writable', 'takes writes'))
  if (server.replicationRole === 'replica')
    found.push(
      fail(
        'triggers',
        `session_replication_role of role ${role} in database ${database} is replica: triggers do not run, so bounds are not enforced; as a superuser run: alter database ${inSql(database)} reset session_replication_role, and the same for the role`,
      ),
    )
  const seconds = Math.round(Math.abs(server.clockAheadMs) / 100) / 10
  found.push(
    seconds < CLOCK_APART_SECONDS
      ? ok('clock', 'same time as on this machine')
      : warn(
          'clock',
          `the clock of the database is ${seconds} s ${server.clockAheadMs > 0 ? 'ahead of' : 'behind'} the clock here; synchronise both with NTP: otherwise expiries, refills and hours of usage are wrong`,
        ),
  )
  if (server.synchronousCommit === 'off')
    found.push(
      warn(
        'durability',
        'synchronous_commit is off: a crash of Postgres loses up to half a second of answered changes, such as new or revoked keys and spent credits; switch it on',
      ),
    )
  for (const [name, value] of Object.entries({
    fsync: server.fsync,
    full_page_writes: server.fullPageWrites,
  }))
    if (value === 'off')
      found.push(
        warn('durability', `${name} is off: a crash of the machine can destroy the database; switch it on`),
      )
  return found
}

const CLOCK_APART_SECONDS = 2

/**
 * The pooler in between. `shared`: a session serves several clients. `statement`: even a transaction is not kept together.
 *
 * A pooler must invent the key for cancelling, as it has no server process for the client yet, while Postgres sends the
 * process's own. A pooler that passes on real keys is found by its sharing: one server process serves two open connections,
 * or one connection gets another process. To provoke the latter, a second and a third connection each keep a process busy
 * in a transaction.
 */
type Pooler = 'none' | 'shared' | 'statement'

async function findPooler(
  first: Sql,
  asking: DatabaseAddress,
  { trustsKeys = true }: { trustsKeys?: boolean },
): Promise<Pooler> {
  const asked = await first<{ pid: number }[]>`select pg_backend_pid() as pid`
  const own = asked[0]?.pid
  let isShared = trustsKeys && asked.state.pid !== own
  const holding: Sql[] = []
  const hold = async () => {
    const sql = connect(asking, { connectionsMax: 1 })
    holding.push(sql)
    await sql.unsafe('begin')
    return await pidOf(sql)
  }
  try {
    for (let round = 0; round < 2; round++) {
      const held = await hold()
      isShared ||= held === own || (await pidOf(first)) !== own
      if (isShared) break // a pool of one connection would block the next question
    }
  } catch (cause) {
    // PgBouncer sends the reason and closes the connection; the driver reports only the closing.
    if (isShared && cause instanceof Error && 'code' in cause && cause.code === 'CONNECTION_CLOSED')
      return 'statement'
    throw cause
  } finally {
    await Promise.all(holding.map((sql) => sql.end({ timeout: 0 }).catch(() => {}))) // this rolls them back
  }
  return isShared ? 'shared' : 'none'
}

const pidOf = async (sql: Sql) => (await sql<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]?.pid

/**
 * Without a pooler each connection sets what it needs (`connect.ts`). Through a pooler the role must have it as default.
 */
function lookAtSession(server: ServerFacts, pooler: Pooler): Finding[] {
  if (pooler === 'statement')
    return [
      fail(
        'pooler',
        'the pooler is in pool_mode=statement, which does not support transactions; set pool_mode=transaction, or connect directly to Postgres',
      ),
    ]
  const found: Finding[] = []
  const seconds = Number.parseFloat(server.transactionTimeout ?? '0')
  if (seconds > 0)
    found.push(
      warn(
        'timeouts',
        `transaction_timeout is ${server.transactionTimeout}: deleting very many keys takes up to two minutes and may fail; for role ${server.role}, set it to 0`,
      ),
    )
  if (pooler === 'none') return [ok('pooler', 'no pooler'), ...found]
  found.unshift(
    ok(
      'pooler',
      'connected through a pooler: no prepared statements, and changes of other servers are polled every second instead of received at once',
    ),
  )
  for (const [name, value] of Object.entries(server.settings)) {
    const wanted = Object.entries(SESSION_SETTINGS).find(([each]) => each === name)?.[1]
    if (value !== wanted)
      found.push(
        fail(
          'settings',
          `${name} is ${value}, and through a pooler it cannot be set for a connection; run: alter role ${inSql(server.role)} set ${name} = '${wanted}', then restart the pooler's connections`,
        ),
      )
  }
  if (Number.parseFloat(server.statementTimeout) > 0)
    found.push(
      warn(
        'timeouts',
        `statement_timeout is ${server.statementTimeout}: deleting very many keys takes up to two minutes and may fail; for role ${server.role}, set it to 0`,
      ),
    )
  if (/^\d+ms$|^[1-9]s$/.test(server.idleTimeout))
    found.push(
      warn(
        'timeouts',
        `idle_in_transaction_session_timeout is ${server.idleTimeout}, which can end transactions of a busy server; for role ${server.role}, set it to 60s`,
      ),
    )
  return found
}

/** Through a pooler, the pooler's own limits apply. */
function lookAtConnections(server: ServerFacts, options: { connections: number }): Finding[] {
  const { role, database } = server
  const limits = [
    { name: 'max_connections', left: server.connectionsMax - server.connectionsUsed },
    ...[
      { name: `the limit of role ${role}`, max: server.roleLimit },
      { name: `the limit of database ${database}`, max: server.databaseLimit },
    ]
      .filter(({ max }) => max >= 0)
      .map(({ name, max }) => ({ name, left: max })),
  ]
  const least = limits.reduce((a, b) => (b.left < a.left ? b : a))
  return [
    least.left >= options.connections
      ? ok('connections', `${least.left} available, at most ${options.connections} needed`)
      : warn(
          'connections',
          `${least.name} leaves ${Math.max(0, least.left)} connections, but Tollgate may open ${options.connections}; raise it, or lower TOLLGATE_HTTP_THREADS`,
        ),
  ]
}

type Place = Awaited<ReturnType<typeof readPlace>>

/** Some tables of `sql/0001_tables.sql`, to notice another program's tables with the same names. */
const TABLES = [
  'settings',
  'workspaces',
  'keyspaces',
  'apis',
  'identities',
  'keys',
  'roles',
  'permissions',
  'ratelimits',
]
const RECORD = 'tollgate_migrations'

async function readPlace(sql: AnySql, asked: string | null) {
  const [row] = await sql<{ currentSchema: string | null; path: string; ours: string[]; inPath: string[] }[]>`
    with ours as (
      select n.nspname, c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
       where c.relname = ${RECORD} and c.relkind = 'r' and not pg_is_other_temp_schema(n.oid)
    )
    select current_schema()::text as "currentSchema",
           current_setting('search_path') as "path",
           array(select nspname::text from ours order by 1) as "ours",
           array(select nspname::text from ours where pg_table_is_visible(oid)) as "inPath"`
  if (row === undefined) throw new Error('the database does not say where its tables are')
  const schema = asked ?? row.inPath[0] ?? row.currentSchema
  const [facts] = await sql<
    {
      isThere: boolean
      canUse: boolean | null
      canCreate: boolean | null
      canMake: boolean
      strangers: string[]
      recordColumns: number
      owners: string[]
    }[]
  >`
    with there as (select oid, nspname from pg_namespace where nspname = ${schema ?? ''}),
         tables as (
           select c.relname::text, c.relowner, c.oid
             from pg_class c join there on there.oid = c.relnamespace
            where c.relname = any(${[...TABLES, RECORD]}::text[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
         )
    select exists (select from there) as "isThere",
           (select has_schema_privilege(oid, 'usage') from there) as "canUse",
           (select has_schema_privilege(oid, 'create') from there) as "canCreate",
           has_database_privilege(current_database(), 'create') as "canMake",
           array(select relname from tables where relname <> ${RECORD} order by 1) as "strangers",
           (select count(*)::int from pg_attribute a join tables t on t.oid = a.attrelid
             where t.relname = ${RECORD} and a.attname in ('number', 'name', 'checksum', 'applied_at')) as "recordColumns",
           array(select distinct pg_get_userbyid(relowner)::text from tables where not pg_has_role(relowner, 'usage')) as "owners"`
  if (facts === undefined) throw new Error('the database does not say what role may do')
  return { ...row, ...facts, asked, schema, isOurs: schema !== null && row.ours.includes(schema) }
}

function lookAtPlace(place: Place, { role, database }: ServerFacts, isPooled: boolean): Finding[] {
  const { asked, schema, currentSchema, path, ours } = place
  const [elsewhere] = ours
  const shownPath = path === '' || path === '""' ? 'empty' : path
  if (asked === null && !place.isOurs && elsewhere !== undefined)
    return [
      fail(
        'schema',
        `Tollgate's tables are in schema ${elsewhere}, which is not in the search path of role ${role} (${shownPath}); add ?schema=${encodeURIComponent(elsewhere)} to DATABASE_URL to use them, or ?schema=${encodeURIComponent(schema ?? 'tollgate')} to create new ones`,
      ),
    ]
  if (schema === null)
    return [
      fail(
        'schema',
        `the search path of role ${role} (${shownPath}) has no schema that exists and that the role may use; add ?schema=tollgate to DATABASE_URL`,
      ),
    ]
  if (!place.isThere)
    return place.canMake
      ? [...pinned(place, role, isPooled), ok('schema', `${schema}, which the first start creates`)]
      : [
          fail(
            'schema',
            `schema ${schema} does not exist, and role ${role} may not create it; as a superuser run: create schema ${inSql(schema)} authorization ${inSql(role)}`,
          ),
        ]
  if (place.canUse !== true || place.canCreate !== true)
    return [
      fail(
        'rights',
        `role ${role} may not ${place.canUse === true ? 'create tables in' : 'use'} schema ${schema} of database ${database}; as its owner run: grant usage, create on schema ${inSql(schema)} to ${inSql(role)}${schema === 'public' ? ' (Postgres 15 and newer grant that to nobody)' : ''}`,
      ),
    ]
  if ((!place.isOurs && place.strangers.length > 0) || (place.isOurs && place.recordColumns < 4))
    return [
      fail(
        'schema',
        `schema ${schema} of database ${database} has tables of another application (${place.isOurs ? RECORD : place.strangers.join(', ')}); give Tollgate a database of its own, or a schema: add ?schema=tollgate to DATABASE_URL`,
      ),
    ]
  if (place.owners.length > 0)
    return [
      fail(
        'rights',
        `Tollgate's tables in schema ${schema} belong to ${place.owners.join(', ')}, and role ${role} is not a member of it; run: grant ${inSql(place.owners[0] ?? '')} to ${inSql(role)}`,
      ),
    ]
  const found = pinned(place, role, isPooled)
  if (currentSchema !== schema && asked === null && found.length === 0)
    found.push(
      warn(
        'schema',
        `Tollgate's tables are in schema ${schema} and new ones would go to ${currentSchema}, so schema ${schema} is used; make that explicit: add ?schema=${encodeURIComponent(schema)} to DATABASE_URL`,
      ),
    )
  return [...found, ok('schema', schema), ok('rights', `role ${role} may create and change tables there`)]
}

/** A schema that is not first in the search path is set on each connection, which poolers do not allow. */
const pinned = ({ schema, currentSchema }: Place, role: string, isPooled: boolean): Finding[] =>
  isPooled && schema !== currentSchema
    ? [
        fail(
          'schema',
          `through a pooler the schema cannot be set for a connection; run: alter role ${inSql(role)} set search_path = ${inSql(schema ?? '')}, then restart the pooler's connections`,
        ),
      ]
    : []

/** After an upgrade of the C library, texts may sort differently than in the existing indexes. */
async function lookAtCollation(sql: AnySql): Promise<Finding[]> {
  const [row] = await sql<{ database: string; made: string | null; now: string | null }[]>`
    select datname::text as database, datcollversion as made, pg_database_collation_actual_version(oid) as now
      from pg_database where datname = current_database()`
  if (row === undefined || row.made === row.now)
    return [ok('collation', 'same version as when the indexes were built')]
  return [
    warn(
      'collation',
      `database ${row.database} was created with collation version ${row.made}, but the system has version ${row.now}; run: reindex database ${inSql(row.database)}, then: alter database ${inSql(row.database)} refresh collation version`,
    ),
  ]
}
