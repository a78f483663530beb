import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, resolve } from 'node:path'
import { isAddressOrRange, isLoopbackUrl } from './lib/address.ts'
import { DAY_MS } from './lib/clock.ts'
import { maskedUrl, readDatabaseUrl, UrlError, withParameters } from './lib/database-url.ts'
import { type FleetAddress, FleetUrlError, fleetName, readFleetUrl } from './lib/fleet-url.ts'
import { editDistance } from './lib/nearest.ts'
import { isReadByAll, readSecretFile } from './lib/secret-file.ts'
import { tlsFileProblem } from './lib/tls-files.ts'
import { vaultKeyId } from './lib/vault-key-id.ts'
import { BOUND_NAMES, type Bounds, defaultBounds, isBoundName } from './lib/workspace-bounds.ts'
import { LOG_LEVELS, type LogLevel } from './log-events.ts'

/*
 * All settings from the environment, which nothing else reads. To add a variable: a row in VARIABLES, a field in Config
 * that `readConfig` fills from it, a row in `docs/reference/configuration.md` (`test/docs/variables.test.ts` compares the
 * two).
 */

/** The settings, validated. Read once at start. */
export type Config = {
  /** All settings for people to read, secrets masked. */
  settings: readonly Setting[]
  /** A null port = no TCP; a null path = no Unix socket. At least one is not null. */
  listen: {
    host: string
    port: number | null
    socketPath: string | null
    /** Largest number of connections of one HTTP thread at each place it listens. Further ones are refused. */
    connectionsMax: number
    /** Largest memory for unfinished requests and untaken answers in one HTTP thread, in bytes. */
    memoryBytesMax: number
  }
  /** Base of the links in errors, without a trailing slash; null = from the address in use. */
  publicUrl: string | null
  /** URL of the Postgres to use; null = the embedded one in the data directory. */
  databaseUrl: string | null
  /** How servers share their limits; null = each counts its own. */
  fleet: FleetConfig | null
  /** Absolute path of the folder for the embedded database, generated secrets and spill files. */
  dataDir: string
  /** Text to register as operator root key at each start; null = generated at the first start. */
  rootKey: string | null
  /** Vault keys, 32 bytes each: the first seals, all open. Null = generated, or none. */
  vaultKeys: Uint8Array[] | null
  /** Go on without a vault key that sealed recoverable keys. */
  isVaultLost: boolean
  /** Addresses and CIDR ranges of proxies whose headers about the client's address are trusted. */
  trustedProxies: readonly string[]
  /** No shards = one shard on the HTTP thread, of which there is only one then. */
  threads: { shards: number; http: number }
  flushEveryMs: number
  /** Longest wait of a request for the database. */
  databaseTimeoutMs: number
  /** Send the headers `RateLimit` and `RateLimit-Policy` with answers about limits. */
  sendsRatelimitHeaders: boolean
  log: {
    level: LogLevel
    /** Log one line for each request. */
    hasAccess: boolean
    /** Requests that take longer are logged, ms; 0 = none are. */
    slowMs: number
  }
  /** Null = nothing is traced. */
  tracing: TracingConfig | null
  /** Null = there is no dashboard. */
  dashboard: {
    /** A port for it and the documentation; null = served with the API. 0 = a free port. */
    port: number | null
    /** Sign in over plain HTTP from other machines. */
    isInsecureAllowed: boolean
  } | null
  /** A port for `/metrics` alone; null = served with the API. 0 = a free port. */
  metricsPort: number | null
  /** Largest memory for the windows of all shards together, in bytes. */
  limiterBytesMax: number
  /** Longest window of a limit that only a request defines, ms. */
  windowMsMax: number
  /** Largest memory for cached keys in one HTTP thread, in bytes. */
  keyCacheBytesMax: number
  /** How long a stop goes on answering while readiness says 503, ms. */
  drainMs: number
  /** Readiness is 503 while the database does not take writes. */
  readyNeedsDatabase: boolean
  /** Whole months of usage to keep besides the current one; null = all. */
  usageRetentionMonths: number | null
  /** Whole months of the audit log to keep besides the current one; null = all. */
  auditRetentionMonths: number | null
  /** Bounds of each workspace. */
  bounds: Bounds
}

export type FleetConfig = {
  address: FleetAddress
  /** How long a call waits for the engine, ms. */
  timeoutMs: number
  /** How long what is given ahead may lie unspent, ms; 0 = nothing is given ahead. */
  leaseMs: number
  /** What decides while the engine cannot be asked. */
  outage: (typeof OUTAGE_RULES)[number]
  /** How many replicas of a Redis must have a count before it is used. */
  replicas: number
}

const OUTAGE_RULES = ['share', 'refuse', 'open'] as const

/** Set by OpenTelemetry's standard variables. */
export type TracingConfig = {
  /** The collector's endpoint for OTLP over HTTP. */
  url: string
  headers: Record<string, string>
  timeoutMs: number
  /** Attributes of this server in all spans, including `service.name`. */
  resource: Record<string, string>
  /** Which traces are exported: as the caller decided if `heedsParent`, otherwise this `ratio` of them. */
  sampler: { heedsParent: boolean; ratio: number }
}

/** An unusable variable. The message is the last line of the start. */
export class ConfigError extends Error {
  override name = 'ConfigError'
}

/** One variable: how to read its text, and its description in help and documentation. */
type Variable<Value> = {
  about: string
  /** The value when it is not set, as the documentation shows it. */
  otherwise: string
  /** @throws ConfigError */
  read(text: string | undefined, name: string): Value
}

