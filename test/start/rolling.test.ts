import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { Agent, request } from 'node:http'
import { blockWith } from '../docs/blocks.ts'
import { startBalancer } from '../support/balancer.ts'
import { openTestDatabase, TEST_DATABASE_URL, type TestDatabase } from '../support/database.ts'
import { freePort, NGINX, startNginx } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { HAPROXY, startHaproxy } from '../support/proxies.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

/**
 * Two servers behind a balancer, one of which is stopped under load. Calls are counted by a client that does not try again.
 * The balancers notice a stop by asking for readiness, later than it begins.
 */
setDefaultTimeout(3 * SLOW_MS)

const DRAIN_MS = 2500
const CHECK_MS = 300
const CALLERS = 8

/** A server on a port of its own choice. Two of them need a database that both can open. */
class Member {
  constructor(
    readonly port: number,
    private readonly env: Record<string, string>,
    public server: ServerProcess,
  ) {}

  static async start(database: TestDatabase, httpThreads: number): Promise<Member> {
    const port = await freePort()
    const env = {
      PORT: String(port),
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_DRAIN_MS: String(DRAIN_MS),
      TOLLGATE_SHARDS: '1',
      TOLLGATE_HTTP_THREADS: String(httpThreads),
      TOLLGATE_DB_TIMEOUT_MS: '20000',
    }
    return new Member(port, env, await spawnServer(env))
  }

  async restart(): Promise<void> {
    this.server = await spawnServer(this.env)
  }
}

/** Status, or the name of what broke. */
function call(url: string, agent: Agent | false): Promise<number | string> {
  return new Promise((resolve) => {
    const body = JSON.stringify({ namespace: 'rolling', identifier: 'all', limit: 1e9, duration: 60_000 })
    const sent = request(
      `${url}/v1/ratelimits.limit`,
      {
        method: 'POST',
        ...(agent === false ? { agent: new Agent({ keepAlive: false }) } : { agent }),
        headers: {
          authorization: `Bearer ${OPERATOR_KEY}`,
          'content-type': 'application/json',
          'content-length': String(body.length),
        },
      },
      (answer) => {
        answer.resume()
        answer.on('end', () => resolve(answer.statusCode ?? 0))
        answer.on('error', (cause) => resolve(String(cause)))
      },
    )
    sent.on('error', (cause) => resolve(String(cause)))
    sent.end(body)
  })
}

/** Calls until stopped. @returns what came back, by kind. */
function load(url: string, { keepsAlive }: { keepsAlive: boolean }) {
  const agent = keepsAlive ? new Agent({ keepAlive: true, maxSockets: CALLERS }) : false
  const seen = new Map<number | string, number>()
  let isStopping = false
  const caller = async () => {
    while (!isStopping) {
      const outcome = await call(url, agent)
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1)
      await Bun.sleep(10)
    }
  }
  const callers = Promise.all(Array.from({ length: CALLERS }, caller))
  return {
    answered: () => seen.get(200) ?? 0,
    stop: async () => {
      isStopping = true
      await callers
      if (agent !== false) agent.destroy()
      return Object.fromEntries([...seen].filter(([outcome]) => outcome !== 200))
    },
  }
}

async function answeredBy(calling: ReturnType<typeof load>, more: number): Promise<void> {
  const wanted = calling.answered() + more
  while (calling.answered() < wanted) await Bun.sleep(10)
}

/** Removes a server as its readiness fails, after as long as a balancer may take. */
async function removeOnceUnready(
  member: Member,
  remove: (port: number) => void | Promise<void>,
): Promise<void> {
  for (;;) {
    const { status } = await fetch(`http://127.0.0.1:${member.port}/v1/readiness`)
    if (status === 503) break
    await Bun.sleep(CHECK_MS)
  }
  await Bun.sleep(2 * CHECK_MS)
  await remove(member.port)
}

/** What stands in front. @returns its URL, and what must be done while the first server drains. */
type Front = (
  members: readonly [Member, Member],
  closing: AsyncDisposableStack,
) => Promise<{ url: string; duringDrain?: () => Promise<void> }>

const layer4: Front = async (members, closing) => {
  const balancer = closing.use(startBalancer(members.map(({ port }) => port)))
  return { url: balancer.url, duringDrain: () => removeOnceUnready(members[0], balancer.remove) }
}

