import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { PATIENT } from '../docs/blocks.ts'
import { openTestDatabase } from '../support/database.ts'
import { freePort } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { type Configuration, IN_FRONT, WITH_A_SECOND } from './configurations.ts'

/** Tollgate restarts behind a proxy configured as in the guides, while callers continue. */
setDefaultTimeout(2 * SLOW_MS)

const closing = new AsyncDisposableStack()
afterAll(() => closing.disposeAsync())

const LIMIT = 1_000_000
const CALLERS = 8

/** A server that can be restarted at the same address. */
async function restartable(): Promise<{ host: string; current: ServerProcess; restart(): Promise<void> }> {
  const database = closing.use(await openTestDatabase())
  const port = await freePort()
  const env: Record<string, string> = {
    PORT: String(port),
    TOLLGATE_DATA_DIR: database.dataDir,
    ...PATIENT,
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '1',
    TOLLGATE_TRUSTED_PROXIES: '127.0.0.1',
    ...(database.databaseUrl === null ? {} : { DATABASE_URL: database.databaseUrl }),
  }
  const server = {
    host: `127.0.0.1:${port}`,
    current: await spawnServer(env),
    restart: async () => {
      expect(await server.current.end('SIGTERM')).toBe(0)
      server.current = await spawnServer(env)
    },
  }
  closing.defer(async () => {
    await server.current.end('SIGKILL')
  })
  return server
}

const take = (url: string) =>
  fetch(`${url}/v1/ratelimits.limit`, {
    method: 'POST',
    headers: { authorization: `Bearer ${OPERATOR_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      namespace: 'restarts',
      identifier: 'all',
      limit: LIMIT,
      duration: 86_400_000 * 365,
    }),
    tls: { rejectUnauthorized: false },
  })

type Calling = {
  answered: () => number
  stop: () => Promise<{ answered: number; refused: number; broken: number }>
}

/** Calls without pause until stopped, and counts answers with 200, with 502, and broken connections. */
function callers(url: string): Calling {
  const counts = { answered: 0, refused: 0, broken: 0 }
  let isStopping = false
  const one = async () => {
    while (!isStopping) {
      const status = await statusOf(url)
      if (status === 200) counts.answered++
      else {
        if (status === 0) counts.broken++
        else counts.refused++
        expect([0, 502]).toContain(status)
        await Bun.sleep(20)
      }
    }
  }
  const all = Promise.all(Array.from({ length: CALLERS }, one))
  return {
    answered: () => counts.answered,
    stop: async () => {
      isStopping = true
      await all
      return counts
    },
  }
}

/** 0 = there was no answer. */
async function statusOf(url: string): Promise<number> {
  try {
    const answer = await take(url)
    await answer.arrayBuffer()
    return answer.status
  } catch {
    return 0
  }
}

/** Waits until that many more calls have been answered. */
async function goOn({ answered }: Calling, more: number): Promise<void> {
  const until = answered() + more
  for (let attempt = 0; answered() < until && attempt < 2000; attempt++) await Bun.sleep(20)
  expect(answered()).toBeGreaterThanOrEqual(until)
}

/** The server's count, including this read. */
const usedBy = async (server: { host: string }): Promise<number> => {
  const answer = await take(`http://${server.host}`)
  return LIMIT - ((await answer.json()) as { remaining: number }).remaining // as described
}

const configurationOf = (name: string): Configuration => {
  const found = IN_FRONT.find((each) => each.name === name)
  if (found === undefined) throw new Error(`no ${name}`)
  return found
}

/** One restart, with calls before, during and after it. */
async function restartUnder(url: string, server: { restart(): Promise<void> }) {
  const calling = callers(url)
  await goOn(calling, 200)
  await server.restart()
  await goOn(calling, 200)
  return calling.stop()
}

/**
 * A proxy may open a connection at the moment when Tollgate stops listening; the kernel then resets it. Each caller can
 * meet that once.
 */
const BROKEN_MAX = CALLERS

const HAPROXY = configurationOf('HAProxy')
test.skipIf(!HAPROXY.isInstalled)(
  'HAProxy holds calls while Tollgate restarts, and each answered call was counted once',
  async () => {
    const server = await restartable()
    const url = await HAPROXY.start({ tollgate: server.host, application: '', apiId: '' }, closing)
    const { answered, refused, broken } = await restartUnder(url, server)
    expect(refused + broken).toBeWithin(0, BROKEN_MAX + 1)
    expect(await usedBy(server)).toBe(answered + 1)
  },
)

for (const name of IS_NIGHTLY ? ['nginx', 'Caddy'] : ['nginx']) {
  const configuration = configurationOf(name)
  test.skipIf(!configuration.isInstalled)(
    `${name} answers 502 while Tollgate is away, and those calls were not counted`,
    async () => {
      const server = await restartable()
      const url = await configuration.start({ tollgate: server.host, application: '', apiId: '' }, closing)
      const { answered, refused, broken } = await restartUnder(url, server)
      expect({ isRefused: refused > 0, broken }).toEqual({ isRefused: true, broken: 0 })
      expect(await usedBy(server)).toBe(answered + 1)
    },
  )
}

test.skipIf(!WITH_A_SECOND.isInstalled)(
  'nginx with a second Tollgate has no gap, and each answered call was counted once',
  async () => {
    const [first, second] = await Promise.all([restartable(), restartable()])
    const places = { tollgate: first.host, second: second.host, application: '', apiId: '' }
    const url = await WITH_A_SECOND.start(places, closing)
    const { answered, refused, broken } = await restartUnder(url, first)
    expect(refused).toBeWithin(0, BROKEN_MAX + 1)
    expect(broken).toBe(0)
    expect((await usedBy(first)) + (await usedBy(second))).toBe(answered + 2)
  },
)