/** All variables, in the order of the help. */
export const VARIABLES = {
  HOST: {
    about: 'IP address or host name to listen on',
    otherwise: '127.0.0.1',
    read: (text) => text ?? '127.0.0.1',
  } satisfies Variable<string>,
  PORT: {
    about: 'TCP port to listen on; 0 = any free port, none = only TOLLGATE_SOCKET',
    otherwise: '3000',
    read: (text, name) =>
      text === 'none' ? null : wholeNumber(name, text, { min: 0, max: 65_535, otherwise: 3000 }),
  } satisfies Variable<number | null>,
  TOLLGATE_SOCKET: {
    about: 'path of a Unix socket to listen on, in addition to PORT',
    otherwise: 'unset',
    read: socketPath,
  } satisfies Variable<string | null>,
  TOLLGATE_CONNECTIONS_MAX: whole({
    about: 'maximum open client connections per HTTP thread; further ones are refused',
    min: 1,
    max: 1_000_000,
    otherwise: 10_000,
  }),
  TOLLGATE_HTTP_MEMORY_MIB: whole({
    about:
      'MiB per HTTP thread for incomplete requests and unread responses; when full, the oldest connection is closed',
    min: 4,
    max: 1_048_576,
    otherwise: 64,
  }),
  TOLLGATE_DRAIN_MS: whole({
    about:
      'milliseconds after a stop signal in which readiness answers 503 and requests are still answered; longer than a balancer needs to notice',
    min: 0,
    max: 600_000,
    otherwise: 0,
  }),
  TOLLGATE_READY_NEEDS_DATABASE: flag(
    '1 = readiness also answers 503 while the database is away or read-only',
  ),
  DATABASE_URL: {
    about: 'URL of a Postgres, 14 or newer; unset = embedded database in the data dir',
    otherwise: 'unset',
    read: databaseUrl,
  } satisfies Variable<string | null>,
  DATABASE_URL_FILE: fileOf('DATABASE_URL'),
  TOLLGATE_FLEET: {
    about:
      'where all servers on the database count their limits together: postgres, or the URL of a Redis or Valkey; unset = each counts its own',
    otherwise: 'unset',
    read: fleetUrl,
  } satisfies Variable<FleetAddress | null>,
  TOLLGATE_FLEET_FILE: fileOf('TOLLGATE_FLEET'),
  TOLLGATE_FLEET_TIMEOUT_MS: whole({
    about: 'milliseconds that a call waits for TOLLGATE_FLEET before TOLLGATE_FLEET_OUTAGE decides',
    min: 20,
    max: 1000,
    otherwise: 200,
  }),
  TOLLGATE_FLEET_LEASE_MS: whole({
    about:
      'milliseconds that a server may keep unspent what TOLLGATE_FLEET gave it ahead of calls; 0 = every call asks',
    min: 0,
    max: 10_000,
    otherwise: 250,
  }),
  TOLLGATE_FLEET_OUTAGE: {
    about:
      'what a server lets through while TOLLGATE_FLEET does not answer: share = its part of each limit, refuse = nothing, open = each limit as if it were alone',
    otherwise: 'share',
    read: outageRule,
  } satisfies Variable<FleetConfig['outage']>,
  TOLLGATE_FLEET_REPLICAS: whole({
    about: 'replicas of Redis that must have a count before it is used',
    min: 0,
    max: 16,
    otherwise: 0,
  }),
  PGSSLMODE: libpq('sslmode'),
  PGSSLROOTCERT: libpq('sslrootcert'),
  PGSSLCERT: libpq('sslcert'),
  PGSSLKEY: libpq('sslkey'),
  TOLLGATE_DATA_DIR: {
    about: 'data directory: embedded database, generated secrets and spill files',
    otherwise: '.tollgate',
    read: (text) => resolve(text ?? '.tollgate'),
  } satisfies Variable<string>,
  TOLLGATE_ROOT_KEY: {
    about: 'operator root key: the server registers it at each start, other commands call with it',
    otherwise: 'unset',
    read: rootKey,
  } satisfies Variable<string | null>,
  TOLLGATE_ROOT_KEY_FILE: fileOf('TOLLGATE_ROOT_KEY'),
  TOLLGATE_VAULT_KEY: {
    about:
      'vault key for recoverable keys, 32 bytes as base64; several, separated by commas: the first encrypts, all decrypt',
    otherwise: 'generated for the embedded database',
    read: vaultKeys,
  } satisfies Variable<Uint8Array[] | null>,
  TOLLGATE_VAULT_KEY_FILE: fileOf('TOLLGATE_VAULT_KEY'),
  TOLLGATE_VAULT_LOST: flag(
    '1 = start although the vault key of the database is lost: recoverable keys that it sealed cannot be shown any more',
  ),
  TOLLGATE_TRUSTED_PROXIES: {
    about: 'addresses and CIDR ranges of proxies whose X-Forwarded-For is trusted',
    otherwise: 'none',
    read: trustedProxies,
  } satisfies Variable<string[]>,
  TOLLGATE_SHARDS: wholeOrUnset({
    about: 'number of limiter shards (threads); 0 = rate limits are decided on the HTTP thread',
    min: 0,
    max: 64,
    otherwise: 'from the number of cores',
  }),
  TOLLGATE_HTTP_THREADS: wholeOrUnset({
    about: 'number of HTTP threads',
    min: 1,
    max: 64,
    otherwise: 'from the number of cores',
  }),
  TOLLGATE_FLUSH_MS: whole({
    about: 'milliseconds between flushes of windows and usage to Postgres',
    min: 10,
    max: 60_000,
    otherwise: 1000,
  }),
  TOLLGATE_DB_TIMEOUT_MS: whole({
    about: 'milliseconds that a request waits for the database before it fails',
    min: 100,
    max: 600_000,
    otherwise: 2000,
  }),
  TOLLGATE_LIMITER_MEMORY_MIB: whole({
    about: 'MiB for rate limit windows, all shards together',
    min: 8,
    max: 1_048_576,
    otherwise: 256,
  }),
  TOLLGATE_WINDOW_DAYS_MAX: whole({
    about: 'maximum days of a window that is set by the request and not by an override, a key or an identity',
    min: 1,
    max: 36_525,
    otherwise: 366,
  }),
  TOLLGATE_KEY_CACHE_MIB: whole({
    about: 'MiB for cached keys per HTTP thread',
    min: 1,
    max: 1_048_576,
    otherwise: 128,
  }),
  TOLLGATE_USAGE_RETENTION_MONTHS: wholeOrUnset({
    about: 'full months of usage to keep in addition to the current month',
    min: 1,
    max: 1200,
    otherwise: 'unlimited',
  }),
  TOLLGATE_AUDIT_RETENTION_MONTHS: wholeOrUnset({
    about: 'full months of audit events to keep in addition to the current month',
    min: 1,
    max: 1200,
    otherwise: 'unlimited',
  }),
  TOLLGATE_BOUNDS: {
    about: 'bounds of each workspace, such as keys=2000000,namespaces=500; /docs/bounds lists all',
    otherwise: 'see /docs/bounds',
    read: readBounds,
  } satisfies Variable<Bounds>,
  TOLLGATE_METRICS_PORT: wholeOrUnset({
    about: 'separate port for /metrics, which the API port then does not serve',
    min: 0,
    max: 65_535,
    otherwise: 'with the API',
  }),
  TOLLGATE_DASHBOARD: {
    about: 'on or off: whether the server has a dashboard at /dashboard, and remembers recent events for it',
    otherwise: 'on',
    read: onOrOff,
  } satisfies Variable<boolean>,
  TOLLGATE_DASHBOARD_PORT: wholeOrUnset({
    about: 'separate port for the dashboard, which the API port then does not serve',
    min: 0,
    max: 65_535,
    otherwise: 'with the API',
  }),
  TOLLGATE_DASHBOARD_INSECURE: flag(
    '1 = the dashboard takes root keys over plain HTTP from other machines, where networks can read them',
  ),
  TOLLGATE_LOG_LEVEL: {
    about: `lowest level that is logged: ${LOG_LEVELS.join(', ')}`,
    otherwise: 'info',
    read: logLevel,
  } satisfies Variable<LogLevel>,
  TOLLGATE_ACCESS_LOG: flag('1 = log every request'),
  TOLLGATE_SLOW_MS: whole({
    about: 'requests that take more milliseconds than this are logged; 0 = none',
    min: 0,
    max: 600_000,
    otherwise: 1000,
  }),
  TOLLGATE_RATELIMIT_HEADERS: flag('1 = add the headers RateLimit and RateLimit-Policy to responses'),
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    about:
      'URL of an OpenTelemetry collector for traces; /docs/configuration lists the other OTEL_ variables',
    otherwise: 'unset',
    read: (text, name) => httpUrl(name, text),
  } satisfies Variable<string | null>,
  TOLLGATE_PUBLIC_URL: {
    about: 'base URL of the docs links in errors',
    otherwise: 'from HOST and PORT',
    read: (text, name) => httpUrl(name, text),
  } satisfies Variable<string | null>,
  TOLLGATE_URL: {
    about:
      'URL of the server that all commands except serve, migrate, config, doctor, backup, restore and root-key rescue call',
    otherwise: 'from HOST and PORT',
    read: (text, name) => httpUrl(name, text),
  } satisfies Variable<string | null>,
}

