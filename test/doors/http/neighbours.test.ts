import { afterEach, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Answer } from '../../../src/doors/http/answer.ts'
import { HeldMemory } from '../../../src/doors/http/held-memory.ts'
import { HttpServer, type HttpServerOptions } from '../../../src/doors/http/http-server.ts'
import { Turns } from '../../../src/doors/http/turns.ts'
import { STATUSES } from '../../../src/doors/v1/statuses.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import { RawClient } from '../../support/raw-client.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** However hostile one client is, the thread's time, its memory and its other clients are not affected. */

setDefaultTimeout(SLOW_MS)

const MIB = 2 ** 20
const opened: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of opened.splice(0)) await close()
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

function openFront(options: Partial<HttpServerOptions> & { memoryBytesMax?: number } = {}) {
  const counts = { open: 0, refused: 0, heldBytes: 0, givenUp: 0 }
  const turns = new Turns(systemTimers)
  const front = new HttpServer({
    where: { hostname: '127.0.0.1', port: 0, reusePort: false },
    fastRoutes: new Map(),
    cold: async (request) => answerOf(200, String((await request.text(MIB, () => new Error())).length)),
    refuse: ({ code, message }) => answerOf(STATUSES[code], message),
    connectionsMax: 1000,
    counts,
    garbage: { received: () => {} },
    memory: new HeldMemory(options.memoryBytesMax ?? 4 * MIB, counts, () => turns.retry()),
    turns,
    ...options,
  })
  const port = front.port ?? 0
  const clients: RawClient[] = []
  opened.push(async () => {
    for (const client of clients) client[Symbol.dispose]()
    await front.stop(0)
  })
  const connect = () => {
    const client = new RawClient(port)
    clients.push(client)
    return client
  }
  return { front, counts, connect }
}

