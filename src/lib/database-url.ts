import { isIPv6 } from 'node:net'
import { parseOptions } from './startup-options.ts'

/**
 * `DATABASE_URL` as libpq, providers, Prisma and other drivers write it. Parameters that this program can apply are
 * applied, those for other programs are ignored. The driver would send unknown parameters to Postgres as settings, and
 * Postgres refuses the connection then.
 */
export type DatabaseUrl = {
  /** At least one, in the order in which they are tried. A host that begins with `/` is the folder of a Unix socket. */
  hosts: { host: string; port: number }[]
  /** Undefined = the driver's default: PGUSER, PGPASSWORD, PGDATABASE, or the name of the operating system's user. */
  user: string | undefined
  password: string | undefined
  database: string | undefined
  tls: Tls
  /** Time limit for connecting to one host. */
  connectTimeoutSeconds: number
  /** Seconds between TCP keepalives; 0 = none. */
  keepAliveSeconds: number
  applicationName: string
  /** Skip read-only hosts. A single host is never skipped: the start reports its problem. */
  wantsWritable: boolean
  /** The schema for the tables; null = the first one in the role's search path. */
  schema: string | null
  /** Postgres settings of `options=-c name=value`. */
  settings: Record<string, string>
  /** The rest of `options`, with which some providers select the database. */
  rawOptions: string | null
  /** True when the URL says that a pooler shares connections between transactions. */
  isPooled: boolean
  /** Names of unknown parameters. Known ones without effect here are not listed. */
  ignored: string[]
}

export type Tls = {
  /** Value of `sslmode`. `allow` and `prefer` connect either way: the first without TLS if it can, the second with it. */
  mode: 'disable' | 'allow' | 'prefer' | 'require' | 'verify-ca' | 'verify-full'
  /** TLS from the first byte (Postgres 17), without SSLRequest. */
  isDirect: boolean
  /** PEM files. No root file = the authorities that the system trusts. */
  rootFile: string | null
  certFile: string | null
  keyFile: string | null
  keyPassword: string | null
  minVersion: 'TLSv1' | 'TLSv1.1' | 'TLSv1.2' | 'TLSv1.3' | null
}

/** The problem with the URL, in words that follow `DATABASE_URL`. Never contains the URL, which has a password. */
export class UrlError extends Error {
  override name = 'UrlError'
}

/** @throws UrlError */
export function readDatabaseUrl(text: string): DatabaseUrl {
  const { authority, path, query } = splitUrl(text)
  const parameters = readQuery(query)
  const at = authority.lastIndexOf('@')
  const userInfo = at === -1 ? '' : authority.slice(0, at)
  const colon = userInfo.indexOf(':')
  const user = decode(colon === -1 ? userInfo : userInfo.slice(0, colon), 'user name')
  const password = colon === -1 ? '' : decode(userInfo.slice(colon + 1), 'password')
  const take = (name: string): string | undefined => {
    const value = parameters.get(name)
    parameters.delete(name)
    return value === '' ? undefined : value
  }
  const options = parseOptions(take('options') ?? '')
  const url: DatabaseUrl = {
    hosts: readHosts(authority.slice(at + 1), {
      hosts: take('host'),
      addresses: take('hostaddr'),
      ports: take('port'),
    }),
    user: take('user') ?? (user || undefined),
    password: take('password') ?? (password || undefined),
    database: take('dbname') ?? (decode(path, 'database name') || undefined),
    tls: readTls(take),
    connectTimeoutSeconds: readSeconds(take('connect_timeout'), 'connect_timeout') || CONNECT_SECONDS,
    keepAliveSeconds: readKeepAlive(take),
    applicationName: take('application_name') ?? take('fallback_application_name') ?? 'tollgate',
    wantsWritable: readTarget(take('target_session_attrs')),
    schema: readSchema(take, options.settings),
    settings: options.settings,
    rawOptions: options.rest,
    isPooled: isTrue(take('pgbouncer')),
    ignored: [],
  }
  for (const [name, refused] of REFUSED) {
    const value = take(name)
    if (value !== undefined && value !== refused.unless)
      throw new UrlError(`has ${name}=${value}, ${refused.because}`)
  }
  url.ignored = [...parameters.keys()].filter((name) => !MEANINGLESS.has(name))
  return url
}