type VariableName = keyof typeof VARIABLES
const variableNames = Object.keys(VARIABLES) as VariableName[] // its own keys
export type Environment = Record<string, string | undefined>

/** Reads variables by name, by the rules of their rows. */
function readerOf(environment: Environment) {
  return <Name extends VariableName>(name: Name): ReturnType<(typeof VARIABLES)[Name]['read']> => {
    const { read } = VARIABLES[name]
    const file = secretFileOf(environment, name)
    const [text, from] =
      file === null ? [textOf(environment, name), name] : [secretOf(file), `${file.from} ${file.path}`]
    // Each row's `read` has the type of its row, which the compiler loses in the union.
    return read(text, from) as ReturnType<(typeof VARIABLES)[Name]['read']> // see above
  }
}

/** Variables whose text can come from a file, so that it stands in no environment, which children and lists of processes show. */
export const SECRETS: readonly string[] = ['DATABASE_URL', 'TOLLGATE_ROOT_KEY', 'TOLLGATE_VAULT_KEY']
/** The secrets, and a variable that may have a password. */
const FROM_FILES: readonly string[] = [...SECRETS, 'TOLLGATE_FLEET']

type SecretFile = { from: string; path: string }

/**
 * The file that a variable's text comes from: that of `<name>_FILE`, or, when neither is set, that of the same name in
 * systemd's folder of credentials. Null = there is none.
 * @throws ConfigError when the text and its file are both set.
 */
function secretFileOf(environment: Environment, name: string): SecretFile | null {
  if (!FROM_FILES.includes(name)) return null
  const isSet = textOf(environment, name) !== undefined
  const path = textOf(environment, `${name}_FILE`)
  if (path !== undefined) {
    if (isSet) throw new ConfigError(`${name} and ${name}_FILE are both set; set one of them`)
    return { from: `${name}_FILE`, path }
  }
  const folder = textOf(environment, 'CREDENTIALS_DIRECTORY')
  if (isSet || folder === undefined || !existsSync(join(folder, name))) return null
  return { from: 'CREDENTIALS_DIRECTORY', path: join(folder, name) }
}

/** @throws ConfigError naming the file. */
function secretOf({ from, path }: SecretFile): string {
  try {
    return readSecretFile(path)
  } catch (cause) {
    throw new ConfigError(`${from} ${path} cannot be used: ${cause instanceof Error ? cause.message : cause}`)
  }
}

