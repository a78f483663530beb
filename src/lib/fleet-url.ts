import { isIPv6 } from 'node:net'

/** What `TOLLGATE_FLEET` names. */
export type FleetAddress = { kind: 'postgres' } | RedisAddress

export type RedisAddress = {
  kind: 'redis'
  /** `single`: one host. `sentinel`: the hosts are Sentinels, which know where the master is. `cluster`: any of its nodes. */
  mode: 'single' | 'sentinel' | 'cluster'
  /** At least one, in the order in which they are asked. */
  hosts: readonly Host[]
  hasTls: boolean
  user: string | undefined
  password: string | undefined
  /** Number of the database; 0 in a cluster. */
  database: number
  /** Of Sentinel only: the master's name there, and what the Sentinels themselves want to hear. */
  masterName: string | undefined
  sentinelUser: string | undefined
  sentinelPassword: string | undefined
}

export type Host = { host: string; port: number }

/** The problem with it, in words that follow the variable's name. Never contains the URL, which may have a password. */
export class FleetUrlError extends Error {
  override name = 'FleetUrlError'
}

const SCHEMES: Record<string, { mode: RedisAddress['mode']; hasTls: boolean }> = {
  redis: { mode: 'single', hasTls: false },
  rediss: { mode: 'single', hasTls: true },
  'redis-sentinel': { mode: 'sentinel', hasTls: false },
  'rediss-sentinel': { mode: 'sentinel', hasTls: true },
  'redis-cluster': { mode: 'cluster', hasTls: false },
  'rediss-cluster': { mode: 'cluster', hasTls: true },
}

/** @throws FleetUrlError */
export function readFleetUrl(text: string): FleetAddress {
  if (text.trim() === 'postgres') return { kind: 'postgres' }
  const [, name = '', rest = ''] = /^([a-z-]+):\/\/(.*)$/is.exec(text.trim()) ?? []
  const scheme = SCHEMES[name.toLowerCase()]
  if (scheme === undefined)
    throw new FleetUrlError(
      `must be postgres, or begin with ${Object.keys(SCHEMES).join('://, ')}://${/^postgres(ql)?$/i.test(name) ? '; for the database that is shared anyway write postgres alone' : ''}`,
    )
  const at = rest.lastIndexOf('@')
  const userInfo = at === -1 ? '' : rest.slice(0, at)
  if (/[/?#@]/.test(userInfo)) throw new FleetUrlError(UNENCODED)
  const [place = '', query = ''] = rest.slice(at + 1).split('?', 2)
  const colon = userInfo.indexOf(':')
  const [authority = '', ...path] = place.split('/')
  const { mode, hasTls } = scheme
  const hosts = readHosts(authority, mode === 'sentinel' ? 26_379 : 6_379)
  if (mode === 'single' && hosts.length > 1)
    throw new FleetUrlError(
      'has several hosts; write redis-cluster:// for a cluster, redis-sentinel:// for Sentinels',
    )
  const parameters = readQuery(query, mode)
  const masterName = mode === 'sentinel' ? decode(path.shift() ?? '', 'master name') : undefined
  if (masterName === '')
    throw new FleetUrlError("lacks the master's name: redis-sentinel://host:26379,host:26379/name")
  return {
    kind: 'redis',
    mode,
    hosts,
    hasTls,
    // As other clients read it: a text without a colon is a user name.
    user: decode(colon === -1 ? userInfo : userInfo.slice(0, colon), 'user name') || undefined,
    password: colon === -1 ? undefined : decode(userInfo.slice(colon + 1), 'password') || undefined,
    database: readDatabase(path, mode),
    masterName,
    sentinelUser: parameters.get('sentinel_user'),
    sentinelPassword: parameters.get('sentinel_password'),
  }
}

/** For the log and for messages: without user, password and parameters. */
export function fleetName(address: FleetAddress): string {
  if (address.kind === 'postgres') return 'postgres'
  const { mode, hasTls, hosts, masterName, database } = address
  const scheme = Object.keys(SCHEMES).find(
    (key) => SCHEMES[key]?.mode === mode && SCHEMES[key]?.hasTls === hasTls,
  )
  const places = hosts.map(({ host, port }) => `${host.includes(':') ? `[${host}]` : host}:${port}`)
  const path = [masterName, database === 0 ? undefined : database].filter((part) => part !== undefined)
  return `${scheme}://${places.join()}${path.map((part) => `/${part}`).join('')}`
}

/** What to do where two databases of Tollgate have the same Redis. */
export const separation = (address: FleetAddress) =>
  `give each database a Redis of its own${address.kind === 'redis' && address.mode === 'cluster' ? '' : ', or another number of the database in the URL'}`

const UNENCODED =
  'has an unencoded /, ?, # or @ in a name or a password; write %2F for /, %3F for ?, %23 for # and %40 for @'

function readHosts(authority: string, usualPort: number): Host[] {
  return authority.split(',').map((text) => {
    const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]\s]*))(?::(\d*))?$/.exec(text) ?? []
    const host = bracketed ?? plain ?? ''
    if (host === '' || (bracketed !== undefined && !isIPv6(bracketed)))
      throw new FleetUrlError('names a host that cannot be read; it must be host:port or [IPv6 address]:port')
    const port = digits === undefined || digits === '' ? usualPort : Number(digits)
    if (port < 1 || port > 65_535) throw new FleetUrlError(`has port ${port}; it must be 1 to 65535`)
    return { host, port }
  })
}

function readDatabase(path: string[], mode: RedisAddress['mode']): number {
  const text = path.join('/')
  if (text === '') return 0
  if (!/^\d{1,6}$/.test(text))
    throw new FleetUrlError('has a path that is no number of a database, as in redis://host:6379/2')
  if (mode === 'cluster' && Number(text) !== 0)
    throw new FleetUrlError(`names database ${text}; a cluster has only database 0`)
  return Number(text)
}

function readQuery(query: string, mode: RedisAddress['mode']): Map<string, string> {
  const parameters = new Map<string, string>()
  for (const part of query === '' ? [] : query.split('&')) {
    const [name = '', value = ''] = part.split(/=(.*)/s)
    if (mode !== 'sentinel' || !['sentinel_user', 'sentinel_password'].includes(name))
      throw new FleetUrlError(
        `has the parameter ${JSON.stringify(name)}; known are sentinel_user and sentinel_password of redis-sentinel://`,
      )
    parameters.set(name, decode(value, name))
  }
  return parameters
}

function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new FleetUrlError(`has a ${what} that is not percent-encoded`)
  }
}
