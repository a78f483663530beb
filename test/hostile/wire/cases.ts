import { randomNumbers } from '../../support/random.ts'

/**
 * Bytes of a hostile or broken client: one to three requests on a connection, most of them correct, with up to three
 * changes in all. Changes are where HTTP parsers are known to differ: line ends, blanks, lengths, transfer codings, chunks,
 * versions, targets, hosts.
 */
export type WireCase = {
  seed: number
  /** In the order sent; each is a write of its own. */
  parts: Buffer[]
  /** The changes, for people. */
  changes: string[]
}

export function makeCase(seed: number): WireCase {
  const draw = new Draw(seed)
  const count = 1 + draw.below(3)
  const requests = Array.from({ length: count }, (_, i) => makeRequest(draw, i))
  const changes: string[] = []
  for (let left = draw.below(4); left > 0; left--) {
    const change = draw.of(CHANGES)
    changes.push(change.name)
    change.apply(draw.of(requests), draw)
  }
  const bytes = Buffer.from(requests.map(textOf).join('') + (draw.chance(0.5) ? LAST : ''), 'latin1')
  return { seed, parts: cut(bytes, draw), changes }
}

/** A correct request. A parser that lost its place reads it as something else. */
const LAST = 'GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'

/** Random numbers of one seed. */
class Draw {
  private readonly next: () => number
  constructor(seed: number) {
    this.next = randomNumbers(seed)
  }
  below(end: number): number {
    return Math.floor(this.next() * end)
  }
  chance(share: number): boolean {
    return this.next() < share
  }
  of<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T // in range, as no list here is empty
  }
}

/** A request in parts, so that each can be changed. All text is Latin-1. */
type Request = {
  before: string
  method: string
  gap: string
  target: string
  secondGap: string
  version: string
  lineEnd: string
  /** Whole lines without their ends. */
  lines: string[]
  headEnd: string
  /** Null = sent without chunks. */
  chunks: Chunk[] | null
  body: string
  /** The text after the last chunk. */
  trailers: string
}
type Chunk = { size: string; extension: string; sizeEnd: string; data: string; dataEnd: string }

function makeRequest(draw: Draw, index: number): Request {
  const request: Request = {
    before: '',
    method: draw.of(['POST', 'POST', 'POST', 'GET', 'GET', 'PUT', 'OPTIONS']),
    gap: ' ',
    target: `/request/${index}?of=${draw.below(1000)}`,
    secondGap: ' ',
    version: 'HTTP/1.1',
    lineEnd: '\r\n',
    lines: ['Host: localhost', 'User-Agent: hostile'],
    headEnd: '\r\n',
    chunks: null,
    body: '',
    trailers: '\r\n',
  }
  const body = draw.of([
    '',
    'a',
    '{"a":1}',
    '0\r\n\r\n',
    'GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n',
    'x'.repeat(300),
  ])
  if (request.method === 'GET' && draw.chance(0.8)) return request
  if (draw.chance(0.5)) {
    request.body = body
    request.lines.push(`Content-Length: ${body.length}`)
  } else {
    request.lines.push('Transfer-Encoding: chunked')
    request.chunks = []
    for (let at = 0; at < body.length; ) {
      const length = Math.min(body.length - at, 1 + draw.below(40))
      request.chunks.push(chunkOf(body.slice(at, at + length)))
      at += length
    }
    request.chunks.push(chunkOf(''))
  }
  return request
}

const chunkOf = (data: string): Chunk => ({
  size: data.length.toString(16),
  extension: '',
  sizeEnd: '\r\n',
  data,
  dataEnd: data === '' ? '' : '\r\n',
})

function textOf(request: Request): string {
  const { before, method, gap, target, secondGap, version, lineEnd, lines, headEnd, chunks, body, trailers } =
    request
  const head = `${before}${method}${gap}${target}${secondGap}${version}${lineEnd}${lines.map((line) => line + lineEnd).join('')}${headEnd}`
  if (chunks === null) return head + body
  return `${head}${chunks.map(({ size, extension, sizeEnd, data, dataEnd }) => size + extension + sizeEnd + data + dataEnd).join('')}${trailers}`
}

