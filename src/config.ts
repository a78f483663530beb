import { availableParallelism } from 'node:os'
import { resolve } from 'node:path'
import { isAddressOrRange } from './lib/address.ts'
import { LOG_LEVELS, type LogLevel } from './log.ts'

/** Everything the environment decides, checked and grouped. Read once at start; nothing else reads the environment. */
export type Config = {
  /** A null port = no TCP; a null path = no Unix socket. At least one is not null. */
  listen: {
    host: string
    port: number | null
    socketPath: string | null
    /** Of one HTTP thread, at each place it listens; more are refused. */
    connectionsMax: number
  }
  /** Base of the links in errors, without a trailing slash; null = from the address in use. */
  publicUrl: string | null
  /** A Postgres to connect to; null = the embedded one in the data dir. */
  databaseUrl: string | null
  /** Absolute path. Embedded database, generated secrets, what could not be flushed at the last stop. */
  dataDir: string
  /** Text registered as operator root key at each start; null = generated at the first. */
  rootKey: string | null
  /** Master keys of the vault, 32 bytes each: the first seals, all open. Null = generated, or none. */
  vaultKeys: Uint8Array[] | null
  /** Addresses and CIDR ranges of proxies that are believed about who their client is. */
  trustedProxies: readonly string[]
  /** No shards = one on the HTTP thread, of which there is only one then. */
  threads: { shards: number; http: number }
  flushEveryMs: number
  /** How long a request waits for the database at most. */
  databaseTimeoutMs: number
  /** Whether answers about limits carry `RateLimit` and `RateLimit-Policy` too. */
  sendsRatelimitHeaders: boolean
  log: {
    level: LogLevel
    /** One line a request. */
    hasAccess: boolean
    /** A request that takes longer gets a line of its own, ms; 0 = none does. */
    slowMs: number
  }
  /** Where spans go and which; null = nothing is traced. */
  tracing: TracingConfig | null
  /** Where `/metrics` alone is served instead of with the API; null = with it. 0 = a free port. */
  metricsPort: number | null
  /** What the windows of all shards together may take, in bytes. */
  limiterBytesMax: number
  /** What the known keys of one HTTP thread may take, in bytes. */
  keyCacheBytesMax: number
  /** Whole months of usage kept besides the begun one; null = all. */
  usageRetentionMonths: number | null
}

/** From OpenTelemetry's own variables. */
export type TracingConfig = {
  /** Takes OTLP over HTTP. */
  url: string
  headers: Record<string, string>
  timeoutMs: number
  /** What all spans say of this server, `service.name` among it. */
  resource: Record<string, string>
  /** A parent's word counts, where there is one; otherwise `ratio` of the traces are exported. */
  sampler: { heedsParent: boolean; ratio: number }
}

/** A variable that cannot be used. Its message is the one line a start ends with. */
export class ConfigError extends Error {
  override name = 'ConfigError'
}

/** @throws ConfigError naming the variable, what it got and what it wants. Secrets are not repeated. */
export function readConfig(environment: Record<string, string | undefined> = process.env): Config {
  // An empty variable counts as unset: that is how compose files and CI systems leave one out.
  const read = (name: string) => (environment[name] === '' ? undefined : environment[name])
  return {
    listen: readListen(read),
    publicUrl: httpUrl('TOLLGATE_PUBLIC_URL', read('TOLLGATE_PUBLIC_URL')),
    databaseUrl: databaseUrl(read('DATABASE_URL')),
    dataDir: resolve(read('TOLLGATE_DATA_DIR') ?? '.tollgate'),
    rootKey: rootKey(read('TOLLGATE_ROOT_KEY')),
    vaultKeys: vaultKeys(read('TOLLGATE_VAULT_KEY')),
    trustedProxies: trustedProxies(read('TOLLGATE_TRUSTED_PROXIES')),
    threads: readThreads(read),
    flushEveryMs: wholeNumber('TOLLGATE_FLUSH_MS', read('TOLLGATE_FLUSH_MS'), {
      min: 10,
      max: 60_000,
      otherwise: 1000,
    }),
    databaseTimeoutMs: wholeNumber('TOLLGATE_DB_TIMEOUT_MS', read('TOLLGATE_DB_TIMEOUT_MS'), {
      min: 100,
      max: 600_000,
      otherwise: 2000,
    }),
    sendsRatelimitHeaders: isOn('TOLLGATE_RATELIMIT_HEADERS', read('TOLLGATE_RATELIMIT_HEADERS')),
    log: {
      level: logLevel(read('TOLLGATE_LOG_LEVEL')),
      hasAccess: isOn('TOLLGATE_ACCESS_LOG', read('TOLLGATE_ACCESS_LOG')),
      slowMs: wholeNumber('TOLLGATE_SLOW_MS', read('TOLLGATE_SLOW_MS'), {
        min: 0,
        max: 600_000,
        otherwise: 1000,
      }),
    },
    tracing: readTracing(read),
    metricsPort: metricsPort(read('TOLLGATE_METRICS_PORT')),
    limiterBytesMax:
      2 ** 20 *
      wholeNumber('TOLLGATE_LIMITER_MEMORY_MIB', read('TOLLGATE_LIMITER_MEMORY_MIB'), {
        min: 8,
        max: 1_048_576,
        otherwise: 256,
      }),
    keyCacheBytesMax:
      2 ** 20 *
      wholeNumber('TOLLGATE_KEY_CACHE_MIB', read('TOLLGATE_KEY_CACHE_MIB'), {
        min: 1,
        max: 1_048_576,
        otherwise: 128,
      }),
    usageRetentionMonths: retentionMonths(read('TOLLGATE_USAGE_RETENTION_MONTHS')),
  }
}

