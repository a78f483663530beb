import { heapStats } from 'bun:jsc'
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import type { Answer } from '../../src/http/answer.ts'
import { Front, type FrontOptions } from '../../src/http/front.ts'
import type { Incoming } from '../../src/http/incoming.ts'
import { HEAD_BYTES_MAX, readHead } from '../../src/http/request-head.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

type Received = { status: number; headers: Record<string, string>; body: string }

/** One connection, spoken to in bytes. */
class Client {
  private text = ''
  private readonly socket: Socket
  private isClosed = false
  private waiting: (() => void)[] = []

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1')
    this.socket.setNoDelay(true)
    this.socket.setEncoding('latin1')
    this.socket.on('data', (chunk: string) => {
      this.text += chunk
      this.wake()
    })
    this.socket.on('close', () => {
      this.isClosed = true
      this.wake()
    })
    this.socket.on('error', () => {})
  }

  private wake() {
    for (const wake of this.waiting.splice(0)) wake()
  }

  send(text: string | Uint8Array): Promise<void> {
    return new Promise((resolve) =>
      this.socket.write(typeof text === 'string' ? Buffer.from(text, 'utf8') : text, () => resolve()),
    )
  }

  pause() {
    this.socket.pause()
  }

  resume() {
    this.socket.resume()
  }

  /** The next answer; null when the connection closes before there is a whole one. */
  async answer(): Promise<Received | null> {
    for (;;) {
      const headEnd = this.text.indexOf('\r\n\r\n')
      if (headEnd !== -1) {
        const [statusLine = '', ...lines] = this.text.slice(0, headEnd).split('\r\n')
        const headers = Object.fromEntries(
          lines.map((line) => [
            line.slice(0, line.indexOf(':')).toLowerCase(),
            line.slice(line.indexOf(':') + 1).trim(),
          ]),
        )
        const end = headEnd + 4 + Number(headers['content-length'] ?? 0)
        if (this.text.length >= end) {
          const body = Buffer.from(this.text.slice(headEnd + 4, end), 'latin1').toString('utf8')
          this.text = this.text.slice(end)
          return { status: Number(statusLine.split(' ')[1]), headers, body }
        }
      }
      if (this.isClosed) return null
      await new Promise<void>((resolve) => this.waiting.push(resolve))
    }
  }

  /** All answers until the server closes. */
  async answers(): Promise<Received[]> {
    const all: Received[] = []
    for (;;) {
      const answer = await this.answer()
      if (answer === null) return all
      all.push(answer)
    }
  }

  async closed(): Promise<void> {
    while (!this.isClosed) await new Promise<void>((resolve) => this.waiting.push(resolve))
  }

  [Symbol.dispose]() {
    this.socket.destroy()
  }
}

const portOf = () => Number(new URL(server.url).port)

const limitBody = (identifier: string, limit = 100): string =>
  JSON.stringify({ namespace: 'front', identifier, limit, duration: 3_600_000 })