/** Files of secrets that every user of this machine can read. @throws ConfigError */
export function exposedSecretFiles(environment: Environment = process.env): SecretFile[] {
  const files = FROM_FILES.flatMap((name) => secretFileOf(environment, name) ?? [])
  const url = readDatabase(readerOf(environment))
  const keyFile = url === null ? null : readDatabaseUrl(url).tls.keyFile
  if (keyFile !== null) files.push({ from: 'sslkey of DATABASE_URL', path: keyFile })
  return files.filter(({ path }) => isReadByAll(path))
}

/**
 * The text of a variable; undefined when unset. An empty text counts as unset, as compose files and CI systems leave
 * variables out that way. So does `tcp://10.0.0.1:9464` in a port: Kubernetes sets `<NAME>_PORT` for each Service, and a
 * Service's name may make that one of Tollgate's variables.
 */
function textOf(environment: Environment, name: string): string | undefined {
  const text = environment[name]
  return text === '' || (text !== undefined && isServiceLink(name, text)) ? undefined : text
}

/** @throws ConfigError naming the variable, its value and the wanted form. Secrets are not repeated. */
export function readConfig(environment: Environment = process.env): Config {
  const value = readerOf(environment)
  return {
    settings: settingsOf(environment),
    listen: readListen(value),
    drainMs: value('TOLLGATE_DRAIN_MS'),
    readyNeedsDatabase: value('TOLLGATE_READY_NEEDS_DATABASE'),
    publicUrl: value('TOLLGATE_PUBLIC_URL'),
    databaseUrl: readDatabase(value),
    fleet: readFleet(value),
    dataDir: value('TOLLGATE_DATA_DIR'),
    rootKey: value('TOLLGATE_ROOT_KEY'),
    vaultKeys: value('TOLLGATE_VAULT_KEY'),
    isVaultLost: value('TOLLGATE_VAULT_LOST'),
    trustedProxies: value('TOLLGATE_TRUSTED_PROXIES'),
    threads: readThreads(value),
    flushEveryMs: value('TOLLGATE_FLUSH_MS'),
    databaseTimeoutMs: value('TOLLGATE_DB_TIMEOUT_MS'),
    sendsRatelimitHeaders: value('TOLLGATE_RATELIMIT_HEADERS'),
    log: {
      level: value('TOLLGATE_LOG_LEVEL'),
      hasAccess: value('TOLLGATE_ACCESS_LOG'),
      slowMs: value('TOLLGATE_SLOW_MS'),
    },
    tracing: readTracing((name) => textOf(environment, name)),
    dashboard: readDashboard(value),
    metricsPort: readMetricsPort(value),
    limiterBytesMax: 2 ** 20 * value('TOLLGATE_LIMITER_MEMORY_MIB'),
    windowMsMax: DAY_MS * value('TOLLGATE_WINDOW_DAYS_MAX'),
    keyCacheBytesMax: 2 ** 20 * value('TOLLGATE_KEY_CACHE_MIB'),
    usageRetentionMonths: value('TOLLGATE_USAGE_RETENTION_MONTHS'),
    auditRetentionMonths: value('TOLLGATE_AUDIT_RETENTION_MONTHS'),
    bounds: value('TOLLGATE_BOUNDS'),
  }
}

/** @throws ConfigError where there is nothing that servers could share. */
function readFleet(value: ReturnType<typeof readerOf>): FleetConfig | null {
  const address = value('TOLLGATE_FLEET')
  const fleet = {
    timeoutMs: value('TOLLGATE_FLEET_TIMEOUT_MS'),
    leaseMs: value('TOLLGATE_FLEET_LEASE_MS'),
    outage: value('TOLLGATE_FLEET_OUTAGE'),
    replicas: value('TOLLGATE_FLEET_REPLICAS'),
  }
  if (address === null) return null
  if (value('DATABASE_URL') === null)
    throw new ConfigError(
      'TOLLGATE_FLEET is set, but DATABASE_URL is not; servers that share limits need a Postgres that they share',
    )
  if (address.kind === 'postgres' && fleet.replicas > 0)
    throw new ConfigError(
      `TOLLGATE_FLEET_REPLICAS is "${fleet.replicas}"; it must be 0 because TOLLGATE_FLEET is postgres, where synchronous_standby_names says who must have a commit`,
    )
  return { address, ...fleet }
}

function readMetricsPort(value: ReturnType<typeof readerOf>): number | null {
  const port = value('TOLLGATE_METRICS_PORT')
  if (port !== null && port !== 0 && port === value('PORT'))
    throw new ConfigError(`TOLLGATE_METRICS_PORT is "${port}"; it must not be the same port as PORT`)
  return port
}

function readDashboard(value: ReturnType<typeof readerOf>): Config['dashboard'] {
  const port = value('TOLLGATE_DASHBOARD_PORT')
  for (const name of ['PORT', 'TOLLGATE_METRICS_PORT'] as const)
    if (port !== null && port !== 0 && port === value(name))
      throw new ConfigError(`TOLLGATE_DASHBOARD_PORT is "${port}"; it must not be the same port as ${name}`)
  const isInsecureAllowed = value('TOLLGATE_DASHBOARD_INSECURE')
  return value('TOLLGATE_DASHBOARD') ? { port, isInsecureAllowed } : null
}

/** Something wrong with the configuration. `variable` is where the message begins. */
export type ConfigProblem = { variable: string; message: string }