/**
 * nginx asks for no readiness. As in the guide, the server is marked `down` before it stops: a connection that the kernel
 * holds for a socket that closes is reset, and nginx does not send a POST again. The client opens a connection for each call,
 * because nginx closes idle ones when it reads its configuration again.
 */
const nginx: Front = async (members, closing) => {
  let place = ''
  const port = await startNginx(({ port: own, folder }) => {
    place = folder
    return `
  upstream tollgate {
    ${members.map((member) => `server 127.0.0.1:${member.port} max_fails=0;`).join(' ')}
    keepalive 16;
  }
  server {
    listen 127.0.0.1:${own};
    location / {
      proxy_pass http://tollgate;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_next_upstream error;
    }
  }`
  }, closing)
  const remove = async (member: number) => {
    const of = `server 127.0.0.1:${member} max_fails=0`
    const file = `${place}/nginx.conf`
    await Bun.write(file, (await Bun.file(file).text()).replace(of, `${of} down`))
    process.kill(Number(await Bun.file(`${place}/pid`).text()), 'SIGHUP')
  }
  return { url: `http://127.0.0.1:${port}`, duringDrain: () => removeOnceUnready(members[0], remove) }
}

/** With the guide's backend for two servers. */
const haproxy: Front = async ([first, second], closing) => {
  const backend = blockWith('haproxy', 'haproxy', 'server two')
    .text.replace('127.0.0.1:3000', `127.0.0.1:${first.port}`)
    .replace('127.0.0.1:3001', `127.0.0.1:${second.port}`)
  const { port } = await startHaproxy(
    ({ port: own }) => `
defaults
  mode http
  timeout connect 1s
  timeout client 75s
  timeout server 100s
  retries 20
frontend in
  bind 127.0.0.1:${own}
  default_backend tollgate
${backend}`,
    closing,
  )
  return { url: `http://127.0.0.1:${port}` }
}

/** The one that is tried with one HTTP thread by day; the others with three. */
const BY_DAY = 'a TCP balancer, connections kept'

const fronts: [name: string, front: Front, keepsAlive: boolean, isInstalled: boolean][] = [
  [BY_DAY, layer4, true, true],
  ['a TCP balancer, a connection for each call', layer4, false, true],
  ['nginx', nginx, false, NGINX !== null],
  ['HAProxy', haproxy, true, HAPROXY !== null],
]

describe.if(TEST_DATABASE_URL !== null).each([1, 3])('with %d HTTP threads', (httpThreads) => {
  const closing = new AsyncDisposableStack()
  let members: [Member, Member]
  beforeAll(async () => {
    const database = closing.use(await openTestDatabase())
    members = [await Member.start(database, httpThreads), await Member.start(database, httpThreads)]
    for (const member of members)
      closing.defer(async () => {
        await member.server.end('SIGKILL')
      })
  })
  afterAll(() => closing.disposeAsync())

  for (const [name, front, keepsAlive, isInstalled] of fronts)
    test.skipIf(!isInstalled || (!IS_NIGHTLY && (httpThreads === 1) !== (name === BY_DAY)))(
      `a server stops behind ${name}, and no call fails`,
      async () => {
        await using infront = new AsyncDisposableStack()
        const { url, duringDrain } = await front(members, infront)
        const calling = load(url, { keepsAlive })
        await answeredBy(calling, 50)
        const [first] = members
        const [code] = await Promise.all([first.server.end('SIGTERM'), duringDrain?.()])
        expect(code).toBe(0)
        await answeredBy(calling, 50)
        expect(await calling.stop()).toEqual({})
        await first.restart()
      },
    )
})

test('readiness is 200, then 503 while the server drains, and every answer is the last of its connection', async () => {
  await using database = await openTestDatabase()
  await using server = await spawnServer({
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_DRAIN_MS: '60000',
  })
  expect((await server.get('readiness')).body).toEqual({ state: 'ready' })
  const before = await server.get('liveness')
  expect(before.body.state).toBe('ready')
  server.process.kill('SIGTERM')
  while ((await server.get('readiness')).status === 200) await Bun.sleep(10)
  const unready = await server.get('readiness')
  expect([unready.status, unready.body.error.code]).toEqual([503, 'NOT_READY'])
  const { status, body, headers } = await server.get('liveness')
  expect([status, body.state, headers.get('connection')]).toEqual([200, 'draining', 'close'])
  await Bun.sleep(2000) // further signals within two seconds are repetitions of the first
  expect(await server.end('SIGTERM')).toBe(0)
})