function limitRequest(identifier: string, more = ''): string {
  const body = limitBody(identifier)
  return `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${OPERATOR_KEY}\r\nContent-Type: application/json\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}
const remainingOf = (answer: Received | null) => JSON.parse(answer?.body ?? '{}').remaining

describe('what comes in parts', () => {
  /** Or a network that cuts packets elsewhere than ours would break it. */
  test('a request cut at every byte is one request', async () => {
    const identifier = 'müller'
    const bytes = Buffer.from(limitRequest(identifier), 'utf8')
    using client = new Client(portOf())
    let last = 100
    for (let cut = 1; cut < bytes.length; cut++) {
      await client.send(bytes.subarray(0, cut))
      await new Promise<void>((resolve) => setImmediate(resolve))
      await client.send(bytes.subarray(cut))
      const answer = await client.answer()
      expect(answer?.status).toBe(200)
      if (cut <= 100) expect(remainingOf(answer)).toBe(last - 1)
      last--
    }
  })

  test('requests sent at once are answered one after the other, in their order, whoever answers them', async () => {
    using client = new Client(portOf())
    const get = 'GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n'
    await client.send(
      limitRequest('pipelined') + get + limitRequest('pipelined') + limitRequest('pipelined') + get,
    )
    expect(remainingOf(await client.answer())).toBe(99)
    expect((await client.answer())?.body).toContain('serving')
    expect(remainingOf(await client.answer())).toBe(98)
    expect(remainingOf(await client.answer())).toBe(97)
    expect((await client.answer())?.body).toContain('serving')
  })

  test('a thousand requests sent at once are each answered once', async () => {
    using client = new Client(portOf())
    const body = limitBody('thousand', 2000)
    const request = limitRequest('').replace(
      /Content-Length.*$/s,
      `Content-Length: ${body.length}\r\n\r\n${body}`,
    )
    await client.send(request.repeat(1000))
    for (let i = 1; i <= 1000; i++) expect(remainingOf(await client.answer())).toBe(2000 - i)
  })

  /** A partly written answer must go on where it stopped. */
  test('an answer larger than the socket takes arrives whole', async () => {
    using client = new Client(portOf())
    const request = 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'
    await client.send(request)
    const once = await client.answer()
    client.pause()
    await client.send(request.repeat(40))
    await Bun.sleep(50) // the server fills what the kernel takes; nothing is measured by it
    client.resume()
    for (let i = 0; i < 40; i++) expect((await client.answer())?.body).toBe(once?.body ?? '')
  })
})

describe('what the strict reader leaves alone', () => {
  test('a chunked body is understood, and so is what follows on the connection', async () => {
    using client = new Client(portOf())
    const body = limitBody('chunked')
    const chunked = `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${OPERATOR_KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
    for (const [index, request] of [
      limitRequest('chunked'),
      chunked,
      limitRequest('chunked'),
      chunked,
    ].entries()) {
      await client.send(request)
      expect(remainingOf(await client.answer())).toBe(99 - index)
    }
  })

  /** An allow list would otherwise see the loopback address of the tunnel. */
  test('the client’s address is the same on every way in', async () => {
    await using narrow = await startTestServer({ env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.0/8' } })
    const workspace = await narrow.workspace()
    const api = await workspace.post('apis.createApi', { name: 'listed' })
    await workspace.post('apis.updateApi', { apiId: api.apiId, ipWhitelist: ['203.0.113.7'] })
    const { key } = await workspace.post('keys.createKey', { apiId: api.apiId })
    const body = JSON.stringify({ key })
    const port = Number(new URL(narrow.url).port)
    const through = async (forwarded: string, rest: string) => {
      using client = new Client(port)
      await client.send(
        `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Forwarded-For: ${forwarded}\r\n${rest}`,
      )
      return JSON.parse((await client.answer())?.body ?? '{}').code
    }
    const measured = `Content-Length: ${body.length}\r\n\r\n${body}`
    const chunked = `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
    expect(await through('203.0.113.7', measured)).toBe('VALID')
    expect(await through('203.0.113.7', chunked)).toBe('VALID')
    expect(await through('203.0.113.8', measured)).toBe('FORBIDDEN')
    expect(await through('203.0.113.8', chunked)).toBe('FORBIDDEN')
  })

  /** Each is a way to make two servers disagree about where a request ends. */
  const ambiguous: [string, string][] = [
    ['both a length and chunks', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n'],
    ['two lengths', 'Content-Length: 5\r\nContent-Length: 6\r\n'],
    ['two equal lengths', 'Content-Length: 5\r\nContent-Length: 5\r\n'],
    ['a list of lengths', 'Content-Length: 5, 5\r\n'],
    ['a signed length', 'Content-Length: +5\r\n'],
    ['a length in hex', 'Content-Length: 0x5\r\n'],
    ['a blank before the colon', 'Content-Length : 5\r\n'],
    ['a folded line', 'X-A: b\r\n Content-Length: 5\r\n'],
    ['a bare line feed', 'X-A: b\nContent-Length: 5\r\n'],
    ['a bare carriage return', 'X-A: b\rContent-Length: 5\r\n'],
    ['a NUL', 'X-A: b\0\r\nContent-Length: 5\r\n'],
    ['an unusual transfer encoding', 'Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n'],
    ['a nameless header', ': x\r\nContent-Length: 5\r\n'],
    ['a second host', 'Host: other\r\nContent-Length: 5\r\n'],
    ['a wish to switch protocols', 'Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n'],
    ['an expectation', 'Expect: 100-continue\r\nContent-Length: 5\r\n'],
    ['an 8-bit character', 'X-A: \u00e9\r\nContent-Length: 5\r\n'],
  ]
  test.each(ambiguous)('%s is not read here', (_, lines) => {
    const head = `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\n${lines}\r\n`
    const plain = 'POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n'
    expect(readHead(plain, plain.length - 4)?.contentLength).toBe(5)
    expect(readHead(head, head.length - 4)).toBeNull()
  })

  test.each(['HTTP/1.0', 'HTTP/2.0', 'http/1.1', 'HTTP/1.1 '])('version %p is not read here', (version) => {
    const head = `GET / ${version}\r\nHost: localhost\r\n\r\n`
    expect(readHead(head, head.length - 4)).toBeNull()
  })

  test.each(['http://localhost/', '*', 'v1', '/a b', '/a\tb', '/a#b', '/é'])(
    'target %p is not read here',
    (target) => {
      const head = `GET ${target} HTTP/1.1\r\nHost: localhost\r\n\r\n`
      expect(readHead(head, head.length - 4)).toBeNull()
    },
  )

  /** Bun's server has the last word on these; whatever it says, a body is never taken for a request. */
  test.each(ambiguous)('%s never makes the body a request of its own', async (_, lines) => {
    using client = new Client(portOf())
    const smuggled = limitRequest(`smuggled by ${lines.length}`)
    await client.send(
      `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${lines}\r\n12345${smuggled}`,
    )
    setTimeout(() => client[Symbol.dispose](), 300)
    const answers = await client.answers()
    for (const answer of answers.slice(0, 1)) expect(answer.status).not.toBe(200)
    expect(answers.filter(({ status, body }) => status === 200 && body.includes('"success":true'))).toEqual(
      [],
    )
  })

  /** It believes its callers about nothing, but a Unix socket alone (mode 0660) must not open a port for everybody. */
  test.skipIf(process.platform !== 'linux')('nobody but a tunnel is answered behind the front', async () => {
    const own = new Set(
      readdirSync('/proc/self/fd').map((fd) => {
        try {
          return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1]
        } catch {
          return undefined // closed meanwhile
        }
      }),
    )
    const ports = readFileSync('/proc/self/net/tcp', 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, , , state, , , , , , inode]) => state === '0A' && own.has(inode))
      .map(([, local = '']) => Number.parseInt(local.slice(-4), 16))
    const statuses = await Promise.all(
      ports.map(async (port) => {
        const response = await fetch(`http://127.0.0.1:${port}/v1/liveness`).catch(() => null)
        return [port === portOf(), response?.status ?? null]
      }),
    )
    expect(statuses).toContainEqual([true, 200])
    expect(statuses).toContainEqual([false, 403])
    expect(statuses.filter(([isFront, status]) => !isFront && status === 200)).toEqual([])
  })
})