/** What the command line needs to call a running server. */
export type ClientConfig = {
  /** Base of the server, without a trailing slash. */
  url: string
  /** The Unix socket to ask through instead, where the server has no port. */
  socketPath: string | null
  /** Null = the one a server wrote into the data dir, if any. */
  rootKey: string | null
  dataDir: string
}

/**
 * Without `TOLLGATE_URL` it is the server that these variables would start here.
 * @throws ConfigError
 */
export function readClientConfig(
  environment: Record<string, string | undefined> = process.env,
): ClientConfig {
  const read = (name: string) => (environment[name] === '' ? undefined : environment[name])
  const url = httpUrl('TOLLGATE_URL', read('TOLLGATE_URL'))
  const listen = url === null ? readListen(read) : null
  return {
    url: url ?? localUrl(listen),
    socketPath: listen?.port === null ? listen.socketPath : null,
    rootKey: rootKey(read('TOLLGATE_ROOT_KEY')),
    dataDir: resolve(read('TOLLGATE_DATA_DIR') ?? '.tollgate'),
  }
}

/** How this machine reaches what listens so. Of a port that is picked at the start, nothing is known here. */
function localUrl(listen: Config['listen'] | null): string {
  const { host, port } = listen ?? { host: '', port: null }
  const name = ['', '0.0.0.0', '::'].includes(host) ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port === null || port === 0 ? 3000 : port}`
}

/** `PORT=none` leaves the Unix socket alone, for a sidecar that nobody else should reach. */
function readListen(read: (name: string) => string | undefined): Config['listen'] {
  const host = read('HOST') ?? '127.0.0.1'
  const path = read('TOLLGATE_SOCKET')
  const socketPath = path === undefined ? null : resolve(path)
  // Linux takes 107 bytes, macOS 103.
  if (socketPath !== null && Buffer.byteLength(socketPath) > 103)
    throw new ConfigError(`TOLLGATE_SOCKET is ${JSON.stringify(path)}; it wants a path of at most 103 bytes`)
  const connectionsMax = wholeNumber('TOLLGATE_CONNECTIONS_MAX', read('TOLLGATE_CONNECTIONS_MAX'), {
    min: 1,
    max: 1_000_000,
    otherwise: 10_000,
  })
  if (read('PORT') !== 'none')
    return {
      host,
      socketPath,
      connectionsMax,
      port: wholeNumber('PORT', read('PORT'), { min: 0, max: 65_535, otherwise: 3000 }),
    }
  if (socketPath === null) throw new ConfigError('PORT is "none"; it wants TOLLGATE_SOCKET to be set then')
  return { host, socketPath, connectionsMax, port: null }
}

/**
 * Answering HTTP costs several times what deciding a limit does, so most cores answer; one shard serves about six.
 * With two cores: one thread of each. With one: a single thread for both (`same-thread.ts` has what that is worth).
 */
function readThreads(read: (name: string) => string | undefined): Config['threads'] {
  const cores = availableParallelism()
  const asked = (name: string, bounds: { min: number; max: number; otherwise: number }) =>
    wholeNumber(name, read(name), bounds)
  const wanted = Math.max(1, Math.round(cores / 6))
  const isNone = asked('TOLLGATE_SHARDS', { min: 0, max: 64, otherwise: wanted }) === 0
  // Threads share a port, but nothing shares a Unix socket: alone, it is answered by one.
  const max = read('PORT') === 'none' ? 1 : 64
  const otherwise = isNone ? 1 : Math.min(max, Math.max(1, cores - wanted - 1))
  const http = asked('TOLLGATE_HTTP_THREADS', { min: 1, max, otherwise })
  if (isNone && http > 1)
    throw new ConfigError(
      `TOLLGATE_SHARDS is "0"; it wants at least 1 with ${http} threads of TOLLGATE_HTTP_THREADS`,
    )
  const shards = cores === 1 && http === 1 ? 0 : wanted
  return { shards: asked('TOLLGATE_SHARDS', { min: 0, max: 64, otherwise: shards }), http }
}

function wholeNumber(
  name: string,
  text: string | undefined,
  { min, max, otherwise }: { min: number; max: number; otherwise: number },
): number {
  if (text === undefined) return otherwise
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value >= min && value <= max) return value
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it wants a whole number from ${min} to ${max}`)
}

const retentionMonths = (text: string | undefined): number | null =>
  text === undefined
    ? null
    : wholeNumber('TOLLGATE_USAGE_RETENTION_MONTHS', text, { min: 1, max: 1200, otherwise: 1 })