const until = async (isSo: () => boolean) => {
  while (!isSo()) await Bun.sleep(2)
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n'
const post = (length: number) => `POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`

describe('time', () => {
  test('of the requests that one client sent at once, sixteen are begun in a turn', async () => {
    const begun: number[] = []
    const soon: (() => void)[] = []
    let count = 0
    const { connect } = openFront({
      turns: new Turns({ soon: (run) => void soon.push(run) }),
      cold: () => {
        count++
        return answerOf(200, 'x')
      },
    })
    await connect().send(GET.repeat(50))
    for (let turn = 0; turn < 3; turn++) {
      await until(() => soon.length > 0)
      await Bun.sleep(5) // until everything that needs no turn has been answered
      begun.push(count)
      soon.shift()?.()
      await Bun.sleep(5)
    }
    // The first did not wait, so it does not count.
    expect([...begun, count]).toEqual([17, 33, 49, 50])
  })

  test('clients that pipeline take turns, and all answers are in order', async () => {
    let next = 0
    const { connect } = openFront({ cold: () => answerOf(200, String(next++)) })
    const clients = Array.from({ length: 5 }, connect)
    await Promise.all(clients.map((client) => client.send(GET.repeat(200))))
    const orders = await Promise.all(
      clients.map(async (client) => {
        const order: number[] = []
        for (let i = 0; i < 200; i++) order.push(Number((await client.answer())?.body))
        return order
      }),
    )
    for (const order of orders) {
      expect(order).toEqual(order.toSorted((a, b) => a - b))
      // No client was served completely while others waited.
      expect((order[199] ?? 0) - (order[0] ?? 0)).toBeGreaterThan(300)
    }
  })

  test('a client that pipelines without pause does not delay another', async () => {
    const { connect } = openFront()
    const greedy = connect()
    let isOver = false
    const sending = (async () => {
      while (!isOver) {
        await greedy.send(GET.repeat(500))
        await new Promise(setImmediate)
      }
    })()
    await greedy.answer()
    const other = connect()
    for (let i = 0; i < 50; i++) {
      await other.send(GET)
      expect((await other.answer())?.status).toBe(200)
    }
    isOver = true
    greedy[Symbol.dispose]()
    await Promise.race([sending, Bun.sleep(100)])
  })

  /** Parsing from the beginning with every byte, or copying with every chunk, would take minutes. */
  test('a head or a body in the smallest pieces costs no more than its length', async () => {
    const { connect } = openFront()
    const client = connect()
    const startedAt = performance.now()
    const head = `GET / HTTP/1.1\r\nHost: a\r\nX: ${'a'.repeat(4_000)}\r\n\r\n`
    for (const byte of head) await client.send(byte)
    expect((await client.answer())?.status).toBe(200)
    await client.send(
      `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(MIB)}0\r\n\r\n`,
    )
    expect((await client.answer())?.body).toBe(String(MIB))
    expect(performance.now() - startedAt).toBeLessThan(30_000)
  })
})

describe('memory', () => {
  test('bodies without an end hold no more than the budget, and the oldest gives way with an answer', async () => {
    const { counts, connect } = openFront()
    const slow = Array.from({ length: 20 }, connect)
    for (const client of slow) {
      await client.send(post(MIB) + 'x'.repeat(MIB - 10))
      await until(() => counts.heldBytes >= MIB || counts.givenUp > 0)
      expect(counts.heldBytes).toBeLessThanOrEqual(4 * MIB)
    }
    await until(() => counts.givenUp >= 16)
    const answers = await Promise.all(slow.slice(0, 16).map((client) => client.answer()))
    expect(answers.map((answer) => [answer?.status, answer?.headers.connection])).toEqual(
      Array(16).fill([503, 'close']),
    )
    // The remaining ones become complete requests, and a new client is served beside them.
    const newcomer = connect()
    await newcomer.send(`${post(5)}12`)
    await newcomer.send('345')
    expect((await newcomer.answer())?.body).toBe('5')
    for (const client of slow.slice(18)) {
      await client.send('x'.repeat(10))
      expect((await client.answer())?.body).toBe(String(MIB))
    }
  })

  test('large bodies without room for all wait unread, and all are answered', async () => {
    const { counts, connect } = openFront({ memoryBytesMax: 16 * MIB })
    const clients = Array.from({ length: 40 }, connect)
    for (const [index, client] of clients.entries())
      void client.send(
        index % 2 === 0
          ? post(MIB) + 'x'.repeat(MIB)
          : `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n${'x'.repeat(MIB)}\r\n0\r\n\r\n`,
      )
    const answers = await Promise.all(clients.map((client) => client.answer()))
    expect(answers.map((answer) => answer?.body)).toEqual(Array(40).fill(String(MIB)))
    expect(counts).toMatchObject({ givenUp: 0, heldBytes: 0 })
  })

  test('only received bytes of a body count, not its announced length', async () => {
    const { counts, connect } = openFront()
    const clients = Array.from({ length: 200 }, connect)
    for (const client of clients) await client.send(`${post(MIB)}x`)
    await until(() => counts.open === 200 && counts.heldBytes >= 200 * 1024)
    expect(counts.heldBytes).toBeLessThan(MIB)
    expect(counts.givenUp).toBe(0)
  })

  test('heads without an end count as well', async () => {
    const { counts, connect } = openFront({ memoryBytesMax: MIB })
    const clients = Array.from({ length: 200 }, connect)
    for (const client of clients) await client.send(`GET / HTTP/1.1\r\nX: ${'a'.repeat(15_000)}`)
    await until(() => counts.givenUp > 100)
    expect(counts.heldBytes).toBeLessThanOrEqual(MIB)
    expect((await clients[0]?.answer())?.status).toBe(503)
  })

  test('a client that pipelines without reading holds no more than the budget, and nothing after it is gone', async () => {
    const { counts, connect } = openFront({ cold: () => answerOf(200, 'x'.repeat(100_000)) })
    const clients = Array.from({ length: 8 }, connect)
    for (const client of clients) client.pause()
    let most = 0
    const watching = setInterval(() => {
      most = Math.max(most, counts.heldBytes)
    }, 1)
    for (let i = 0; i < 20; i++)
      for (const client of clients) void client.send(GET.repeat(5_000)).catch(() => {})
    await Bun.sleep(500) // until the server reads no more
    clearInterval(watching)
    expect(most).toBeGreaterThan(0)
    expect(most).toBeLessThanOrEqual(4 * MIB)
    const other = connect()
    await other.send(GET)
    expect((await other.answer())?.status).toBe(200)
    for (const client of clients) client[Symbol.dispose]()
    await until(() => counts.open === 1)
    expect(counts.heldBytes).toBe(0)
  })

  test('an answer larger than the whole budget is sent', async () => {
    const { connect } = openFront({ cold: () => answerOf(200, 'x'.repeat(20 * MIB)) })
    const client = connect()
    client.pause()
    await client.send(GET)
    await Bun.sleep(50) // until the kernel's buffer is full
    client.resume()
    expect((await client.answer())?.body.length).toBe(20 * MIB)
  })

  test('a client that is given up during its request gets that answer and no other', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const { counts, connect } = openFront({
      memoryBytesMax: MIB,
      cold: async () => {
        await released
        return answerOf(200, 'x')
      },
    })
    const busy = connect()
    await busy.send(GET.repeat(3_000))
    await until(() => counts.heldBytes > 0)
    const pushy = connect()
    await pushy.send(post(MIB) + 'x'.repeat(MIB - 1))
    await until(() => counts.givenUp > 0)
    release()
    const answers = await busy.answers()
    expect(answers.map(({ status, headers }) => [status, headers.connection])).toEqual([[200, 'close']])
  })
})

