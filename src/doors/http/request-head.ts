import { isIPv6 } from 'node:net'
import type { AnyErrorCode } from '../../errors.ts'

/** The head of an HTTP/1 request, parsed strictly: anything ambiguous is refused. */
export type RequestHead = {
  readonly method: string
  /** Path and query as sent. Scheme and host of an absolute URL are removed, and a leading `//v1/` or `//v2/` loses a slash. */
  readonly target: string
  /** The target without its query. Compared byte by byte with the known paths, neither decoded nor normalised. */
  readonly path: string
  /** Method and path: `POST /v1/ratelimits.limit`. */
  readonly route: string
  /** Length of the body in bytes; 0 for a chunked one. */
  readonly contentLength: number
  readonly isChunked: boolean
  /** The connection closes after the answer: `Connection: close`, or HTTP/1.0. */
  readonly isLast: boolean
  /** The client waits for `100 Continue` before it sends the body. */
  readonly expectsContinue: boolean
  /** By name in lower case. Values of a repeated header are joined by commas. */
  readonly values: ReadonlyMap<string, string>
}

/** Why bytes are not a valid request. The connection closes after the answer. */
export type Refused = { readonly code: AnyErrorCode; readonly message: string }

/** Longest head in bytes, request line included. Enough for cookies and tokens. */
export const HEAD_BYTES_MAX = 16_384

/** @param text The head in Latin-1, up to and including the empty line that ends it, at `end`. */
export function readHead(text: string, end: number): RequestHead | Refused {
  const lineEnd = text.indexOf('\r\n')
  const methodEnd = text.indexOf(' ')
  const targetEnd = text.lastIndexOf(' ', lineEnd)
  const method = text.slice(0, methodEnd)
  const version = text.slice(targetEnd + 1, lineEnd)
  if (methodEnd === -1 || methodEnd >= targetEnd || !TOKEN.test(method) || !VERSION.test(version))
    return malformed('the request line is malformed')
  const isOld = version === 'HTTP/1.0'
  if (!isOld && version !== 'HTTP/1.1')
    return { code: 'HTTP_VERSION_NOT_SUPPORTED', message: `${version} is not supported: send HTTP/1.1` }
  if (method === 'CONNECT' || method.length > METHOD_CHARACTERS_MAX)
    return { code: 'NOT_IMPLEMENTED', message: 'this HTTP method is not supported' }
  const target = readTarget(text.slice(methodEnd + 1, targetEnd), method)
  if (target === null) return malformed('the request target is malformed')

  const values = new Map<string, string>()
  let hosts = 0
  let lengths = 0
  let at = lineEnd + 2
  while (at < end + 2) {
    let colon = at
    while (isTokenCode(text.charCodeAt(colon))) colon++
    if (colon === at || text.charCodeAt(colon) !== COLON) return malformed('a header line is malformed')
    let from = colon + 1
    while (isBlank(text.charCodeAt(from))) from++
    let to = from
    for (let code = text.charCodeAt(to); code !== CARRIAGE_RETURN; code = text.charCodeAt(++to)) {
      if (!isValueCode(code)) return malformed('a header line contains a control character')
    }
    if (text.charCodeAt(to + 1) !== LINE_FEED) return malformed('a header line contains a CR without LF')
    const next = to + 2
    while (to > from && isBlank(text.charCodeAt(to - 1))) to--
    const name = text.slice(at, colon).toLowerCase()
    const value = text.slice(from, to)
    if (name === 'host') hosts++
    else if (name === 'content-length') lengths++
    const before = values.get(name)
    values.set(name, before === undefined ? value : `${before}, ${value}`)
    at = next
  }

  if (hosts > 1) return malformed('Host: sent more than once')
  const host = values.get('host')
  if (host === undefined && !isOld) return malformed('Host: required')
  if (host !== undefined && !isHost(host)) return malformed('Host: must be a host name with an optional port')

  let isChunked = false
  const coding = values.get('transfer-encoding')
  if (coding !== undefined) {
    if (isOld) return malformed('Transfer-Encoding: not allowed in HTTP/1.0')
    if (lengths > 0) return malformed('Content-Length and Transfer-Encoding cannot be combined')
    const codings = elementsOf(coding)
    if (codings.indexOf('chunked') !== codings.length - 1 || codings.includes(''))
      return malformed('Transfer-Encoding: chunked must be last and appear once')
    if (codings.length > 1)
      return { code: 'NOT_IMPLEMENTED', message: 'Transfer-Encoding: only chunked is supported' }
    isChunked = true
  }
  const length = values.get('content-length')
  if (length !== undefined && (lengths > 1 || !DIGITS.test(length)))
    return malformed('Content-Length: must be one whole number')

  let expectsContinue = false
  const expectation = values.get('expect')
  if (expectation !== undefined && expectation !== '') {
    const expectations = elementsOf(expectation).filter((element) => element !== '')
    if (expectations.some((element) => element !== '100-continue'))
      return { code: 'EXPECTATION_FAILED', message: 'Expect: only 100-continue is supported' }
    // RFC 9110 10.1.1: HTTP/1.0 ignores it.
    expectsContinue = !isOld && expectations.length > 0
  }
  const connection = values.get('connection')
  const isLast = isOld || (connection !== undefined && elementsOf(connection).includes('close'))
  const queryAt = target.indexOf('?')
  const path = queryAt === -1 ? target : target.slice(0, queryAt)
  return {
    method,
    target,
    path,
    route: `${method} ${path}`,
    contentLength: length === undefined ? 0 : Number(length),
    isChunked,
    isLast,
    expectsContinue,
    values,
  }
}

