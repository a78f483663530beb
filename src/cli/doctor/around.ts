import { lookup } from 'node:dns/promises'
import { existsSync } from 'node:fs'
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import { join } from 'node:path'
import { type Config, type Environment, readClientConfig } from '../../config.ts'
import { countSpills, type SpillCounts } from '../../data-dir/spill.ts'
import { type Finding, finding } from '../../db/inspect.ts'
import { isAddressListed } from '../../lib/address.ts'
import { CallError, Client } from '../client.ts'

/** Checks that the port is free, or that Tollgate itself uses it. */
export async function lookAtPort(
  { listen: { host, port, socketPath } }: Config,
  environment: Environment | undefined,
): Promise<Finding> {
  const client = new Client(readClientConfig(environment))
  const { url, socketPath: asked } = client.config
  const place = asked ?? url
  try {
    const { services, version } = await client.get<Liveness>('liveness')
    if (services?.database !== undefined)
      return finding(
        'ok',
        'server',
        `Tollgate ${version ?? 'of an unknown version'} runs at ${place}; its database is ${services.database}`,
      )
    return finding('fail', 'server', `another program answers at ${place}; stop it, or set PORT`)
  } catch (cause) {
    if (!(cause instanceof CallError)) throw cause
    if (cause.status !== null)
      return finding('fail', 'server', `${place} answers, but not as a healthy Tollgate: ${cause.message}`)
  }
  if (port === null) return finding('ok', 'server', `Tollgate does not run at ${socketPath}`)
  const failure = await new Promise<NodeJS.ErrnoException | null>((resolve) => {
    const server = createServer()
    server.once('error', resolve)
    server.listen({ host, port }, () => server.close(() => resolve(null)))
  })
  if (failure === null)
    return finding('ok', 'server', `Tollgate does not run at ${place}; HOST ${host}, PORT ${port} is free`)
  const remedy =
    failure.code === 'EADDRINUSE'
      ? 'is used by another program; stop that program, or set PORT'
      : `cannot be used (${failure.code}); set HOST to an address of this machine, or PORT to another port`
  return finding('fail', 'server', `HOST ${host}, PORT ${port} ${remedy}`)
}

type Liveness = { version?: string; clientAddress?: string; services?: { database?: string } }

/**
 * Asks the server through TOLLGATE_PUBLIC_URL, as clients do, which address it takes for that of this machine. Asked with
 * an invented `X-Forwarded-For` too: a server that believes it lets every client choose its address.
 */
export async function lookAtPublicUrl(publicUrl: string | null): Promise<Finding> {
  const check = 'public url'
  if (publicUrl === null)
    return finding('ok', check, 'TOLLGATE_PUBLIC_URL is not set, so the way of clients is not checked')
  try {
    const usual = await liveness(publicUrl, {})
    if (usual === null)
      return finding(
        'warn',
        check,
        `what answers at ${publicUrl} is no Tollgate; correct TOLLGATE_PUBLIC_URL or the proxy`,
      )
    const invented = await liveness(publicUrl, { 'X-Forwarded-For': INVENTED })
    const { hostname } = new URL(publicUrl)
    const places = await lookup(hostname.replace(/^\[|\]$/g, ''), { all: true })
    return judgeAddress(publicUrl, {
      usual: usual.clientAddress ?? null,
      invented: invented?.clientAddress ?? null,
      places: places.map(({ address }) => address),
      own: Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address)),
    })
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    return finding(
      'warn',
      check,
      `${publicUrl} cannot be reached from here (${reason}); start the server and the proxy, or correct TOLLGATE_PUBLIC_URL`,
    )
  }
}

/** Reserved for documentation: no client has it. */
const INVENTED = '192.0.2.77'
const TIMEOUT_MS = 5000

async function liveness(publicUrl: string, headers: Record<string, string>): Promise<Liveness | null> {
  const response = await fetch(`${publicUrl}/v1/liveness`, {
    headers,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  })
  const body = (await response.json().catch(() => null)) as Liveness | null // whatever answers: each field may be missing
  return body?.services?.database === undefined ? null : body
}

/**
 * @param seen.usual The address that arrives; null = none. `invented`: that with an invented header.
 * @param seen.places Addresses of the public URL. `own`: those of this machine.
 */
export function judgeAddress(
  publicUrl: string,
  seen: { usual: string | null; invented: string | null; places: readonly string[]; own: readonly string[] },
): Finding {
  const check = 'public url'
  const { usual, invented, places, own } = seen
  if (usual === null)
    return finding(
      'warn',
      check,
      `through ${publicUrl} no client address arrives, so allow lists refuse everybody; let the proxy send X-Forwarded-For`,
    )
  if (invented === INVENTED)
    return finding(
      'warn',
      check,
      `through ${publicUrl} clients choose their address with X-Forwarded-For; let the proxy append to that header, and name only proxies in TOLLGATE_TRUSTED_PROXIES`,
    )
  const isHere = places.some((address) => isAddressListed(address, LOOPBACK))
  const isInner = isAddressListed(usual, [...LOOPBACK, ...PRIVATE])
  const isOwn = own.includes(usual) && !isAddressListed(usual, LOOPBACK)
  if (isInner && !isOwn && !isHere)
    return finding(
      'warn',
      check,
      `through ${publicUrl} everybody seems to come from ${usual}, most likely your proxy; name it in TOLLGATE_TRUSTED_PROXIES, and let it send X-Forwarded-For`,
    )
  return finding('ok', check, `through ${publicUrl} this machine arrives as ${usual}`)
}

const LOOPBACK = ['127.0.0.0/8', '::1']
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7', 'fe80::/10']

/** @param databaseId Of the database in use; undefined = unknown, so that all files count as its own. */
export async function lookAtSpills({ dataDir }: Config, databaseId: string | undefined): Promise<Finding> {
  if (!existsSync(join(dataDir, 'spill')))
    return judgeSpills(dataDir, { waiting: 0, rejected: 0, unreadable: 0, otherDatabase: 0 })
  const counts = await countSpills(dataDir, databaseId === undefined ? {} : { databaseId })
  return judgeSpills(dataDir, counts)
}

export function judgeSpills(dataDir: string, counts: SpillCounts): Finding {
  const { waiting, rejected, unreadable, otherDatabase } = counts
  const told = [
    waiting > 0 ? `${waiting} waiting for Postgres: start a server, or keep it running` : '',
    rejected > 0 ? `${rejected} that Postgres refused: look at them, or report them` : '',
    unreadable > 0 ? `${unreadable} damaged: restore them, or delete them` : '',
    otherDatabase > 0
      ? `${otherDatabase} of another database: start a server on that one, or delete them`
      : '',
  ].filter((text) => text !== '')
  return told.length === 0
    ? finding('ok', 'spill', 'no spill files: Postgres has all counts')
    : finding('warn', 'spill', `spill files in ${dataDir}/spill: ${told.join('; ')}`)
}