describe('a stop', () => {
  test('clients that reuse connections see no reset: their last answer says that it is the last', async () => {
    const { front, connect } = openFront({
      cold: async () => {
        await Bun.sleep(1)
        return answerOf(200, 'x')
      },
    })
    let isStopping = false
    const callers = Array.from({ length: 10 }, async () => {
      const client = connect()
      for (;;) {
        await client.send(GET)
        const answer = await client.answer()
        expect(answer?.status).toBe(200)
        if (answer?.headers.connection === 'close') {
          expect(isStopping).toBe(true)
          await client.closed()
          expect(client.errorCode).toBeNull()
          return
        }
      }
    })
    const idle = connect()
    await idle.send(GET)
    await idle.answer()
    await Bun.sleep(30)
    isStopping = true
    const stopping = front.stop(5000)
    await Promise.all(callers)
    await idle.closed()
    expect(idle.errorCode).toBeNull()
    await stopping
  })

  test('received requests are answered: held ones, and those still arriving', async () => {
    const { promise: asked, resolve: isAsked } = Promise.withResolvers<void>()
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const { front, connect } = openFront({
      cold: async () => {
        isAsked()
        await released
        return answerOf(200, 'x')
      },
    })
    const pipelining = connect()
    await pipelining.send(GET.repeat(40))
    await asked
    const coming = connect()
    await coming.send(`${post(10)}12345`)
    const expecting = connect()
    await expecting.send(`${post(5).slice(0, -2)}Expect: 100-continue\r\n\r\n`)
    expect((await expecting.answer())?.status).toBe(100)
    const stopping = front.stop(5000)
    release()
    await Bun.sleep(300) // idle connections are closed meanwhile
    await coming.send('67890')
    await expecting.send('12345')
    const answers = await pipelining.answers()
    expect(answers.length).toBe(40)
    expect(answers.map(({ headers }) => headers.connection)).toEqual([...Array(39).fill(undefined), 'close'])
    for (const client of [coming, expecting])
      expect((await client.answers()).map(({ status, headers }) => [status, headers.connection])).toEqual([
        [200, 'close'],
      ])
    await stopping
    for (const client of [pipelining, coming, expecting]) expect(client.errorCode).toBeNull()
  })

  test('a request that arrives after its beginning, on an idle connection, is answered', async () => {
    const { front, connect } = openFront()
    const client = connect()
    await client.send(GET)
    await client.answer()
    const stopping = front.stop(5000)
    await until(() => front.isClosing)
    await client.send(GET)
    expect((await client.answer())?.headers.connection).toBe('close')
    await stopping
  })

  test('a client that never closes its side does not delay it', async () => {
    const { front, connect } = openFront()
    const client = connect()
    client.keepsOpen = true
    await client.send(GET)
    await client.answer()
    const startedAt = performance.now()
    await front.stop(60_000)
    expect(performance.now() - startedAt).toBeLessThan(30_000)
  })
})
