/**
 * Ways to write a request so that one program reads a path that another does not see: they pass a proxy's rules when the
 * server behind it reads differently. One table for all proxies and for Tollgate itself.
 */
export type HostileRequest = {
  name: string
  /** In Latin-1. */
  bytes: string
  /**
   * `exact`: the path itself, as any client may write it. `slash`: the path after a base URL that ends in a slash; for
   * Tollgate the same request. `other`: a different path, or not a valid request. `hidden`: an open path with a second
   * request in its body; for Tollgate alone the second may be a request like any other.
   */
  is: 'exact' | 'slash' | 'other' | 'hidden'
}

/** The path that must not be reached. */
export type Closed = {
  method: 'GET' | 'POST'
  /** Without a query. */
  path: string
  headers?: readonly string[]
  body?: string
}

/** The table for one path. `open` is a path that anybody may GET. */
export function hostileRequests(closed: Closed, open: string): HostileRequest[] {
  const { path } = closed
  const exact = [path, `${path}?x`, `${path}?`, `${path}?/v1/liveness`, `${path}?x=/../..${open}`]
  const slash = [`/${path}`, `/${path}?x`]
  return [
    ...exact.map((target) => row(target, 'exact', requestOf(closed, { target }))),
    ...slash.map((target) => row(target, 'slash', requestOf(closed, { target }))),
    ...targetsLike(path, open).map((target) => row(target, 'other', requestOf(closed, { target }))),
    ...absolute(path, 'localhost').map((target) => row(target, 'exact', requestOf(closed, { target }))),
    ...oddlyAbsolute(path).map((target) => row(target, 'other', requestOf(closed, { target }))),
    ...lines(closed),
    ...hosts(path).map((host) => row(`Host: ${host}`, 'other', requestOf(closed, { target: open, host }))),
    ...headersLike(path, open).map((header) =>
      row(header, 'other', requestOf(closed, { target: open, headers: [header] })),
    ),
    ...hidden(closed, open),
  ]
}

const row = (name: string, is: HostileRequest['is'], bytes: string): HostileRequest => ({
  name: JSON.stringify(name),
  is,
  bytes,
})