/** Everything that is wrong, where {@link readConfig} ends at the first; and unknown variables. */
export function configProblems(environment: Environment = process.env): ConfigProblem[] {
  const value = readerOf(environment)
  const text = (name: string) => textOf(environment, name)
  const reads: (() => unknown)[] = [
    ...variableNames.map((name) => () => value(name)),
    () => readListen(value),
    () => readThreads(value),
    () => readMetricsPort(value),
    () => readDashboard(value),
    () => readDatabase(value),
    () => readFleet(value),
    () => readTracing(text),
    ...tracingReads(text),
  ]
  const messages = new Set(reads.flatMap((read) => problemOf(read) ?? []))
  for (const { variable, nearest } of unknownVariables(environment))
    messages.add(`${variable} is not a variable of Tollgate; did you mean ${nearest}?`)
  return [...messages].map((message) => ({ variable: /^\w+/.exec(message)?.[0] ?? '', message }))
}

/** The message of the ConfigError that a reading ends with; null = none. */
function problemOf(read: () => unknown): string | null {
  try {
    read()
    return null
  } catch (cause) {
    if (cause instanceof ConfigError) return cause.message
    throw cause
  }
}

/** One setting, for people. */
export type Setting = {
  name: string
  /** What is in effect, passwords and secrets masked; null = nothing. */
  value: string | null
  /** The default, in words. */
  otherwise: string
  /** `file`: of a variable with that ending, of systemd's credentials, or generated into the data directory. */
  source: 'environment' | 'file' | 'default'
  /** Path of the file; null = it is none. */
  path: string | null
}

/** Every setting, and those of OpenTelemetry that are set. What is wrong is shown as given, unless it may be a secret. */
export function settingsOf(environment: Environment = process.env): Setting[] {
  const effective = effectiveDefaults(environment)
  const settings = Object.entries(VARIABLES).map(([name, { otherwise }]): Setting => {
    const [text, path] = givenText(environment, name)
    const shown = { name, otherwise, path }
    if (text !== null)
      return { ...shown, value: shownText(name, text), source: path === null ? 'environment' : 'file' }
    const generated = name === 'TOLLGATE_VAULT_KEY' ? generatedVaultKey(environment) : null
    if (generated !== null) return { ...shown, ...generated, source: 'file' }
    return {
      ...shown,
      value: effective[name] ?? (/^[\d.]+$/.test(otherwise) ? otherwise : null),
      source: 'default',
    }
  })
  const tracing = TRACING_VARIABLES.flatMap((name): Setting[] => {
    const text = textOf(environment, name)
    return text === undefined
      ? []
      : [{ name, value: shownText(name, text), otherwise: 'unset', source: 'environment', path: null }]
  })
  return [...settings, ...tracing]
}

/** The text of a variable or of its file, and the file's path. A file that cannot be read has the text `***`. */
function givenText(environment: Environment, name: string): [text: string | null, path: string | null] {
  let file: SecretFile | null = null
  try {
    file = secretFileOf(environment, name)
    return file === null ? [textOf(environment, name) ?? null, null] : [secretOf(file), file.path]
  } catch (cause) {
    if (!(cause instanceof ConfigError)) throw cause
    return [MASK, file?.path ?? null]
  }
}

const MASK = '***'

function shownText(name: string, text: string): string {
  if (text === MASK) return MASK
  if (name === 'DATABASE_URL') return maskedUrl(text)
  if (name === 'TOLLGATE_FLEET') {
    let shown = MASK
    problemOf(() => {
      const address = fleetUrl(text, name)
      if (address !== null) shown = fleetName(address)
    })
    return shown
  }
  if (name === 'TOLLGATE_VAULT_KEY')
    return problemOf(() => vaultKeys(text, name)) === null
      ? (vaultKeys(text, name) ?? []).map(vaultKeyId).join(',')
      : MASK
  if (SECRETS.includes(name) || name.endsWith('_HEADERS')) return MASK
  return text.replace(/\/\/[^/@]*@/, `//${MASK}@`)
}

/** Defaults that depend on the machine and on other variables, as far as those are right. */
function effectiveDefaults(environment: Environment): Record<string, string> {
  const value = readerOf(environment)
  const found: Record<string, string> = {}
  found.TOLLGATE_DATA_DIR = value('TOLLGATE_DATA_DIR')
  found.TOLLGATE_LOG_LEVEL = 'info'
  found.TOLLGATE_FLEET_OUTAGE = 'share'
  problemOf(() => {
    const { shards, http } = readThreads(value)
    found.TOLLGATE_SHARDS = String(shards)
    found.TOLLGATE_HTTP_THREADS = String(http)
  })
  problemOf(() => {
    const listen = readListen(value)
    if (listen.port === null || listen.port === 0) return // known when it listens
    found.TOLLGATE_PUBLIC_URL = localUrl(listen)
    found.TOLLGATE_URL = localUrl(listen)
  })
  return found
}

/** The id of the vault key that an earlier start generated; null = there is none in use. */
function generatedVaultKey(environment: Environment): { value: string; path: string } | null {
  const value = readerOf(environment)
  let found: { value: string; path: string } | null = null
  problemOf(() => {
    const path = join(value('TOLLGATE_DATA_DIR'), 'vault-key')
    if (value('DATABASE_URL') !== null || !existsSync(path)) return
    const text = secretOf({ from: 'TOLLGATE_DATA_DIR', path })
    found = { value: shownText('TOLLGATE_VAULT_KEY', text), path }
  })
  return found
}

/** Settings for calling a running server. */
export type ClientConfig = {
  /** Base of the server, without a trailing slash. */
  url: string
  /** The source of the URL, for the message when no server answers. */
  from: '--url' | 'TOLLGATE_URL' | 'HOST and PORT' | 'TOLLGATE_SOCKET'
  /** True for a server on this machine: then proxies from the environment are not used. */
  isHere: boolean
  /** The Unix socket to use when the server has no port. */
  socketPath: string | null
  /** Null = the one that a server wrote into the data directory, if any. */
  rootKey: string | null
  /** Null = no root key is looked for. */
  dataDir: string | null
}