type Change = { name: string; apply: (request: Request, draw: Draw) => void }

const LENGTHS = [
  '+1',
  ' 1',
  '1 ',
  '1\t',
  '01',
  '0x1',
  '1, 1',
  '1,1',
  '1;',
  '-1',
  '1e0',
  '1.0',
  '',
  ' ',
  '\x001',
  '99999999999999999999',
  '4294967297',
  '1048577',
  '1\x0b',
  '１',
]
const CODINGS = [
  'chunked',
  'Chunked',
  'CHUNKED',
  ' chunked',
  'chunked ',
  'chunked\t',
  '\x0bchunked',
  'chunked\x0b',
  'xchunked',
  'chunkedx',
  'chunked, chunked',
  'chunked, identity',
  'identity',
  'identity, chunked',
  'gzip, chunked',
  'gzip',
  'chunked;q=1',
  '"chunked"',
  'chunked,',
  ',chunked',
  '',
  'chun\tked',
  'chunked\x00',
]
const HOSTS = [
  '',
  ' ',
  'a',
  'a:1',
  'localhost:99999',
  'localhost:x',
  'localhost:',
  'user@localhost',
  'localhost/metrics?',
  'a b',
  '[::1]',
  '[::1',
  '[::1]:80',
  'a,b',
  'a\x00',
  '127.0.0.1',
  '%6c',
  'ä',
  '..',
  'a#b',
  'a?b',
]
const TARGETS = [
  '*',
  '',
  'http://localhost/absolute',
  'http://other/absolute?x=1',
  'https://localhost',
  'localhost:80',
  '//two',
  '/a b',
  '/a\tb',
  '/a\x01',
  '/a\x7f',
  '/\xe4',
  '/a#b',
  '/%',
  '/%00',
  '/a\\b',
  '?x',
  'x',
  '/./a',
  '/a\x00b',
  `/${'a'.repeat(9000)}`,
  `/${'a'.repeat(17_000)}`,
]
const VERSIONS = [
  'HTTP/1.0',
  'HTTP/1.0',
  'HTTP/1.2',
  'HTTP/2.0',
  'HTTP/0.9',
  'HTTP/1.1 ',
  ' HTTP/1.1',
  'http/1.1',
  'HTTP/11',
  'HTTP/1.10',
  'HTTP/01.1',
  'HTTP/1',
  'HTTP',
  '',
  'HTTP/1.1\t',
  'RTSP/1.0',
  'ICE/1.0',
  'HTTP/1.1x',
]
const METHODS = [
  'HEAD',
  'DELETE',
  'PATCH',
  'TRACE',
  'CONNECT',
  'FOO',
  'post',
  'PRI',
  'M-SEARCH',
  'QUERY',
  'SOURCE',
  '',
  'G ET',
  'GET\x00',
  'G(T',
  'GET:',
  'A'.repeat(40),
  'PROPFIND',
  '\xc4',
]
const LINES = [
  'Connection: close',
  'Connection: keep-alive',
  'Connection: Close',
  'Connection: close, x',
  'Connection: x',
  'Connection: upgrade',
  'Connection: keep-alive, close',
  'Connection:',
  'Connection: "close"',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'Expect: 100-continue',
  'Expect: 100-CONTINUE',
  'Expect: 200-ok',
  'Expect:',
  'Expect: 100-continue, x',
  'TE: trailers',
  'Trailer: X-A',
  'Keep-Alive: timeout=5',
  'Proxy-Connection: close',
  'X-Empty:',
  'X: \x01',
  'X: \x00',
  'X: \x7f',
  'X: \xe4',
  'X: a\rb',
  'X: a\nb',
  'X\x00: a',
  'X : a',
  ' X: a',
  '\tX: a',
  ': a',
  'X',
  'X\ta: b',
  'X(: b',
  '\xe4: b',
  'X: a\r\n folded',
  'X: a\r\n\tfolded',
  'Content_Length: 1',
  'Content-Length : 1',
  'Content-Length\t: 1',
  'Transfer_Encoding: chunked',
  'Transfer-Encoding : chunked',
  'Transfer-Encoding:\r\n chunked',
  'Content-Length:\r\n 1',
  `X: ${'a'.repeat(9000)}`,
  `X: ${'a'.repeat(17_000)}`,
  '',
  'HTTP/1.1 200 OK',
  'GET / HTTP/1.1',
]
const ENDS = ['\n', '\r', '\r\r\n', '\n\r', '\r\n\r\n', ' \r\n', '\x0b\r\n', '']
const SIZES = [
  '',
  '0x1',
  '+1',
  '-1',
  ' 1',
  '1 ',
  '1\t',
  '01',
  '000000000000000001',
  'g',
  'ffffffff',
  'ffffffffffffffff',
  '10000000000000001',
  '1;',
  '1_0',
  '1.',
  '\x001',
  'A',
  'a',
]
const EXTENSIONS = [
  ';',
  ';a',
  ';a=b',
  ';a="b"',
  ';a="b;c"',
  ';a="b\r\nc"',
  '; a = b',
  ' ;a=b',
  '\t;a',
  ';a\n',
  ';a\r',
  ';\x00',
  ';a=\xe4',
  ';a="',
  `;${'a'.repeat(5000)}`,
  `;${'a'.repeat(20_000)}`,
  ' ',
]
const TRAILERS = [
  'X-A: b\r\n\r\n',
  'X-A: b\n\r\n',
  'X-A: b\r\n\n',
  'X-A : b\r\n\r\n',
  'Content-Length: 5\r\n\r\n',
  'Transfer-Encoding: chunked\r\n\r\n',
  'Host: other\r\n\r\n',
  'X\r\n\r\n',
  '\n',
  '\r',
  '',
  ' \r\n',
  'X: \x00\r\n\r\n',
  `X: ${'a'.repeat(20_000)}\r\n\r\n`,
  'X: a\r\n b\r\n\r\n',
  ': a\r\n\r\n',
  '\r\n\r\n',
]