const malformed = (message: string): Refused => ({ code: 'BAD_REQUEST', message })

/**
 * Path and query of a request target: `/path?query`, `http://host/path?query`, or `*` of OPTIONS.
 * @returns null for any other target.
 */
function readTarget(text: string, method: string): string | null {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code <= SPACE || code >= DELETE || code === HASH) return null
  }
  if (text.charCodeAt(0) === SLASH) return withoutDoubledSlash(text)
  if (text === '*') return method === 'OPTIONS' ? text : null
  const [url, authority = '', rest = ''] = ABSOLUTE.exec(text) ?? []
  if (url === undefined || !isHost(authority)) return null
  return withoutDoubledSlash(rest.startsWith('/') ? rest : `/${rest}`)
}

/** A client whose base URL ends in a slash asks for `//v1/…` or `//v2/…`. This is the only other accepted spelling of a path. */
const withoutDoubledSlash = (target: string): string =>
  target.startsWith('//v1/') || target.startsWith('//v2/') ? target.slice(1) : target

/** RFC 9110 7.2: a host name, an IPv4 address or an IPv6 address in brackets, optionally with a port. */
function isHost(text: string): boolean {
  if (HOST_NAME.test(text)) {
    const [, port = ''] = text.split(':')
    return text.length <= HOST_CHARACTERS_MAX && Number(port) <= PORT_MAX
  }
  const [, address = '', port = ''] = HOST_IPV6.exec(text) ?? []
  return isIPv6(address) && Number(port) <= PORT_MAX
}

const elementsOf = (list: string): string[] =>
  list
    .toLowerCase()
    .split(',')
    .map((element) => element.trim())

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const VERSION = /^HTTP\/\d\.\d$/
const ABSOLUTE = /^https?:\/\/([^/?]*)(.*)$/i
const HOST_NAME = /^(?:[A-Za-z0-9\-._~]|%[0-9A-Fa-f]{2})+(?::\d{0,5})?$/
const HOST_IPV6 = /^\[([0-9A-Fa-f:.]+)\](?::(\d{0,5}))?$/
const DIGITS = /^\d+$/
/** All known methods are shorter. */
const METHOD_CHARACTERS_MAX = 24
const HOST_CHARACTERS_MAX = 261
const PORT_MAX = 65_535

const TAB = 0x09
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const SPACE = 0x20
const HASH = 0x23
const SLASH = 0x2f
const COLON = 0x3a
const DELETE = 0x7f

const isBlank = (code: number) => code === SPACE || code === TAB

/** Characters of a header's value, RFC 9110 5.5: visible ASCII, blanks, and bytes above ASCII. */
export const isValueCode = (code: number): boolean =>
  (code >= SPACE && code !== DELETE && code <= 0xff) || code === TAB

/** Characters of a header's name, RFC 9110 5.6.2. */
const TOKEN_CODES = new Uint8Array(256)
for (const character of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
  TOKEN_CODES[character.charCodeAt(0)] = 1
export const isTokenCode = (code: number): boolean => TOKEN_CODES[code] === 1