/**
 * The URL with parameters that it does not have itself, as libpq takes them from variables.
 * @param given By name. `sslmode` is not added to a URL that says it by `ssl` or `sslaccept`.
 */
export function withParameters(text: string, given: Readonly<Record<string, string>>): string {
  const has = readQuery(splitUrl(text).query)
  const added = Object.entries(given)
    .filter(([name]) => !has.has(name) && !(name === 'sslmode' && (has.has('ssl') || has.has('sslaccept'))))
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
  if (added.length === 0) return text
  const plain = text.trim().replace(/#[^@]*$/, '')
  return `${plain}${plain.includes('?') ? '&' : '?'}${added.join('&')}`
}

/** The URL without its passwords, for people. `***` when it cannot be read: any part of it may be the password. */
export function maskedUrl(text: string): string {
  try {
    readDatabaseUrl(text)
    const { authority, path, query } = splitUrl(text)
    const at = authority.lastIndexOf('@')
    const [user = '', ...password] = authority.slice(0, Math.max(0, at)).split(':')
    const userInfo = at === -1 ? '' : `${user}${password.length === 0 ? '' : ':***'}@`
    const parameters = query.replace(/(^|&)([^=&]*password[^=&]*|options)=[^&]*/gi, '$1$2=***')
    return `postgres://${userInfo}${authority.slice(at + 1)}${path === '' ? '' : `/${path}`}${query === '' ? '' : `?${parameters}`}`
  } catch (cause) {
    if (cause instanceof UrlError) return '***'
    throw cause
  }
}

/** Host and database for the log, without user, password and parameters. */
export function databaseName(text: string): string {
  const { hosts, database } = readDatabaseUrl(text)
  const places = hosts.map(({ host, port }) => `${host.includes(':') ? `[${host}]` : host}:${port}`)
  return `postgres://${places.join()}${database === undefined ? '' : `/${database}`}`
}

const CONNECT_SECONDS = 5

/**
 * Parameters that cannot be applied, and cannot be ignored either: the connection would go elsewhere or be less safe than
 * asked.
 */
const REFUSED: [name: string, { unless?: string; because: string }][] = [
  ['service', { because: 'which is not read here; write its parameters into the URL' }],
  ['replication', { unless: 'false', because: 'which is no connection for statements; leave it out' }],
  ['sslcrl', { because: 'and lists of revoked certificates are not supported; leave it out' }],
  ['sslcrldir', { because: 'and lists of revoked certificates are not supported; leave it out' }],
]

/**
 * Parameters without effect here: those of libpq, of Prisma and of other drivers, then those that only matter as a
 * fallback.
 */
const MEANINGLESS = new Set(
  `channel_binding client_encoding gssencmode gsslib gssdelegation krbsrvname load_balance_hosts keepalives_count
   keepalives_interval max_protocol_version min_protocol_version passfile require_auth requirepeer servicefile
   ssl_max_protocol_version sslcertmode sslcompression sslsni tcp_user_timeout
   connection_limit pool_timeout pool_size pool_mode pool_max_conns max_idle_connection_lifetime socket_timeout
   single_use_connections sslidentity statement_cache_size prepared_statement_cache_size prepareThreshold
   preparedStatementCacheQueries supa uselibpqcompat
   fallback_application_name requiressl currentSchema search_path`.split(/\s+/),
)

/** Split by hand: `URL` supports neither several hosts nor an empty one. */
function splitUrl(text: string): { authority: string; path: string; query: string } {
  const [, scheme = '', afterScheme = ''] = /^([a-z]+):\/\/(.*)$/is.exec(text.trim()) ?? []
  if (!/^postgres(ql)?$/i.test(scheme)) {
    const begins = JSON.stringify(/^[a-z]+:/i.exec(text)?.[0] ?? 'something without a scheme')
    throw new UrlError(`begins with ${begins}; it must be postgres://user:password@host:port/database`)
  }
  const rest = afterScheme.replace(/#[^@]*$/, '')
  // Names contain none of these characters unencoded. A password may, by mistake: then it ends at the last @.
  const question = rest.indexOf('?')
  const beforeQuery = question === -1 ? rest : rest.slice(0, question)
  const slash = beforeQuery.indexOf('/', beforeQuery.lastIndexOf('@') + 1)
  const authority = slash === -1 ? beforeQuery : beforeQuery.slice(0, slash)
  if (!authority.includes('@') && /:[^@/]*[?#][^=&@]*@/.test(afterScheme))
    throw new UrlError('has an unencoded ? or # in its password; write %3F for ? and %23 for #')
  return {
    authority,
    path: slash === -1 ? '' : beforeQuery.slice(slash + 1).replace(/\/$/, ''),
    query: question === -1 ? '' : rest.slice(question + 1),
  }
}

/** The last of repeated parameters wins, as in libpq. */
function readQuery(query: string): Map<string, string> {
  const parameters = new Map<string, string>()
  for (const part of query.split('&')) {
    if (part === '') continue
    const equals = part.indexOf('=')
    const name = decode(equals === -1 ? part : part.slice(0, equals), 'parameters')
    parameters.delete(name)
    parameters.set(name, equals === -1 ? '' : decode(part.slice(equals + 1), `parameter ${name}`))
  }
  return parameters
}

function decode(text: string, what: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new UrlError(`has a % in its ${what} that is not part of a percent-encoding; write %25 for %`)
  }
}

/** Hosts in the query win over those in the URL's authority. Ports: one for all hosts, or one for each. */
function readHosts(
  text: string,
  given: { hosts: string | undefined; addresses: string | undefined; ports: string | undefined },
): DatabaseUrl['hosts'] {
  const inUrl = text.split(',').map(readHost)
  // `hostaddr` saves the name look-up; the host's name is still compared with the certificate.
  const names =
    given.hosts?.split(',') ?? (given.addresses === undefined ? undefined : inUrl.map(({ host }) => host))
  const chosen = names?.some((name) => name !== '') ? names : (given.addresses?.split(',') ?? names)
  const ports = given.ports?.split(',') ?? []
  const count = Math.max(chosen?.length ?? inUrl.length, 1)
  if (ports.length > 1 && ports.length !== count)
    throw new UrlError(`has ${ports.length} ports for ${count} hosts; give one port, or one per host`)
  return Array.from({ length: count }, (_, index) => {
    const own = inUrl[index] ?? inUrl[0]
    const host =
      (chosen === undefined ? own?.host : chosen[index]?.replace(/^\[(.*)\]$/, '$1')) || 'localhost'
    return { host, port: readPort(ports[index] || ports[0] || own?.port || '5432') }
  })
}

/** `host`, `host:port`, `[::1]`, `[::1]:port`, `%2Fvar%2Frun%2Fpostgresql`. */
function readHost(text: string): { host: string; port: string } {
  const [, bracketed, plain, port = ''] = /^(?:\[([^\]]*)\]|([^:]*))(?::(.*))?$/.exec(text) ?? []
  if (bracketed !== undefined) return { host: bracketed, port }
  if (plain === undefined || isIPv6(text))
    throw new UrlError('has an IPv6 address without brackets; write [::1] for ::1')
  return { host: decode(plain, 'host'), port }
}

function readPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN
  if (port >= 1 && port <= 65_535) return port
  // The text is not repeated: it may be the rest of a password.
  throw new UrlError(
    'has a port that is not a number from 1 to 65535; if the password contains : / ? # or @, percent-encode it',
  )
}

const MODES: Record<string, Tls['mode']> = {
  disable: 'disable',
  allow: 'allow',
  prefer: 'prefer',
  require: 'require',
  'no-verify': 'require', // node-pg
  'verify-ca': 'verify-ca',
  'verify-full': 'verify-full',
}

function readTls(take: (name: string) => string | undefined): Tls {
  const mode = take('sslmode')
  const ssl = take('ssl') // used by drivers for Java and JavaScript
  const accepts = take('sslaccept') // used by Prisma
  if (mode !== undefined && MODES[mode] === undefined)
    throw new UrlError(
      `has sslmode=${mode}; it must be disable, allow, prefer, require, verify-ca or verify-full`,
    )
  const negotiation = take('sslnegotiation')
  if (negotiation !== undefined && !['postgres', 'direct'].includes(negotiation))
    throw new UrlError(`has sslnegotiation=${negotiation}; it must be postgres or direct`)
  const version = take('ssl_min_protocol_version')
  const minVersion = TLS_VERSIONS.find((each) => each === version) ?? null
  if (version !== undefined && minVersion === null)
    throw new UrlError(`has ssl_min_protocol_version=${version}; it must be ${TLS_VERSIONS.join(', ')}`)
  const root = take('sslrootcert')
  const rootFile = root === undefined || root === 'system' ? null : root
  const [certFile, keyFile] = [take('sslcert') ?? null, take('sslkey') ?? null]
  const isAsked =
    mode !== undefined ? MODES[mode] : ssl !== undefined ? (MODES[ssl] ?? modeOfBoolean(ssl)) : undefined
  // Whoever names an authority wants the server verified, and whoever names a certificate wants TLS.
  const otherwise =
    root !== undefined || accepts === 'strict'
      ? 'verify-full'
      : certFile !== null || isTrue(take('requiressl'))
        ? 'require'
        : 'disable'
  let chosen = isAsked ?? otherwise
  if (accepts === 'strict') chosen = 'verify-full'
  if (root === 'system' && chosen !== 'verify-full')
    throw new UrlError(
      `has sslrootcert=system with sslmode=${chosen}; any public certificate would do there: use verify-full`,
    )
  // As in libpq: a given root certificate is also verified.
  if (rootFile !== null && chosen === 'require') chosen = 'verify-ca'
  const isDirect = negotiation === 'direct'
  if (isDirect && ['disable', 'allow', 'prefer'].includes(chosen))
    throw new UrlError('has sslnegotiation=direct; that needs sslmode=require, verify-ca or verify-full')
  if ((certFile === null) !== (keyFile === null))
    throw new UrlError(
      certFile === null
        ? 'has sslkey without sslcert; give the certificate of the key too'
        : 'has sslcert without sslkey; give the key of the certificate too',
    )
  return {
    mode: chosen,
    isDirect,
    rootFile,
    certFile,
    keyFile,
    keyPassword: take('sslpassword') ?? null,
    minVersion,
  }
}

const TLS_VERSIONS = ['TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const

const modeOfBoolean = (text: string): Tls['mode'] => (isTrue(text) ? 'verify-full' : 'disable')

const isTrue = (text: string | undefined) => text !== undefined && /^(1|true|on|yes)$/i.test(text)

function readSeconds(text: string | undefined, name: string): number {
  if (text === undefined) return 0
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new UrlError(`has ${name}=${text}; it must be a number of seconds`)
}

function readKeepAlive(take: (name: string) => string | undefined): number {
  const isOff = take('keepalives') === '0'
  const seconds = readSeconds(take('keepalives_idle'), 'keepalives_idle') || 60
  return isOff ? 0 : seconds
}

/** The default is a writable host, because this program writes. */
function readTarget(text: string | undefined): boolean {
  if (text === undefined || text === 'read-write' || text === 'primary') return true
  if (text === 'any' || text === 'prefer-standby') return false
  throw new UrlError(
    `has target_session_attrs=${text}; it must be read-write, primary or any, because Tollgate writes`,
  )
}

/** From Prisma's `schema`, Java's `currentSchema`, or a search path. */
function readSchema(
  take: (name: string) => string | undefined,
  settings: Record<string, string>,
): string | null {
  const path = take('search_path') ?? settings.search_path
  delete settings.search_path
  const text = take('schema') ?? take('currentSchema') ?? path
  if (text === undefined || /^\s*"?\$user"?\s*(,|$)/.test(text)) return null // the default
  const [, quoted, plain = ''] = /^\s*(?:"((?:[^"]|"")+)"|([^",]+))/.exec(text) ?? []
  const name = quoted?.replaceAll('""', '"') ?? (text === path ? plain.toLowerCase() : plain).trim()
  if (name !== '') return name
  throw new UrlError(`has the schema ${JSON.stringify(text)}; it must be the name of one schema`)
}
