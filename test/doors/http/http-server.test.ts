import { heapStats } from 'bun:jsc'
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import type { Answer } from '../../../src/doors/http/answer.ts'
import { HeldMemory } from '../../../src/doors/http/held-memory.ts'
import { HttpServer, type HttpServerOptions } from '../../../src/doors/http/http-server.ts'
import { HEAD_BYTES_MAX } from '../../../src/doors/http/request-head.ts'
import type { RequestReader } from '../../../src/doors/http/request-reader.ts'
import { Turns } from '../../../src/doors/http/turns.ts'
import { STATUSES } from '../../../src/doors/v1/statuses.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { RawClient, type Received } from '../../support/raw-client.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

const portOf = () => Number(new URL(server.url).port)

const limitBody = (identifier: string, limit = 100): string =>
  JSON.stringify({ namespace: 'front', identifier, limit, duration: 3_600_000 })

function limitRequest(identifier: string, more = ''): string {
  const body = limitBody(identifier)
  return `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${OPERATOR_KEY}\r\nContent-Type: application/json\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}
const remainingOf = (answer: Received | null) => JSON.parse(answer?.body ?? '{}').remaining

describe('a request in pieces', () => {
  /** Otherwise a network that cuts packets at other places would break it. */
  test('cut at any byte is one request', async () => {
    const identifier = 'müller'
    const bytes = Buffer.from(limitRequest(identifier), 'utf8')
    using client = new RawClient(portOf())
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

  test('requests sent at once are answered one after the other in their order, by whichever handler', async () => {
    using client = new RawClient(portOf())
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
    using client = new RawClient(portOf())
    const body = limitBody('thousand', 2000)
    const request = limitRequest('').replace(
      /Content-Length.*$/s,
      `Content-Length: ${body.length}\r\n\r\n${body}`,
    )
    await client.send(request.repeat(1000))
    for (let i = 1; i <= 1000; i++) expect(remainingOf(await client.answer())).toBe(2000 - i)
  })

  /** A partly written answer must continue where it stopped. */
  test('an answer larger than the socket’s buffer arrives whole', async () => {
    using client = new RawClient(portOf())
    const request = 'GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n'
    await client.send(request)
    const once = await client.answer()
    client.pause()
    await client.send(request.repeat(40))
    await Bun.sleep(50) // until the kernel's buffer is full; not measured
    client.resume()
    for (let i = 0; i < 40; i++) expect((await client.answer())?.body).toBe(once?.body ?? '')
  })
})

describe('one parser for all bytes', () => {
  test('a chunked body is read correctly, and so is the next request on the connection', async () => {
    using client = new RawClient(portOf())
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

  test('the client’s address is the same on fast and other routes', async () => {
    await using narrow = await startTestServer({ env: { TOLLGATE_TRUSTED_PROXIES: '127.0.0.0/8' } })
    const workspace = await narrow.workspace()
    const api = await workspace.post('apis.createApi', { name: 'listed' })
    await workspace.post('apis.updateApi', { apiId: api.apiId, ipWhitelist: ['203.0.113.7'] })
    const { key } = await workspace.post('keys.createKey', { apiId: api.apiId })
    const body = JSON.stringify({ key })
    const port = Number(new URL(narrow.url).port)
    const through = async (forwarded: string, rest: string) => {
      using client = new RawClient(port)
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

  /** Each can make two servers disagree about the end of a request. */
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
    ['chunks that are not the last coding', 'Transfer-Encoding: chunked, gzip\r\n'],
    ['chunks in chunks', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n'],
    ['a transfer encoding with an empty element', 'Transfer-Encoding: chunked,\r\n'],
    ['a transfer encoding of nothing', 'Transfer-Encoding: \r\n'],
  ]
  test.each(ambiguous)('%s is refused, and its body is never read as another request', async (_, lines) => {
    using client = new RawClient(portOf())
    const smuggled = limitRequest(`smuggled by ${lines.length}`)
    await client.send(
      `POST /v1/ratelimits.limit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${lines}\r\n12345${smuggled}`,
    )
    const answers = await client.answers()
    expect(answers.map(({ status }) => status)).toEqual([400])
    expect(JSON.parse(answers[0]?.body ?? '')).toMatchObject({ error: { code: 'BAD_REQUEST' } })
  })

  /** A Unix socket alone (mode 0660) must not open a port for everybody. */
  test.skipIf(process.platform !== 'linux')('the server listens only where it was told to', () => {
    const own = new Set(
      readdirSync('/proc/self/fd').map((fd) => {
        try {
          return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1]
        } catch {
          return undefined // it was closed meanwhile
        }
      }),
    )
    const ports = ['tcp', 'tcp6'].flatMap((table) =>
      readFileSync(`/proc/self/net/${table}`, 'utf8')
        .split('\n')
        .map((line) => line.trim().split(/\s+/))
        .filter(([, , , state, , , , , , inode]) => state === '0A' && own.has(inode))
        .map(([, local = '']) => Number.parseInt(local.slice(-4), 16)),
    )
    expect(ports).toEqual([portOf()])
  })
})

describe('bounds of a connection', () => {
  test('a head without an end is refused at its bound', async () => {
    using client = new RawClient(portOf())
    await client.send(`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(HEAD_BYTES_MAX)}`)
    expect((await client.answer())?.status).toBe(431)
    await client.closed()
    using within = new RawClient(portOf())
    await within.send(
      `GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(HEAD_BYTES_MAX - 100)}\r\n\r\n`,
    )
    expect((await within.answer())?.status).toBe(200)
  })

  test('a body over 1 MiB is a 400 that names the bound, a smaller one is read', async () => {
    const send = async (bytes: number) => {
      using client = new RawClient(portOf())
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

  const answerOf = (status: number, text: string): Answer => ({
    status,
    contentType: 'application/json',
    text,
    tookMs: 1,
    envelope: {
      requestId: 'req_1',
      startedAt: performance.now(),
      addedHeaders: null,
      isCrossOrigin: false,
      path: '/v1/liveness',
      accept: null,
      isApi: true,
      isPretty: false,
      publicUrl: '',
      trace: null,
    },
  })

  /** A server with the test's own handlers, in simulated seconds. */
  async function openFront(options: Partial<HttpServerOptions> = {}) {
    const counts = { open: 0, refused: 0, heldBytes: 0, givenUp: 0 }
    const front = new HttpServer({
      where: { hostname: '127.0.0.1', port: 0, reusePort: false },
      fastRoutes: new Map(),
      cold: () => new Response('cold'),
      refuse: ({ code, message }) => answerOf(STATUSES[code], message),
      connectionsMax: 100,
      counts,
      garbage: { received: () => {} },
      memory: new HeldMemory(2 ** 26, counts, () => {}),
      turns: new Turns(systemTimers),
      ...options,
    })
    return {
      front,
      counts,
      port: front.port ?? 0,
      pass: (seconds: number) => {
        for (let i = 0; i < seconds; i++) front.sweep()
      },
      [Symbol.asyncDispose]: () => front.stop(0),
    }
  }
  const plain = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'

  test('a request that takes half a minute is cut off with a 408, a finished one is not', async () => {
    await using opened = await openFront()
    using slow = new RawClient(opened.port)
    using done = new RawClient(opened.port)
    await slow.send('GET / HTTP/1.1\r\n')
    await done.send(plain)
    expect((await done.answer())?.status).toBe(200)
    opened.pass(29)
    await slow.send('Host: localhost\r\n') // more bytes do not extend the time
    await Bun.sleep(20) // until they have arrived
    opened.pass(1)
    expect((await slow.answer())?.status).toBe(408)
    await slow.closed()
    await done.send(plain)
    expect((await done.answer())?.status).toBe(200)
  })

  test('an idle connection is closed after 75 seconds and not before', async () => {
    await using opened = await openFront()
    using client = new RawClient(opened.port)
    await client.send(plain)
    await client.answer()
    opened.pass(74)
    expect(opened.counts.open).toBe(1)
    await client.send(plain)
    expect((await client.answer())?.status).toBe(200)
    opened.pass(75)
    await client.closed()
  })

  test('a client that does not read its answer is cut off', async () => {
    const large = 'x'.repeat(30_000_000)
    await using opened = await openFront({ cold: () => new Response(large) })
    using client = new RawClient(opened.port)
    await client.send(plain)
    client.pause()
    await Bun.sleep(50) // until the kernel's buffer is full
    opened.pass(29)
    expect(opened.counts.open).toBe(1)
    opened.pass(1)
    while (opened.counts.open > 0) await Bun.sleep(5)
  })

  test('a client that slowly sends too large a body and reads only afterwards gets the answer, within half a minute', async () => {
    let received = 0
    const garbage = {
      received: (bytes: number) => {
        received += bytes
      },
    }
    await using opened = await openFront({ garbage })
    const head = 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n'
    let sent = 0
    const send = async (client: RawClient, text: string) => {
      await client.send(text)
      sent += text.length
      while (received < sent) await Bun.sleep(5)
    }
    using slow = new RawClient(opened.port)
    slow.keepsOpen = true
    slow.pause()
    await send(slow, head)
    for (let piece = 0; piece < 3; piece++) {
      opened.pass(9)
      await send(slow, 'x'.repeat(1000))
    }
    opened.pass(2)
    expect(opened.counts.open).toBe(1)
    await send(slow, 'x')
    slow.resume()
    expect((await slow.answer())?.status).toBe(200)
    expect(slow.errorCode).toBeNull()
    opened.pass(1) // half a minute is over, whatever arrives
    while (opened.counts.open > 0) await Bun.sleep(5)

    using silent = new RawClient(opened.port)
    silent.keepsOpen = true
    await send(silent, head)
    expect((await silent.answer())?.status).toBe(200)
    opened.pass(9)
    expect(opened.counts.open).toBe(1)
    opened.pass(1)
    while (opened.counts.open > 0) await Bun.sleep(5)
  })

  test('an unread part of a fast answer stays intact while other clients are answered', async () => {
    const fastRoutes = async (incoming: RequestReader): Promise<Answer> =>
      answerOf(200, (await incoming.text(1_000_000, () => new Error())).repeat(20_000_000))
    await using opened = await openFront({ fastRoutes: new Map([['POST /v1/any', fastRoutes]]) })
    const post = (body: string) =>
      `POST /v1/any HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    using slow = new RawClient(opened.port)
    using quick = new RawClient(opened.port)
    slow.pause()
    await slow.send(post('s'))
    await Bun.sleep(50) // until the kernel's buffer is full
    await quick.send(post('q'))
    expect((await quick.answer())?.body === 'q'.repeat(20_000_000)).toBe(true)
    slow.resume()
    expect((await slow.answer())?.body === 's'.repeat(20_000_000)).toBe(true)
  })

  test('the garbage collector’s schedule counts every received byte of every connection', async () => {
    let received = 0
    const garbage = {
      received: (bytes: number) => {
        received += bytes
      },
    }
    await using opened = await openFront({ garbage })
    const get = `GET /v1/liveness HTTP/1.1\r\nHost: localhost\r\n\r\n`
    for (let connections = 1; connections <= 2; connections++) {
      using client = new RawClient(opened.port)
      for (let requests = 1; requests <= 2; requests++) {
        await client.send(get)
        expect((await client.answer())?.status).toBe(200)
      }
      expect(received).toBe(connections * 2 * get.length)
    }
  })

  test('a head equal to the connection’s last one is taken from the cache, and one that differs anywhere is not', async () => {
    await using opened = await openFront({
      cold: async (request) =>
        new Response(
          `${request.method} ${request.header('x-number')} ${await request.text(1_000, () => new Error())}`,
        ),
    })
    const post = (number: number, body: string) =>
      `POST /v1/any HTTP/1.1\r\nHost: localhost\r\nX-Number: ${number}\r\nContent-Length: ${body.length}\r\n\r\n${body}`
    using client = new RawClient(opened.port)
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
    // In pieces, the first of which ends in the head, after the head, or in the body.
    const whole = post(3, 'eee')
    for (const first of [20, whole.length - 3, whole.length - 1]) {
      await client.send(whole.slice(0, first))
      await Bun.sleep(5) // until they have arrived
      await answers(whole.slice(first), 'POST 3 eee')
    }
  })

  test('cached heads do not keep the bytes after them in memory', async () => {
    await using opened = await openFront({ cold: () => new Response('read') })
    using client = new RawClient(opened.port)
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

  test('beyond the largest number of connections new ones are refused, and a freed place is used again', async () => {
    await using opened = await openFront({ connectionsMax: 2 })
    using first = new RawClient(opened.port)
    const second = new RawClient(opened.port)
    for (const client of [first, second]) {
      await client.send(plain)
      expect((await client.answer())?.status).toBe(200)
    }
    using third = new RawClient(opened.port)
    await third.closed()
    expect(opened.counts).toMatchObject({ open: 2, refused: 1 })
    await first.send(plain)
    expect((await first.answer())?.status).toBe(200)
    second[Symbol.dispose]()
    while (opened.counts.open > 1) await Bun.sleep(5)
    using fourth = new RawClient(opened.port)
    await fourth.send(plain)
    expect((await fourth.answer())?.status).toBe(200)
  })

  test('a stop answers running requests and tells the client that the connection ends', async () => {
    const { promise: asked, resolve: isAsked } = Promise.withResolvers<void>()
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    await using opened = await openFront({
      cold: async () => {
        isAsked()
        await released
        return new Response('in time')
      },
    })
    using busy = new RawClient(opened.port)
    using idle = new RawClient(opened.port)
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

  test('a handler that throws is a 500, and the next connection is served', async () => {
    let isFirst = true
    await using opened = await openFront({
      cold: () => {
        if (!isFirst) return new Response('well')
        isFirst = false
        throw new Error('on purpose')
      },
    })
    using first = new RawClient(opened.port)
    await first.send(plain)
    expect((await first.answer())?.status).toBe(500)
    await first.closed()
    using second = new RawClient(opened.port)
    await second.send(plain)
    expect((await second.answer())?.body).toBe('well')
  })
})