function targetsLike(path: string, open: string): string[] {
  const rest = path.slice(1)
  const first = hex(path.charCodeAt(1))
  const last = hex(path.charCodeAt(path.length - 1))
  const swapped = rest.replace(/[a-z]/, (letter) => letter.toUpperCase())
  const inner = rest.includes('/')
    ? [path.replace(/(.)\//, '$1//'), path.replace(/(.)\//, '$1/./'), path.replace(/(.)\//, '$1%2f')]
    : []
  return [
    // Slashes and dots.
    `${path}/`,
    `${path}//`,
    `${path}/.`,
    `${path}/x/..`,
    `${path}.`,
    `${path}/../${rest}`,
    `/.${path}`,
    `/..${path}`,
    `/x/..${path}`,
    `/x/../..${path}`,
    `/v1/..${path}`,
    `${open}/../..${path}`,
    `/docs/..${path}`,
    `//${path}`,
    `///${path}`,
    `/./${path}`,
    `//.${path}`,
    `//x/..${path}`,
    `/v1//..${path}`,
    ...inner,
    // Backslashes.
    `\\${rest}`,
    `/\\${rest}`,
    `/v1/..\\${rest}`,
    `/x\\..${path}`,
    `/x\\..\\${rest}`,
    `${path}\\`,
    path.replaceAll('/', '\\'),
    // Percent-encoding.
    `/%${first}${path.slice(2)}`,
    `${path.slice(0, -1)}%${last}`,
    `/%${first.toUpperCase()}${path.slice(2)}`,
    `/%25${first}${path.slice(2)}`,
    `/${[...rest].map((letter) => `%${hex(letter.charCodeAt(0))}`).join('')}`,
    `/%2f${rest}`,
    `%2f${rest}`,
    `/x/%2e%2e${path}`,
    `/x/%2E%2E${path}`,
    `/x/.%2e${path}`,
    `/x/%2e.${path}`,
    `/%2e${path}`,
    `/x/..%2f${rest}`,
    `/x%2f..%2f${rest}`,
    `/x/..%5c${rest}`,
    `/v1/%2e%2e%2f${rest}`,
    `/x/%252e%252e${path}`,
    `${open}%2f..%2f..%2f${rest}`,
    `${path}%2f`,
    `${path}%2f..%2f${rest}`,
    `${path}/..%2f${rest}`,
    `${path}/..%2f..${open}`,
    `${path}%2f..%2f..${open}`,
    `${path}%3fx`,
    `${path}%23x`,
    `${path}%3b`,
    `${path}%00`,
    `${path}%00.html`,
    `/%00${path}`,
    `${path}%20`,
    `%20${path}`,
    `/%20${rest}`,
    `${path}%09`,
    `${path}%0a`,
    `${path}%0d%0a`,
    `/%0a${rest}`,
    `${path}%ff`,
    `${path}%`,
    `${path}%zz`,
    // Invalid encodings.
    `/x/%c0%ae%c0%ae${path}`,
    `/%c0%af${rest}`,
    `/%e0%80%af${rest}`,
    `/%u00${first}${path.slice(2)}`,
    `/%ef%bc%8f${rest}`,
    `/${String.fromCharCode(0xc0, 0xaf)}${rest}`,
    `${path}\xc3\xa9`,
    `${path}\x80`,
    `/\xef\xbb\xbf${rest}`,
    // Parameters, case, and suffixes that some programs cut off.
    `${path};`,
    `${path};x`,
    `${path};x=1`,
    `/;x${path}`,
    `/x;/..${path}`,
    `/..;${path}`,
    `/x/..;${path}`,
    `/.;${path}`,
    `/${swapped}`,
    path.toUpperCase(),
    `${path}#x`,
    `${path}#`,
    `/#${path}`,
    `/?${path}`,
    `/?/..${path}`,
    `${open}?/..${path}`,
    `${open}#${path}`,
    `${path},`,
    `${path}&x`,
    `${path}*`,
    `${path}~`,
    `${path}:80`,
    `${path}.json`,
    `${path}\x0b`,
    `${path}\x0c`,
    // Not a path.
    rest,
    `*${path}`,
    '*',
    `@localhost${path}`,
    `:80${path}`,
    `?${path}`,
    `.${path}`,
    `..${path}`,
    `~${path}`,
  ]
}

/** RFC 9112 3.2.2: every server accepts absolute URLs, and uses their path. */
const absolute = (path: string, host: string) => [
  `http://${host}${path}`,
  `http://${host}:80${path}`,
  `HTTP://${host.toUpperCase()}${path}`,
  `http://${host}${path}?x`,
]

const oddlyAbsolute = (path: string) => [
  `http:${path}`,
  `http:/${path.slice(1)}`,
  `http://${path}`,
  `http:///${path}`,
  `http://localhost${path}/`,
  `http://localhost/x/..${path}`,
  `http://localhost/%${hex(path.charCodeAt(1))}${path.slice(2)}`,
  `http://localhost\\${path.slice(1)}`,
  `http://localhost?${path}`,
  `http://localhost#${path}`,
  `http://user:word@localhost${path}/`,
  `http://localhost:99999${path}/`,
  `ftp://localhost${path}/`,
  `file://${path}`,
  `javascript:${path}`,
  'localhost:80',
  `localhost:80${path}`,
  `//localhost${path}`,
]

/** Variants of the request line, and bytes before it. */
function lines(closed: Closed): HostileRequest[] {
  const { method, path } = closed
  const other = (line: string) => row(line, 'other', requestOf(closed, { line }))
  return [
    `${method}\t${path} HTTP/1.1`,
    `${method} ${path}\tHTTP/1.1`,
    `${method}  ${path} HTTP/1.1`,
    `${method} ${path}  HTTP/1.1`,
    `${method} ${path} HTTP/1.1 `,
    `${method} ${path} x HTTP/1.1`,
    `${method} /v1/liveness ${path} HTTP/1.1`,
    ` ${method} ${path} HTTP/1.1`,
    `\t${method} ${path} HTTP/1.1`,
    `${method}\x0b${path} HTTP/1.1`,
    `${method}\x00 ${path} HTTP/1.1`,
    `${method} \x00${path} HTTP/1.1`,
    `${method} ${path}\x00 HTTP/1.1`,
    `${method} ${path}\r HTTP/1.1`,
    `${method} ${path} HTTP/1.1\rX: y`,
    `${method.toLowerCase()} ${path} HTTP/1.1`,
    `${method}X ${path} HTTP/1.1`,
    `CONNECT ${path} HTTP/1.1`,
    `${method} ${path} http/1.1`,
    `${method} ${path} HTTP/1.10`,
    `${method} ${path} HTTP/3.0`,
    `${method} ${path} HTTP/0.9`,
    `${method} ${path} HTTP`,
    `${method} ${path}`,
    `HTTP/1.1 200 OK\r\n${method} ${path} HTTP/1.1`,
    `PROXY TCP4 10.0.0.1 10.0.0.1 1 80\r\n${method} ${path} HTTP/1.1`,
  ].map(other)
}

/** Hosts that would change the path if they were read as part of the URL. */
const hosts = (path: string) => [
  `localhost${path}?`,
  `localhost${path}#`,
  `localhost${path};`,
  `localhost${path}`,
  `localhost\\${path.slice(1)}?`,
  `a@localhost${path}?`,
  `localhost:80${path}?`,
  `localhost ${path}?`,
  `localhost\t${path}?`,
  `?${path}`,
  `#${path}`,
  path,
  `${path}?`,
  `http://localhost${path}?`,
  'api',
  'd',
  'a:1',
  'tg',
  '',
  ' ',
  '.',
  ':',
  'a:',
  'a:99999',
  'a:x',
  '[',
  '[::1',
  '[::1]',
  '%6d',
  '\xe9',
  'a,b',
  `localhost\r\nHost: localhost${path}?`,
  `localhost\r\nhost: other`,
  `localhost\r\n Host: localhost${path}?`,
]

/** Headers from which some frameworks and proxies take the path. */
const headersLike = (path: string, open: string) => [
  ...[
    'X-Original-URL',
    'X-Rewrite-URL',
    'X-Forwarded-Uri',
    'X-Forwarded-Path',
    'X-Forwarded-Prefix',
    'X-Original-URI',
  ].map((name) => `${name}: ${path}`),
  ...['X-Forwarded-Host', 'X-Host', 'X-Forwarded-Server'].map((name) => `${name}: localhost${path}?`),
  `Forwarded: for=10.0.0.1;host="localhost${path}?";proto=http;path="${path}"`,
  'X-HTTP-Method-Override: DELETE',
  `Referer: http://localhost${path}`,
  `Content-Location: ${path}`,
  `Location: ${path}`,
  `Destination: ${path}`,
  `X-Accel-Redirect: ${path}`,
  `X-Sendfile: ${path}`,
  `Connection: X-Forwarded-For, close\r\nX-Original-URL: ${path}`,
  `Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__`,
  `X: y\nGET ${path} HTTP/1.1\nHost: localhost`,
  `X: ${open}\r\r\n\r\n${path}`,
]

/** A second request in the body of a first one, for programs that compute the body's length differently. */
function hidden(closed: Closed, open: string): HostileRequest[] {
  const inner = requestOf(closed, { target: closed.path })
  const outer = (headers: string[], body: string) =>
    [`POST ${open} HTTP/1.1`, 'Host: localhost', 'Content-Type: application/json', ...headers, '', body].join(
      '\r\n',
    )
  const chunked = `0\r\n\r\n${inner}`
  const inChunk = `${hexLength(inner)}\r\n${inner}\r\n0\r\n\r\n`
  return [
    row(
      'a request in a measured body',
      'hidden',
      outer([`Content-Length: ${inner.length}`, 'Connection: close'], inner),
    ),
    row(
      'a request in a chunk',
      'hidden',
      outer(['Transfer-Encoding: chunked', 'Connection: close'], inChunk),
    ),
    row(
      'both lengths',
      'hidden',
      outer([`Content-Length: ${chunked.length}`, 'Transfer-Encoding: chunked'], chunked),
    ),
    row(
      'both lengths, the other way',
      'hidden',
      outer(['Content-Length: 4', 'Transfer-Encoding: chunked'], `5c\r\n${inner}`),
    ),
    ...[
      'xchunked',
      'chunked, identity',
      'identity, chunked',
      'chunked\x0b',
      '\tchunked',
      'x\r\n chunked',
      '"chunked"',
      'chunked;x',
      'CHUNKED ',
    ].map((coding) =>
      row(
        `Transfer-Encoding: ${coding}`,
        'hidden',
        outer([`Content-Length: ${chunked.length}`, `Transfer-Encoding: ${coding}`], chunked),
      ),
    ),
    row('a blank before the colon', 'hidden', outer([`Content-Length : ${inner.length}`], inner)),
    row('two lengths', 'hidden', outer(['Content-Length: 0', `Content-Length: ${inner.length}`], inner)),
    row('a length with a sign', 'hidden', outer([`Content-Length: +${inner.length}`], inner)),
    row(
      'a length in two parts',
      'hidden',
      outer([`Content-Length: ${inner.length}, ${inner.length}`], inner),
    ),
    row(
      'a chunk with a long extension',
      'hidden',
      outer(['Transfer-Encoding: chunked'], `0;${'x'.repeat(20_000)}\r\n\r\n${inner}`),
    ),
    row('a chunk that ends in a line feed', 'hidden', outer(['Transfer-Encoding: chunked'], `0\n\n${inner}`)),
  ]
}

type Written = { target?: string; host?: string; line?: string; headers?: readonly string[] }

function requestOf(
  closed: Closed,
  { target = closed.path, host = 'localhost', line, headers = [] }: Written,
): string {
  const { method, body = '' } = closed
  const lines = [
    line ?? `${method} ${target} HTTP/1.1`,
    `Host: ${host}`,
    'Connection: close',
    ...(closed.headers ?? []),
    ...headers,
    ...(body === '' ? [] : ['Content-Type: application/json', `Content-Length: ${body.length}`]),
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}

const hex = (code: number) => code.toString(16).padStart(2, '0')
const hexLength = (text: string) => text.length.toString(16)

/** Splits into batches: more connections at a time would delay each other past their time limit. */
export function batchesOf<T>(items: readonly T[], size: number): T[][] {
  const batches: T[][] = []
  for (let from = 0; from < items.length; from += size) batches.push(items.slice(from, from + size))
  return batches
}