describe('what a connection may cost', () => {
  test('a head that does not end is refused at its bound', async () => {
    using client = new Client(portOf())
    await client.send(`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(HEAD_BYTES_MAX)}`)
    expect((await client.answer())?.status).toBe(431)
    await client.closed()
    using within = new Client(portOf())
    await within.send(
      `GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(HEAD_BYTES_MAX - 100)}\r\n\r\n`,
    )
    expect((await within.answer())?.status).toBe(200)
  })

  test('a body over 1 MiB is a 400 that names the bound, one below it is read', async () => {
    const send = async (bytes: number) => {
      using client = new Client(portOf())
      const body = `{"key":"${'k'.repeat(bytes - 10)}"}`
      await client.send(
        `POST /v1/keys.verifyKey HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
      return await client.answer()
    }
    expect((await send(1_048_576))?.body).not.toContain('the body is larger')
    const refused = await send(1_048_577)
    expect(refused?.status).toBe(400)
    expect(refused?.body).toContain('the body is larger than 1048576 bytes')
  })

  /** A front with handlers of the test's own, whose seconds pass when the test says so. */
  async function openFront(options: Partial<FrontOptions> = {}) {
    const behind = Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: () => new Response('behind') })
    const counts = { open: 0, refused: 0 }
    const front = new Front({
      where: { hostname: '127.0.0.1', port: 0, reusePort: false },
      hot: new Map(),
      fetch: () => new Response('elysia'),
      behind: { hostname: '127.0.0.1', port: behind.port ?? 0 },
      peers: { ofTunnel: new Map(), ofRequest: new WeakMap() },
      connectionsMax: 100,
      counts,
      garbage: { received: () => {} },
      ...options,
    })
    return {
      front,
      counts,
      port: front.port ?? 0,
      pass: (seconds: number) => {
        for (let i = 0; i < seconds; i++) front.sweep()
      },
      [Symbol.asyncDispose]: async () => {
        await front.stop(0)
        await behind.stop(true)
      },
    }
  }
  const plain = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'

  test('who takes half a minute over one request is cut off with a 408, who is done is not', async () => {
    await using opened = await openFront()
    using slow = new Client(opened.port)
    using done = new Client(opened.port)
    await slow.send('GET / HTTP/1.1\r\n')
    await done.send(plain)
    expect((await done.answer())?.status).toBe(200)
    opened.pass(29)
    await slow.send('Host: localhost\r\n') // more bytes buy no more time
    await Bun.sleep(20) // until they are there
    opened.pass(1)
    expect((await slow.answer())?.status).toBe(408)
    await slow.closed()
    await done.send(plain)
    expect((await done.answer())?.status).toBe(200)
  })

  test('an idle connection is closed after 75 seconds, not before', async () => {
    await using opened = await openFront()
    using client = new Client(opened.port)
    await client.send(plain)
    await client.answer()
    opened.pass(74)
    expect(opened.counts.open).toBe(1)
    await client.send(plain)
    expect((await client.answer())?.status).toBe(200)
    opened.pass(75)
    await client.closed()
  })

  test('who does not take its answer is cut off', async () => {
    const large = 'x'.repeat(30_000_000)
    await using opened = await openFront({ fetch: () => new Response(large) })
    using client = new Client(opened.port)
    await client.send(plain)
    client.pause()
    await Bun.sleep(50) // until the kernel takes no more
    opened.pass(29)
    expect(opened.counts.open).toBe(1)
    opened.pass(1)
    while (opened.counts.open > 0) await Bun.sleep(5)
  })

  test('what a client has not taken yet of a hot answer is its own, whoever is answered meanwhile', async () => {
    const hot = async (incoming: Incoming): Promise<Answer> => ({
      status: 200,
      text: (await incoming.text(1_000_000, () => new Error())).repeat(20_000_000),
      tookMs: 1,
      envelope: {
        requestId: 'req_1',
        startedAt: performance.now(),
        addedHeaders: null,
        isCrossOrigin: false,
        isPretty: false,
        publicUrl: '',
        trace: null,
      },
    })
    await using opened = await openFront({ hot: new Map([['POST /v1/any', hot]]) })
    const post = (body: string) =>
      `POST /v1/any HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    using slow = new Client(opened.port)
    using quick = new Client(opened.port)
    slow.pause()
    await slow.send(post('s'))
    await Bun.sleep(50) // until the kernel takes no more
    await quick.send(post('q'))
    expect((await quick.answer())?.body === 'q'.repeat(20_000_000)).toBe(true)
    slow.resume()
    expect((await slow.answer())?.body === 's'.repeat(20_000_000)).toBe(true)
  })

  test('what asks for the collector is told of every byte that comes, on every connection', async () => {
    let received = 0
    const garbage = {
      received: (bytes: number) => {
        received += bytes
      },
    }
    await using opened = await openFront({ garbage })
    const get = `GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n`
    for (let connections = 1; connections <= 2; connections++) {
      using client = new Client(opened.port)
      for (let requests = 1; requests <= 2; requests++) {
        await client.send(get)
        expect((await client.answer())?.status).toBe(200)
      }
      expect(received).toBe(connections * 2 * get.length)
    }
  })

  test('a head like the last on its connection is the same again, and one that differs anywhere is not', async () => {
    await using opened = await openFront({
      fetch: async (request) =>
        new Response(`${request.method} ${request.headers.get('x-number')} ${await request.text()}`),
    })
    const post = (number: number, body: string) =>
      `POST /v1/any HTTP/1.1\r\nHost: localhost\r\nX-Number: ${number}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    using client = new Client(opened.port)
    const answers = async (sent: string, ...expected: string[]) => {
      await client.send(sent)
      for (const each of expected) expect((await client.answer())?.body).toBe(each)
    }
    await answers(post(1, 'aa'), 'POST 1 aa')
    await answers(post(1, 'bb'), 'POST 1 bb')
    await answers(post(2, 'bb'), 'POST 2 bb')
    await answers(post(2, 'bbb'), 'POST 2 bbb')
    await answers('GET / HTTP/1.1\r\nHost: localhost\r\nX-Number: 2\r\n\r\n', 'GET 2 ')
    await answers(post(2, 'bbb'), 'POST 2 bbb')
    await answers(post(2, 'ccc') + post(2, 'ddd') + post(3, 'ddd'), 'POST 2 ccc', 'POST 2 ddd', 'POST 3 ddd')
    // In parts, the first of which ends in the head, with the head, or in the body.
    const whole = post(3, 'eee')
    for (const first of [20, whole.length - 3, whole.length - 1]) {
      await client.send(whole.slice(0, first))
      await Bun.sleep(5) // until they are there
      await answers(whole.slice(first), 'POST 3 eee')
    }
  })

  test('the heads that are kept do not keep what was sent after them', async () => {
    await using opened = await openFront({ fetch: () => new Response('read') })
    using client = new Client(opened.port)
    const keptMib = () => {
      Bun.gc(true)
      return heapStats().heapSize / 2 ** 20
    }
    const body = 'x'.repeat(12_000)
    const send = async (from: number, to: number) => {
      for (let i = from; i < to; i++) {
        await client.send(
          `POST /v1/any HTTP/1.1\r\nHost: localhost\r\nX-Number: ${i}\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        )
        expect((await client.answer())?.body).toBe('read')
      }
    }
    await send(0, 50)
    const before = keptMib()
    await send(50, 950)
    expect(keptMib() - before).toBeLessThan(4) // the bodies have 10 MiB
  })

  test('a quiet tunnel is closed, one in use is not', async () => {
    await using opened = await openFront()
    using client = new Client(opened.port)
    const odd = 'GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\r\n'
    for (let i = 0; i < 3; i++) {
      await client.send(odd)
      expect((await client.answer())?.body).toBe('behind')
      opened.pass(89)
    }
    opened.pass(2)
    await client.closed()
  })

  /** Else each tunnel there ever was would leave a port from which anybody on the machine is answered behind the front. */
  test('the port of a tunnel counts as one while the tunnel is open, and no longer', async () => {
    const ofTunnel = new Map<number, string | null>()
    await using opened = await openFront({ peers: { ofTunnel, ofRequest: new WeakMap() } })
    const odd = 'GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\r\n'
    const clients = [0, 1, 2].map(() => new Client(opened.port))
    for (const client of clients) {
      await client.send(odd)
      expect((await client.answer())?.body).toBe('behind')
    }
    expect([...ofTunnel.values()]).toEqual(Array(3).fill('127.0.0.1'))
    for (const client of clients.slice(0, 2)) client[Symbol.dispose]()
    while (ofTunnel.size > 1) await Bun.sleep(5)
    await clients[2]?.send(odd)
    expect((await clients[2]?.answer())?.body).toBe('behind')
    clients[2]?.[Symbol.dispose]()
    while (ofTunnel.size > 0) await Bun.sleep(5)
  })

  test('beyond the most connections newcomers are refused, and a place that becomes free is given again', async () => {
    await using opened = await openFront({ connectionsMax: 2 })
    using first = new Client(opened.port)
    const second = new Client(opened.port)
    for (const client of [first, second]) {
      await client.send(plain)
      expect((await client.answer())?.status).toBe(200)
    }
    using third = new Client(opened.port)
    await third.closed()
    expect(opened.counts).toEqual({ open: 2, refused: 1 })
    await first.send(plain)
    expect((await first.answer())?.status).toBe(200)
    second[Symbol.dispose]()
    while (opened.counts.open > 1) await Bun.sleep(5)
    using fourth = new Client(opened.port)
    await fourth.send(plain)
    expect((await fourth.answer())?.status).toBe(200)
  })

  test('a stop answers what is in work and tells the client that the connection ends', async () => {
    const { promise: asked, resolve: isAsked } = Promise.withResolvers<void>()
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    await using opened = await openFront({
      fetch: async () => {
        isAsked()
        await released
        return new Response('in time')
      },
    })
    using busy = new Client(opened.port)
    using idle = new Client(opened.port)
    await busy.send(plain)
    await asked
    const stopping = opened.front.stop(5000)
    await idle.closed()
    release()
    const answer = await busy.answer()
    expect(answer?.body).toBe('in time')
    expect(answer?.headers.connection).toBe('close')
    await busy.closed()
    await stopping
  })

  test('a handler that fails is a 500, and the next connection is served', async () => {
    let isFirst = true
    await using opened = await openFront({
      fetch: () => {
        if (!isFirst) return new Response('well')
        isFirst = false
        throw new Error('on purpose')
      },
    })
    using first = new Client(opened.port)
    await first.send(plain)
    expect((await first.answer())?.status).toBe(500)
    await first.closed()
    using second = new Client(opened.port)
    await second.send(plain)
    expect((await second.answer())?.body).toBe('well')
  })
})