/**
 * Without `--url` and `TOLLGATE_URL`, the server that these variables would start here.
 * @param options.url Value of `--url`; null = not given.
 * @param options.isAnonymous Without a root key. No file with a secret is read.
 * @throws ConfigError
 */
export function readClientConfig(
  environment: Environment = process.env,
  options: { url?: string | null; isAnonymous?: boolean } = {},
): ClientConfig {
  const value = readerOf(environment)
  const given = httpUrl('--url', options.url ?? undefined)
  const url = given ?? value('TOLLGATE_URL')
  const listen = url === null ? readListen(value) : null
  const socketPath = listen?.port === null ? listen.socketPath : null
  return {
    url: url ?? localUrl(listen),
    from:
      given !== null
        ? '--url'
        : url !== null
          ? 'TOLLGATE_URL'
          : socketPath === null
            ? 'HOST and PORT'
            : 'TOLLGATE_SOCKET',
    isHere: url === null || isLoopbackUrl(url),
    socketPath,
    rootKey: options.isAnonymous ? null : value('TOLLGATE_ROOT_KEY'),
    dataDir: options.isAnonymous ? null : value('TOLLGATE_DATA_DIR'),
  }
}

/**
 * Unknown variables with Tollgate's prefix, most likely misspelt, each with the nearest known one. Without those that
 * Kubernetes sets for a Service named `tollgate` or `tollgate-…`.
 */
export function unknownVariables(
  environment: Environment = process.env,
): { variable: string; nearest: string }[] {
  const known = Object.keys(VARIABLES)
  return Object.entries(environment)
    .filter(([name, text]) => /^tollgate_/i.test(name) && !known.includes(name) && !isServiceLink(name, text))
    .map(([variable]) => ({ variable, nearest: nearestOf(variable.toUpperCase(), known) }))
}

/**
 * True for variables that Kubernetes, or a link of Docker, sets for a Service: `X_SERVICE_HOST`, `X_SERVICE_PORT…`,
 * `X_PORT=tcp://…`, `X_PORT_80_TCP…`.
 */
const isServiceLink = (name: string, text = ''): boolean =>
  /.+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$/.test(name) ||
  (/.+_PORT$/.test(name) && /^(tcp|udp|sctp):\/\//.test(text))

/** Ignores the prefix: `TOLLGATE_PORT` was meant to be `PORT`. */
function nearestOf(name: string, known: readonly string[]): string {
  const bare = (text: string) => text.replace(/^TOLLGATE_/, '')
  const distance = (each: string) => editDistance(bare(name), bare(each))
  return known.reduce((best, each) => (distance(each) < distance(best) ? each : best))
}

/** The URL of a server on this machine that listens there. A port that is picked at start is unknown here. */
function localUrl(listen: Config['listen'] | null): string {
  const { host, port } = listen ?? { host: '', port: null }
  const name = ['', '0.0.0.0', '::'].includes(host) ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port === null || port === 0 ? 3000 : port}`
}

/** With `PORT=none` only the Unix socket is left, for a sidecar that no other machine should reach. */
function readListen(value: ReturnType<typeof readerOf>): Config['listen'] {
  const port = value('PORT')
  const socketPath = value('TOLLGATE_SOCKET')
  if (port === null && socketPath === null)
    throw new ConfigError('PORT is "none"; set TOLLGATE_SOCKET, or set PORT to a number')
  return {
    host: value('HOST'),
    port,
    socketPath,
    connectionsMax: value('TOLLGATE_CONNECTIONS_MAX'),
    memoryBytesMax: 2 ** 20 * value('TOLLGATE_HTTP_MEMORY_MIB'),
  }
}

/**
 * Answering HTTP costs several times as much as deciding a limit, so most cores get HTTP threads; one shard serves about
 * six. With two cores: one thread of each kind. With one: a single thread for both (`same-thread.ts`).
 */
function readThreads(value: ReturnType<typeof readerOf>): Config['threads'] {
  const cores = availableParallelism()
  const wanted = Math.max(1, Math.round(cores / 6))
  const isNone = value('TOLLGATE_SHARDS') === 0
  // Threads can share a port but not a Unix socket: with a socket alone there is one thread.
  const max = value('PORT') === null ? 1 : 64
  const otherwise = isNone ? 1 : Math.min(max, Math.max(1, cores - wanted - 1))
  const http = value('TOLLGATE_HTTP_THREADS') ?? otherwise
  if (http > max)
    throw new ConfigError(`TOLLGATE_HTTP_THREADS is "${http}"; it must be a whole number from 1 to ${max}`)
  if (isNone && http > 1)
    throw new ConfigError(
      `TOLLGATE_SHARDS is "0"; it must be at least 1 because TOLLGATE_HTTP_THREADS is ${http}`,
    )
  const shards = cores === 1 && http === 1 ? 0 : wanted
  return { shards: value('TOLLGATE_SHARDS') ?? shards, http }
}

type WholeRow<Otherwise> = { about: string; min: number; max: number; otherwise: Otherwise }

function whole({ about, otherwise, ...bounds }: WholeRow<number>): Variable<number> {
  return {
    about,
    otherwise: String(otherwise),
    read: (text, name) => wholeNumber(name, text, { ...bounds, otherwise }),
  }
}

/** Null = unset. `otherwise` describes that case in words. */
function wholeOrUnset({ about, otherwise, ...bounds }: WholeRow<string>): Variable<number | null> {
  return {
    about,
    otherwise,
    read: (text, name) =>
      text === undefined ? null : wholeNumber(name, text, { ...bounds, otherwise: bounds.min }),
  }
}

function fileOf(name: string): Variable<string | null> {
  return {
    about: `file that contains ${name}, instead of the variable`,
    otherwise: 'unset',
    read: (text) => text ?? null,
  }
}

function libpq(parameter: string): Variable<string | null> {
  return {
    about: `${parameter} of DATABASE_URL, where the URL does not have it`,
    otherwise: 'unset',
    read: (text) => text ?? null,
  }
}

function flag(about: string): Variable<boolean> {
  return { about, otherwise: '0', read: isOn }
}

function onOrOff(text: string | undefined, name: string): boolean {
  if (text === undefined || text === 'on') return true
  if (text === 'off') return false
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be on or off`)
}