function logLevel(text = 'info'): LogLevel {
  const level = LOG_LEVELS.find((each) => each === text)
  if (level !== undefined) return level
  throw new ConfigError(
    `TOLLGATE_LOG_LEVEL is ${JSON.stringify(text)}; it wants one of ${LOG_LEVELS.join(', ')}`,
  )
}

function isOn(name: string, text: string | undefined): boolean {
  if (text === undefined || text === '0') return false
  if (text === '1') return true
  throw new ConfigError(`${name} is ${JSON.stringify(text)}; it wants 1 or 0`)
}

const metricsPort = (text: string | undefined): number | null =>
  text === undefined
    ? null
    : wholeNumber('TOLLGATE_METRICS_PORT', text, { min: 0, max: 65_535, otherwise: 0 })

/**
 * As OpenTelemetry's specification has them; what is said of traces alone goes before what is said of everything. JSON is
 * sent whichever of the two encodings over HTTP is asked for: every collector takes both at the same place.
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
    throw new ConfigError(`OTEL_TRACES_EXPORTER is ${JSON.stringify(exporter)}; it wants otlp or none`)
  const protocol = read(own('PROTOCOL')) ?? 'http/json'
  if (!protocol.startsWith('http/'))
    throw new ConfigError(`${own('PROTOCOL')} is ${JSON.stringify(protocol)}; it wants http/json`)
  const resource = pairs('OTEL_RESOURCE_ATTRIBUTES', read('OTEL_RESOURCE_ATTRIBUTES'))
  return {
    url: endpoint === 'OTEL_EXPORTER_OTLP_ENDPOINT' ? `${base}/v1/traces` : (read(endpoint) ?? base),
    headers: pairs(own('HEADERS'), read(own('HEADERS'))),
    timeoutMs: wholeNumber(own('TIMEOUT'), read(own('TIMEOUT')), { min: 1, max: 600_000, otherwise: 10_000 }),
    resource: { 'service.name': 'tollgate', ...resource, ...serviceName(read('OTEL_SERVICE_NAME')) },
    sampler: readSampler(read('OTEL_TRACES_SAMPLER'), read('OTEL_TRACES_SAMPLER_ARG')),
  }
}

const serviceName = (text: string | undefined) => (text === undefined ? {} : { 'service.name': text })

/** `a=1,b=2` with percent-encoded values. The values can be secrets, so they are not repeated. */
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
        `${name} has no key=value in entry ${index + 1}; it wants them separated by commas`,
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
        `OTEL_TRACES_SAMPLER_ARG is ${JSON.stringify(argument)}; it wants a number from 0 to 1`,
      )
    default:
      throw new ConfigError(
        `OTEL_TRACES_SAMPLER is ${JSON.stringify(sampler)}; it wants always_on, always_off or traceidratio, with or without parentbased_`,
      )
  }
}

function httpUrl(name: string, text: string | undefined): string | null {
  if (text === undefined) return null
  const url = URL.canParse(text) ? new URL(text) : null
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return text.replace(/\/+$/, '')
  throw new ConfigError(
    `${name} is ${JSON.stringify(text)}; it wants a URL that starts with http:// or https://`,
  )
}

function databaseUrl(text: string | undefined): string | null {
  if (text === undefined) return null
  const url = URL.canParse(text) ? new URL(text) : null
  if (url?.protocol === 'postgres:' || url?.protocol === 'postgresql:') return text
  // The value can hold a password, so only its beginning is repeated.
  const scheme = JSON.stringify(/^[a-z]+:/i.exec(text)?.[0] ?? 'something without a scheme')
  throw new ConfigError(
    `DATABASE_URL begins with ${scheme}; it wants postgres://user:password@host:port/database`,
  )
}

function rootKey(text: string | undefined): string | null {
  if (text === undefined) return null
  if (/^[\x21-\x7e]{16,256}$/.test(text)) return text
  throw new ConfigError(
    `TOLLGATE_ROOT_KEY has ${text.length} characters; it wants 16 to 256 printable ASCII characters without blanks`,
  )
}

function vaultKeys(text: string | undefined): Uint8Array[] | null {
  if (text === undefined) return null
  return text.split(',').map((part, index) => {
    const encoded = part.trim()
    const bytes = /^[A-Za-z0-9+/]+={0,2}$/.test(encoded) ? Buffer.from(encoded, 'base64') : Buffer.alloc(0)
    if (bytes.length === 32) return new Uint8Array(bytes)
    throw new ConfigError(
      `TOLLGATE_VAULT_KEY has ${bytes.length} bytes of base64 in entry ${index + 1}; it wants 32 bytes in each, separated by commas`,
    )
  })
}

function trustedProxies(text: string | undefined): string[] {
  if (text === undefined) return []
  return text.split(',').map((part) => {
    const entry = part.trim()
    if (isAddressOrRange(entry)) return entry
    throw new ConfigError(
      `TOLLGATE_TRUSTED_PROXIES has ${JSON.stringify(entry)}; it wants addresses or CIDR ranges, separated by commas`,
    )
  })
}
