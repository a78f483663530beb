/**
 * The start of an HTTP/1.1 request as nearly every client sends it, read strictly. This is no general HTTP parser: it
 * knows one way to write each thing, and whatever is written otherwise is left to Bun's own server (`tunnel.ts`). So it
 * cannot disagree with a proxy about where a request ends, which is how requests are smuggled.
 */
export type RequestHead = {
  readonly method: string
  /** Path and query as sent. */
  readonly target: string
  /** Method and path, without the query: `POST /v1/ratelimits.limit`. */
  readonly route: string
  /** Of the body, in bytes. */
  readonly contentLength: number
  /** The client wants the connection closed after the answer. */
  readonly isLast: boolean
  /** Names in lower case, each followed by its value; in the order sent. */
  readonly headers: readonly string[]
  /** The same by name; of one sent more than once, all values joined by commas. */
  readonly values: ReadonlyMap<string, string>
}

/** Longest head, in bytes, request line included. Cookies and tokens fit; a head that grows and grows does not. */
export const HEAD_BYTES_MAX = 16_384

/**
 * @param text The head in Latin-1, up to and including the empty line that ends it, at `end`.
 * @returns null for everything that is not plainly one request with a measured body: another version or method, a
 *   transfer encoding, `Expect`, `Upgrade`, two lengths, two hosts or none, folded lines, blanks before a colon, bare
 *   line feeds, characters beyond ASCII, a target that is not a path.
 */
export function readHead(text: string, end: number): RequestHead | null {
  const lineEnd = text.indexOf('\r\n')
  const methodEnd = text.indexOf(' ')
  const method = text.slice(0, methodEnd)
  if (!METHODS.has(method)) return null
  const targetEnd = lineEnd - ' HTTP/1.1'.length
  if (text.slice(targetEnd, lineEnd) !== ' HTTP/1.1') return null
  const target = text.slice(methodEnd + 1, targetEnd)
  if (target.charCodeAt(0) !== SLASH) return null
  let queryAt = -1
  for (let i = 0; i < target.length; i++) {
    const code = target.charCodeAt(i)
    if (code <= SPACE || code >= DELETE || code === HASH) return null
    if (code === QUESTION_MARK && queryAt === -1) queryAt = i
  }

  const headers: string[] = []
  const values = new Map<string, string>()
  let contentLength = -1
  let hosts = 0
  let isLast = false
  let at = lineEnd + 2
  while (at < end + 2) {
    let colon = at
    while (isTokenCode(text.charCodeAt(colon))) colon++
    if (colon === at || text.charCodeAt(colon) !== COLON) return null
    let from = colon + 1
    while (isBlank(text.charCodeAt(from))) from++
    let to = from
    for (let code = text.charCodeAt(to); code !== CARRIAGE_RETURN; code = text.charCodeAt(++to)) {
      if (code >= DELETE || (code < SPACE && code !== TAB)) return null
    }
    if (text.charCodeAt(to + 1) !== LINE_FEED) return null
    const next = to + 2
    while (to > from && isBlank(text.charCodeAt(to - 1))) to--
    const name = text.slice(at, colon).toLowerCase()
    const value = text.slice(from, to)
    switch (name) {
      case 'content-length':
        if (contentLength !== -1 || !LENGTH.test(value)) return null
        contentLength = Number(value)
        break
      case 'host':
        hosts++
        break
      case 'connection':
        if (CLOSE.test(value)) isLast = true
        else if (!KEEP_ALIVE.test(value)) return null
        break
      case 'transfer-encoding':
      case 'expect':
      case 'upgrade':
      case 'te':
      case 'trailer':
        return null
      default:
    }
    headers.push(name, value)
    const before = values.get(name)
    values.set(name, before === undefined ? value : `${before}, ${value}`)
    at = next
  }
  if (hosts !== 1) return null
  if (contentLength > 0 && method !== 'POST') return null
  const route = text.slice(0, queryAt === -1 ? targetEnd : methodEnd + 1 + queryAt)
  return { method, target, route, contentLength: Math.max(0, contentLength), isLast, headers, values }
}

const METHODS: ReadonlySet<string> = new Set(['GET', 'POST', 'OPTIONS', 'PUT', 'PATCH', 'DELETE'])
const LENGTH = /^\d{1,10}$/
const CLOSE = /^close$/i
const KEEP_ALIVE = /^keep-alive$/i

const TAB = 0x09
const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const SPACE = 0x20
const HASH = 0x23
const SLASH = 0x2f
const COLON = 0x3a
const QUESTION_MARK = 0x3f
const DELETE = 0x7f

const isBlank = (code: number) => code === SPACE || code === TAB

/** RFC 9110 5.6.2: what a header name consists of. */
const TOKEN_CODES = new Uint8Array(128)
for (const character of "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
  TOKEN_CODES[character.charCodeAt(0)] = 1
const isTokenCode = (code: number) => TOKEN_CODES[code] === 1