function wholeNumber(
  name: string,
  text: string | undefined,
  { min, max, otherwise }: { min: number; max: number; otherwise: number },
): number {
  if (text === undefined) return otherwise
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be a whole number from ${min} to ${max}`)
}

function socketPath(text: string | undefined, name: string): string | null {
  if (text === undefined) return null
  const path = resolve(text)
  // The limit is 107 bytes on Linux and 103 on macOS.
  if (Buffer.byteLength(path) <= 103) return path
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be a path of at most 103 bytes`)
}

function logLevel(text: string | undefined, name: string): LogLevel {
  const level = LOG_LEVELS.find((each) => each === (text ?? 'info'))
  if (level !== undefined) return level
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be one of ${LOG_LEVELS.join(', ')}`)
}

/** The URL may have a password, so the message does not repeat it. */
function fleetUrl(text: string | undefined, name: string): FleetAddress | null {
  if (text === undefined) return null
  try {
    return readFleetUrl(text)
  } catch (cause) {
    if (cause instanceof FleetUrlError) throw new ConfigError(`${name} ${cause.message}`)
    throw cause
  }
}

function outageRule(text: string | undefined, name: string): FleetConfig['outage'] {
  const rule = OUTAGE_RULES.find((each) => each === (text ?? 'share'))
  if (rule !== undefined) return rule
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be one of ${OUTAGE_RULES.join(', ')}`)
}

function isOn(text: string | undefined, name: string): boolean {
  if (text === undefined || text === '0') return false
  if (text === '1') return true
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it must be 1 or 0`)
}

/**
 * Reads OpenTelemetry's variables; those for traces come before the general ones. Always sends JSON, whichever of the two
 * HTTP encodings is set: collectors accept both at the same endpoint.
 */
function readTracing(read: (name: string) => string | undefined): TracingConfig | null {
  const own = (name: string) => {
    const variable = `OTEL_EXPORTER_OTLP_TRACES_${name}`
    return read(variable) !== undefined ? variable : `OTEL_EXPORTER_OTLP_${name}`
  }
  const endpoint = own('ENDPOINT')
  const base = httpUrl(endpoint, read(endpoint))
  const exporter = read('OTEL_TRACES_EXPORTER') ?? 'otlp'
  if (base === null || read('OTEL_SDK_DISABLED')?.toLowerCase() === 'true' || exporter === 'none') return null
  if (exporter !== 'otlp')
    throw new ConfigError(`OTEL_TRACES_EXPORTER is ${JSON.stringify(exporter)}; it must be otlp or none`)
  const protocol = read(own('PROTOCOL')) ?? 'http/json'
  if (!protocol.startsWith('http/'))
    throw new ConfigError(`${own('PROTOCOL')} is ${JSON.stringify(protocol)}; it must be http/json`)
  const resource = pairs('OTEL_RESOURCE_ATTRIBUTES', read('OTEL_RESOURCE_ATTRIBUTES'))
  return {
    url: endpoint === 'OTEL_EXPORTER_OTLP_ENDPOINT' ? `${base}/v1/traces` : (read(endpoint) ?? base),
    headers: pairs(own('HEADERS'), read(own('HEADERS'))),
    timeoutMs: wholeNumber(own('TIMEOUT'), read(own('TIMEOUT')), TRACING_TIMEOUT),
    resource: { 'service.name': 'tollgate', ...resource, ...serviceName(read('OTEL_SERVICE_NAME')) },
    sampler: readSampler(read('OTEL_TRACES_SAMPLER'), read('OTEL_TRACES_SAMPLER_ARG')),
  }
}

/** The parts of {@link readTracing} that can be wrong each by itself. None where nothing is traced. */
function tracingReads(read: (name: string) => string | undefined): (() => unknown)[] {
  const own = ['', 'TRACES_'].map((infix) => `OTEL_EXPORTER_OTLP_${infix}`)
  const isOn = own.some((name) => read(`${name}ENDPOINT`) !== undefined)
  if (!isOn || read('OTEL_SDK_DISABLED')?.toLowerCase() === 'true' || read('OTEL_TRACES_EXPORTER') === 'none')
    return []
  return [
    ...own.flatMap((name) => [
      () => httpUrl(`${name}ENDPOINT`, read(`${name}ENDPOINT`)),
      () => pairs(`${name}HEADERS`, read(`${name}HEADERS`)),
      () => wholeNumber(`${name}TIMEOUT`, read(`${name}TIMEOUT`), TRACING_TIMEOUT),
    ]),
    () => pairs('OTEL_RESOURCE_ATTRIBUTES', read('OTEL_RESOURCE_ATTRIBUTES')),
    () => readSampler(read('OTEL_TRACES_SAMPLER'), read('OTEL_TRACES_SAMPLER_ARG')),
  ]
}

const TRACING_TIMEOUT = { min: 1, max: 600_000, otherwise: 10_000 }

/** OpenTelemetry's variables that are read besides the one in VARIABLES. */
const TRACING_VARIABLES = [
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  ...['HEADERS', 'TIMEOUT', 'PROTOCOL'].flatMap((name) => [
    `OTEL_EXPORTER_OTLP_${name}`,
    `OTEL_EXPORTER_OTLP_TRACES_${name}`,
  ]),
  'OTEL_TRACES_EXPORTER',
  'OTEL_SDK_DISABLED',
  'OTEL_RESOURCE_ATTRIBUTES',
  'OTEL_SERVICE_NAME',
  'OTEL_TRACES_SAMPLER',
  'OTEL_TRACES_SAMPLER_ARG',
]

const serviceName = (text: string | undefined) => (text === undefined ? {} : { 'service.name': text })

/** Parses `a=1,b=2` with percent-encoded values. Values may be secrets, so errors do not repeat them. */
function pairs(name: string, text = ''): Record<string, string> {
  const found: Record<string, string> = {}
  for (const [index, part] of text.split(',').entries()) {
    if (part.trim() === '') continue
    const [, key, value] = /^\s*([^\s=]+)\s*=\s*(.*?)\s*$/.exec(part) ?? []
    try {
      if (key === undefined || value === undefined) throw new Error('no pair')
      found[key] = decodeURIComponent(value)
    } catch {
      throw new ConfigError(
        `${name} has no key=value in entry ${index + 1}; it must be key=value pairs, separated by commas`,
      )
    }
  }
  return found
}

function readSampler(sampler = 'parentbased_always_on', argument = '1'): TracingConfig['sampler'] {
  const heedsParent = sampler.startsWith('parentbased_')
  const ratio = Number(argument)
  switch (sampler.replace(/^parentbased_/, '')) {
    case 'always_on':
      return { heedsParent, ratio: 1 }
    case 'always_off':
      return { heedsParent, ratio: 0 }
    case 'traceidratio':
      if (ratio >= 0 && ratio <= 1) return { heedsParent, ratio }
      throw new ConfigError(
        `OTEL_TRACES_SAMPLER_ARG is ${JSON.stringify(argument)}; it must be a number from 0 to 1`,
      )
    default:
      throw new ConfigError(
        `OTEL_TRACES_SAMPLER is ${JSON.stringify(sampler)}; it must be always_on, always_off or traceidratio, with or without parentbased_`,
      )
  }
}

function httpUrl(name: string, text: string | undefined): string | null {
  if (text === undefined) return null
  const url = URL.canParse(text) ? new URL(text) : null
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return text.replace(/\/+$/, '')
  throw new ConfigError(
    `${name} is ${JSON.stringify(text)}; it must be a URL that starts with http:// or https://`,
  )
}

