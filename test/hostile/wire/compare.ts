import type { Outcome, Spoken } from './echo.ts'

/**
 * Allowed differences between the two, with reasons. `ours` and `theirs` are the results of one request (see
 * {@link nameOf}), `bytes` must be in the case. Any other difference is a failure. A request that both answer but read
 * differently is always one.
 */
export const EXPLAINED: readonly { ours: RegExp; theirs: RegExp; bytes?: RegExp; why: string }[] = [
  {
    ours: /^400 Host: /,
    theirs: /./,
    why: 'RFC 9112 3.2: two Hosts, or one that is no host, are a 400. Node believes any',
  },
  {
    ours: /^400 the request line is malformed/,
    theirs: /./,
    why: 'one blank between the parts of a request line, and at most one empty line before it. Node skips more, and takes a line without a version for HTTP/0.9',
  },
  {
    ours: /^400 the request target is malformed/,
    theirs: /./,
    why: 'a target is a path, or a URL, without blanks, control characters, fragments or bytes beyond ASCII. Node takes some of them',
  },
  {
    ours: /^400 this is not an HTTP request/,
    theirs: /./,
    why: 'what cannot begin a request is refused at its first byte',
  },
  {
    ours: /^505 /,
    theirs: /./,
    why: 'only 1.0 and 1.1 are spoken. Node also reads 0.9 and 2.0 in this form',
  },
  {
    ours: /^((400|501) Transfer-Encoding: |400 Content-Length and Transfer-Encoding)/,
    theirs: /./,
    why: 'the one coding is chunked, once, in HTTP/1.1, without a length beside it. Node reads other codings before chunked, and for some both',
  },
  {
    ours: /^(414|431) /,
    theirs: /./,
    why: 'line, head and trailers are bounded by all their bytes. Node counts names and values only',
  },
  {
    ours: /^413 /,
    theirs: /./,
    why: 'a body that is announced larger than the bound is refused before it comes',
  },
  { ours: /^417 /, theirs: /./, why: 'an unknown expectation is a 417, also where something else is wrong' },
  {
    ours: /^501 this HTTP method/,
    theirs: /^(400 HPE|405 CONNECT)/,
    why: 'the same refusal by another status',
  },
  {
    ours: /^answered/,
    theirs: /^400 HPE_INVALID_(METHOD|VERSION)/,
    why: 'RFC 9110 9.1: any token is a method, and one that is not known is a 405 of the route. Node knows a list',
  },
  {
    ours: /^answered/,
    theirs: /^400 HPE_STRICT/,
    bytes: /[0-9a-f];/i,
    why: 'a chunk extension is dropped, whatever visible characters it has. Node wants a name and a value',
  },
  {
    ours: /^(answered|400 )/,
    theirs: /^417/,
    bytes: /Expect: *\r\n/,
    why: 'an empty Expect expects nothing',
  },
  {
    ours: /^(answered|\d{3} )/,
    theirs: /^closed/,
    bytes: /Proxy-Connection: close/,
    why: 'Proxy-Connection is no header of HTTP. Node closes for it, and reads nothing that follows',
  },
  {
    ours: /^(answered|\d{3} )/,
    theirs: /^closed/,
    bytes: /Connection: upgrade\r\n[\s\S]*Upgrade: |Upgrade: [\s\S]*Connection: upgrade\r\n/i,
    why: 'RFC 9110 7.8: an Upgrade that is not wanted is ignored. Node answers it and reads nothing that follows',
  },
  {
    ours: /^answered/,
    theirs: /^400 HPE_INVALID_(CONTENT_LENGTH|TRANSFER_ENCODING)/,
    bytes:
      /(Content-Length: *1|Transfer-Encoding: *chunked)[ \t]+\r\n|\r\n0[^\r\n]*\r\n(?:[^\r\n]+\r\n)*(Content-Length|Transfer-Encoding):/i,
    why: 'RFC 9112 5.1: blanks after a value are none of it; and a trailer never frames, it is dropped',
  },
  {
    ours: /^400 a chunk's length has too many digits/,
    theirs: /^answered/,
    bytes: /\b0{8,}1/,
    why: 'zeros in front of a chunk’s length are bounded, as is all that is read and not kept',
  },
  {
    ours: /^closed/,
    theirs: /./,
    bytes: /HTTP\/1\.0\r\n[\s\S]*Connection: keep-alive/i,
    why: 'a request of HTTP/1.0 is answered and its connection closed. Node keeps it open for who asks',
  },
  {
    ours: /^closed/,
    theirs: /^(400|417)/,
    why: 'what ends within a head or a body is closed without an answer; Node has looked at its beginning',
  },
  {
    ours: /^400 (a header line|a chunk|a trailer)/,
    theirs: /^closed/,
    why: 'Node waits for the rest of what is refused here',
  },
]

export type Difference = {
  /** Both answer, but read the bytes as different requests: how requests are smuggled. */
  isFraming: boolean
  ours: string
  theirs: string
  why: string | null
}

/** @returns the first difference between two servers' readings of the same bytes; null = none. */
export function firstDifference(bytes: string, ours: Spoken, theirs: Spoken): Difference | null {
  if (ours.isHung || theirs.isHung)
    return {
      isFraming: false,
      ours: ours.isHung ? 'hung' : '-',
      theirs: theirs.isHung ? 'hung' : '-',
      why: null,
    }
  for (let i = 0; ; i++) {
    const [own, their] = [ours.outcomes[i], theirs.outcomes[i]]
    const names = { ours: nameOf(own), theirs: nameOf(their) }
    if (own?.kind === 'answered' && their?.kind === 'answered') {
      const isSame =
        own.method === their.method && own.target === pathOf(their.target) && own.body === asUtf8(their.body)
      if (isSame) continue
      return { isFraming: true, ours: JSON.stringify(own), theirs: JSON.stringify(their), why: null }
    }
    if (own === undefined && their === undefined) return null
    const row = EXPLAINED.find(
      (each) =>
        each.ours.test(names.ours) && each.theirs.test(names.theirs) && (each.bytes?.test(bytes) ?? true),
    )
    if (
      row === undefined &&
      own?.kind === 'refused' &&
      their?.kind === 'refused' &&
      own.status === their.status
    )
      return null
    return { isFraming: false, ...names, why: row?.why ?? null }
  }
}

export const nameOf = (outcome: Outcome | undefined): string =>
  outcome === undefined
    ? 'closed'
    : outcome.kind === 'answered'
      ? 'answered'
      : `${outcome.status} ${outcome.reason}`.trim()

/** Bodies are shown in Latin-1, while Tollgate reads them as UTF-8. */
const asUtf8 = (latin1: string): string => Buffer.from(latin1, 'latin1').toString('utf8')

/** The path of an absolute URL, RFC 9112 3.2.2: it is requested here, whatever its host. */
const pathOf = (target: string): string => {
  const [, rest] = /^https?:\/\/[^/?]*(.*)$/i.exec(target) ?? []
  return rest === undefined ? target : rest.startsWith('/') ? rest : `/${rest}`
}
