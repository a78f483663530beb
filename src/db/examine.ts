import { StartError } from '../errors.ts'
import { isLoopbackUrl } from '../lib/address.ts'
import { type DatabaseUrl, readDatabaseUrl } from '../lib/database-url.ts'
import { VERSION } from '../lib/version.ts'
import type { DatabaseAddress, Sql } from './connect.ts'
import type { Finding } from './inspect.ts'
import { schemaState } from './migrate.ts'
import { type SeenServer, seenServers } from './servers.ts'

/**
 * What `tollgate doctor` looks at besides what a start inspects: the migrations, the connection, other servers. Changes
 * nothing.
 * @param sql A connection as servers use them, to a database that {@link inspectDatabase} has nothing against.
 */
export async function examineDatabase(
  sql: Sql,
  address: DatabaseAddress & { kind: 'url' },
): Promise<{ findings: Finding[]; servers: SeenServer[] }> {
  const url = readDatabaseUrl(address.url)
  const migrations = await schemaState(sql).then(lookAtMigrations, (cause: unknown): Finding => {
    if (cause instanceof StartError) return { check: 'migrations', status: 'fail', text: cause.message }
    throw cause
  })
  return {
    findings: [
      migrations,
      lookAtTls(url, await isEncrypted(sql, { isPooled: address.isPooled === true })),
      lookAtRoundTrip(await roundTripMs(sql)),
    ],
    servers: await seenServers(sql),
  }
}

/** Null = unknown: what a pooler tells is its own connection to Postgres. */
async function isEncrypted(sql: Sql, { isPooled }: { isPooled: boolean }): Promise<boolean | null> {
  if (isPooled) return null
  const [row] = await sql<{ ssl: boolean }[]>`select ssl from pg_stat_ssl where pid = pg_backend_pid()`
  return row?.ssl ?? null
}

/** The shortest of several, ms: others also tell how busy both machines are. The first one may open the connection. */
async function roundTripMs(sql: Sql): Promise<number> {
  const taken: number[] = []
  for (let round = 0; round <= ROUNDS; round++) {
    const began = performance.now()
    await sql`select 1`
    taken.push(performance.now() - began)
  }
  return Math.min(...taken.slice(1))
}
const ROUNDS = 5

export function lookAtMigrations({
  isNew,
  pending,
  ahead,
}: Awaited<ReturnType<typeof schemaState>>): Finding {
  const check = 'migrations'
  if (ahead.length > 0)
    return {
      check,
      status: 'warn',
      text: `a newer release has migrated the database (${ahead.join(', ')}), and version ${VERSION} works with it; finish the upgrade`,
    }
  if (isNew) return { check, status: 'ok', text: 'none yet; the first start makes all tables' }
  return {
    check,
    status: 'ok',
    text:
      pending.length === 0
        ? 'all are applied'
        : `${pending.length} not applied yet (tollgate migrate --plan shows them); the next start applies those of phase expand`,
  }
}

/** @param isTls Whether the connection is encrypted; null = unknown, so what the URL demands counts. */
export function lookAtTls(url: Pick<DatabaseUrl, 'hosts' | 'tls'>, isTls: boolean | null): Finding {
  const check = 'tls'
  const { mode, rootFile } = url.tls
  const remote = url.hosts.find(({ host }) => !host.startsWith('/') && !isLocal(host))
  const isVerified = mode === 'verify-full' || mode === 'verify-ca'
  if (isTls ?? (isVerified || mode === 'require')) {
    if (mode === 'verify-full') return { check, status: 'ok', text: 'encrypted, and the server is verified' }
    if (isVerified || rootFile !== null)
      return { check, status: 'ok', text: 'encrypted; the authority is verified, the host name is not' }
    if (remote === undefined) return { check, status: 'ok', text: 'encrypted; the server is on this machine' }
    return {
      check,
      status: 'warn',
      text: `encrypted, but anybody between here and ${remote.host} can pose as the server; use sslmode=verify-full with sslrootcert`,
    }
  }
  if (remote === undefined) return { check, status: 'ok', text: 'none; the server is on this machine' }
  return {
    check,
    status: 'warn',
    text: `what goes to ${remote.host} is not encrypted, the password included; use sslmode=verify-full with sslrootcert`,
  }
}

const isLocal = (host: string) => isLoopbackUrl(`http://${host.includes(':') ? `[${host}]` : host}`)

export function lookAtRoundTrip(ms: number): Finding {
  const check = 'round trip'
  const text = `${ms.toFixed(1)} ms`
  return ms < ROUND_TRIP_MS
    ? { check, status: 'ok', text }
    : {
        check,
        status: 'warn',
        text: `${text}: each use of credits and each key that is not cached waits for one; run Tollgate near its database`,
      }
}
const ROUND_TRIP_MS = 5

/** Other servers on this database. */
export function lookAtServers(servers: readonly SeenServer[], version = VERSION): Finding {
  const check = 'servers'
  const strangers = servers.filter((each) => each.version !== version)
  if (strangers.length === 0)
    return {
      check,
      status: 'ok',
      text:
        servers.length === 0
          ? 'none was seen in the last minute'
          : `${servers.length} seen in the last minute, all of version ${version}`,
    }
  const named = strangers.map((each) => `${each.host} (${each.version})`).join(', ')
  return {
    check,
    status: 'warn',
    text: `this is version ${version}, and others run: ${named}; finish the upgrade`,
  }
}