function databaseUrl(text: string | undefined, name: string): string | null {
  if (text === undefined) return null
  try {
    readDatabaseUrl(text)
    return text
  } catch (cause) {
    throw cause instanceof UrlError ? new ConfigError(`${name} ${cause.message}`) : cause
  }
}

/** The URL with what libpq's variables add to it. Looks into its files once. */
function readDatabase(value: ReturnType<typeof readerOf>): string | null {
  const url = value('DATABASE_URL')
  if (url === null) return null
  const given = {
    sslmode: value('PGSSLMODE'),
    sslrootcert: value('PGSSLROOTCERT'),
    sslcert: value('PGSSLCERT'),
    sslkey: value('PGSSLKEY'),
  }
  const found = Object.entries(given).flatMap(([name, text]) =>
    text === null ? [] : [[name, text] as const],
  )
  const whole = withParameters(url, Object.fromEntries(found))
  const names = found.map(([name]) => `PG${name.toUpperCase()}`)
  const name = whole === url ? 'DATABASE_URL' : `DATABASE_URL with ${names.join(' and ')}`
  databaseUrl(whole, name)
  const { tls } = readDatabaseUrl(whole)
  const problem = tls.mode === 'disable' ? null : tlsFileProblem(tls)
  if (problem !== null) throw new ConfigError(`${name} has ${problem}`)
  return whole
}

/** True for a text that can be a root key: 16 to 256 characters of printable ASCII without blanks. */
export const isRootKeyText = (text: string): boolean => /^[\x21-\x7e]{16,256}$/.test(text)

function rootKey(text: string | undefined, name: string): string | null {
  if (text === undefined) return null
  if (isRootKeyText(text)) return text
  throw new ConfigError(
    `${name} has ${text.length} characters; it must have 16 to 256 printable ASCII characters without blanks`,
  )
}

function vaultKeys(text: string | undefined, name: string): Uint8Array[] | null {
  if (text === undefined) return null
  return text.split(',').map((part, index) => {
    const encoded = part.trim()
    const bytes = /^[A-Za-z0-9+/]+={0,2}$/.test(encoded) ? Buffer.from(encoded, 'base64') : Buffer.alloc(0)
    if (bytes.length === 32) return new Uint8Array(bytes)
    throw new ConfigError(
      `${name} has ${bytes.length} bytes of base64 in entry ${index + 1}; each entry must have 32 bytes; separate entries with commas`,
    )
  })
}

/** The named bounds as given, the others at their defaults. */
function readBounds(text: string | undefined, name: string): Bounds {
  const bounds = defaultBounds()
  for (const part of text?.split(',') ?? []) {
    if (part.trim() === '') continue
    const [, bound = '', value = ''] = /^\s*([A-Za-z]+)\s*=\s*(\d+)\s*$/.exec(part) ?? []
    if (!isBoundName(bound) || !Number.isSafeInteger(Number(value)))
      throw new ConfigError(
        `${name} has ${JSON.stringify(part.trim())}; it must be name=number pairs, separated by commas; names are ${BOUND_NAMES.join(', ')}`,
      )
    bounds[bound] = Number(value)
  }
  return bounds
}

function trustedProxies(text: string | undefined): string[] {
  if (text === undefined) return []
  return text.split(',').map((part) => {
    const entry = part.trim()
    if (isAddressOrRange(entry)) return entry
    throw new ConfigError(
      `TOLLGATE_TRUSTED_PROXIES has ${JSON.stringify(entry)}; it must be addresses or CIDR ranges, separated by commas`,
    )
  })
}