const without = (name: string) => (line: string) => !line.toLowerCase().startsWith(`${name}:`)
const CHANGES: readonly Change[] = [
  { name: 'length', apply: (request, draw) => setLine(request, 'Content-Length', draw.of(LENGTHS)) },
  {
    name: 'second length',
    apply: ({ lines, body }, draw) =>
      insert(lines, `Content-Length: ${draw.chance(0.5) ? body.length : draw.of(LENGTHS)}`, draw),
  },
  {
    name: 'length shorter',
    apply: (request, draw) => setLine(request, 'Content-Length', String(draw.below(request.body.length + 1))),
  },
  {
    name: 'length longer',
    apply: (request, draw) =>
      setLine(request, 'Content-Length', String(request.body.length + 1 + draw.below(60))),
  },
  {
    name: 'no length',
    apply: (request) => {
      request.lines = request.lines.filter(without('content-length'))
    },
  },
  { name: 'coding', apply: (request, draw) => setLine(request, 'Transfer-Encoding', draw.of(CODINGS)) },
  {
    name: 'second coding',
    apply: ({ lines }, draw) => insert(lines, `Transfer-Encoding: ${draw.of(CODINGS)}`, draw),
  },
  {
    name: 'no coding',
    apply: (request) => {
      request.lines = request.lines.filter(without('transfer-encoding'))
    },
  },
  { name: 'host', apply: (request, draw) => setLine(request, 'Host', draw.of(HOSTS)) },
  {
    name: 'second host',
    apply: ({ lines }, draw) => insert(lines, `Host: ${draw.of(['localhost', ...HOSTS])}`, draw),
  },
  {
    name: 'no host',
    apply: (request) => {
      request.lines = request.lines.filter(without('host'))
    },
  },
  {
    name: 'target',
    apply: (request, draw) => {
      request.target = draw.of(TARGETS)
    },
  },
  {
    name: 'version',
    apply: (request, draw) => {
      request.version = draw.of(VERSIONS)
    },
  },
  {
    name: 'method',
    apply: (request, draw) => {
      request.method = draw.of(METHODS)
    },
  },
  {
    name: 'gap',
    apply: (request, draw) => {
      request[draw.of(['gap', 'secondGap'] as const)] = draw.of(['', '  ', '\t', '\x0b', '\r', '\xa0', ' \t'])
    },
  },
  {
    name: 'before',
    apply: (request, draw) => {
      request.before = draw.of([
        '\r\n',
        '\n',
        '\r\n\r\n',
        ' ',
        '\r',
        '\x00',
        '\ufeff',
        '\x16\x03\x01',
        '0\r\n\r\n',
      ])
    },
  },
  {
    name: 'line end',
    apply: (request, draw) => {
      request.lineEnd = draw.of(ENDS)
    },
  },
  {
    name: 'head end',
    apply: (request, draw) => {
      request.headEnd = draw.of(ENDS)
    },
  },
  { name: 'line', apply: ({ lines }, draw) => insert(lines, draw.of(LINES), draw) },
  { name: 'line', apply: ({ lines }, draw) => insert(lines, draw.of(LINES), draw) },
  {
    name: 'many lines',
    apply: ({ lines }, draw) => {
      for (let i = draw.of([50, 150, 1000]); i > 0; i--) lines.push(`X-${i}: a`)
    },
  },
  {
    name: 'chunk size',
    apply: (request, draw) => {
      for (const chunk of someOf(request, draw)) chunk.size = draw.of(SIZES)
    },
  },
  {
    name: 'chunk extension',
    apply: (request, draw) => {
      for (const chunk of someOf(request, draw)) chunk.extension = draw.of(EXTENSIONS)
    },
  },
  {
    name: 'chunk size end',
    apply: (request, draw) => {
      for (const chunk of someOf(request, draw)) chunk.sizeEnd = draw.of(ENDS)
    },
  },
  {
    name: 'chunk data end',
    apply: (request, draw) => {
      for (const chunk of someOf(request, draw)) chunk.dataEnd = draw.of([...ENDS, 'x'])
    },
  },
  {
    name: 'trailers',
    apply: (request, draw) => {
      request.trailers = draw.of(TRAILERS)
    },
  },
  {
    name: 'last chunk gone',
    apply: ({ chunks }) => {
      chunks?.pop()
    },
  },
  {
    name: 'body on anything',
    apply: (request, draw) => {
      request.body += draw.of(['a', '\r\n', '\n', 'GET /', '\x00'])
    },
  },
]

function setLine(request: Request, name: string, value: string): void {
  const at = request.lines.findIndex((line) => !without(name.toLowerCase())(line))
  if (at === -1) request.lines.push(`${name}: ${value}`)
  else request.lines[at] = `${name}: ${value}`
}
const insert = (lines: string[], line: string, draw: Draw): void => {
  lines.splice(draw.below(lines.length + 1), 0, line)
}
const someOf = ({ chunks }: Request, draw: Draw): Chunk[] =>
  chunks === null ? [] : [draw.of(chunks)].filter(Boolean)

/** The bytes as a whole, in two or three pieces, or byte by byte. */
function cut(bytes: Buffer, draw: Draw): Buffer[] {
  const kind = draw.below(10)
  if (kind < 6) return [bytes]
  if (kind === 9 && bytes.length < 400) return [...bytes].map((byte) => Buffer.of(byte))
  const at = Array.from({ length: 1 + draw.below(2) }, () => draw.below(bytes.length)).sort((a, b) => a - b)
  const ends = [0, ...at, bytes.length]
  return ends
    .slice(1)
    .map((end, i) => bytes.subarray(ends[i], end))
    .filter(({ length }) => length > 0)
}
