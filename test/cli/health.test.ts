import { afterEach, describe, expect, test } from 'bun:test'
import { runHere } from '../support/command-line.ts'
import { freePort } from '../support/nginx.ts'

type Answer = () => Response | Promise<Response>
const READY: Answer = () => Response.json({ state: 'ready' })
const STARTING: Answer = () =>
  Response.json(
    { error: { code: 'NOT_READY', message: 'the server is starting', requestId: 'req_1' } },
    { status: 503 },
  )
const HANGS: Answer = () => new Promise(() => {})

let server: ReturnType<typeof Bun.serve> | null = null
let asked: { path: string; authorization: string | null }[] = []
/** Gives these answers in turn, the last one again and again. */
function serve(answers: Answer[], port = 0) {
  asked = []
  server = Bun.serve({
    hostname: '127.0.0.1',
    port,
    fetch: (request) => {
      asked.push({ path: new URL(request.url).pathname, authorization: request.headers.get('authorization') })
      return (answers[Math.min(asked.length, answers.length) - 1] ?? READY)()
    },
  })
  return server.url.origin
}
afterEach(async () => {
  await server?.stop(true)
  server = null
})

const health = (url: string, words: string[] = [], env: Record<string, string> = {}) =>
  runHere(['health', ...words], { env: { TOLLGATE_URL: url, ...env } })

test('a server is healthy when it is ready, not as soon as it answers', async () => {
  expect(await health(serve([READY]))).toEqual({ code: 0, out: 'ready\n', err: '' })
  expect(asked.map(({ path }) => path)).toEqual(['/v1/readiness'])
  await server?.stop(true)
  expect(await health(serve([STARTING]))).toMatchObject({
    code: 1,
    out: '',
    err: expect.stringMatching(/^503 NOT_READY: the server is starting \(request req_1\)\n/),
  })
  expect(asked).toHaveLength(1)
})

/** A supervisor's check must not fail because a secret is for the server alone. */
test('it reads and sends no root key', async () => {
  const url = serve([READY])
  const env = { TOLLGATE_ROOT_KEY_FILE: '/nowhere', DATABASE_URL_FILE: '/nowhere' }
  expect(await health(url, [], env)).toEqual({ code: 0, out: 'ready\n', err: '' })
  expect(await health(url, [], { TOLLGATE_ROOT_KEY: 'tollgate_secret_of_the_server' })).toMatchObject({
    code: 0,
  })
  expect(asked.map(({ authorization }) => authorization)).toEqual([null, null])
})

describe('--wait', () => {
  test('goes on until the server is ready', async () => {
    expect(await health(serve([STARTING, STARTING, READY]), ['--wait', '180'])).toEqual({
      code: 0,
      out: 'ready\n',
      err: '',
    })
    expect(asked).toHaveLength(3)
  })

  test('goes on while nothing listens yet', async () => {
    const port = await freePort()
    const waiting = health(`http://127.0.0.1:${port}`, ['--wait', '180'])
    serve([READY], port)
    expect(await waiting).toMatchObject({ code: 0, err: '' })
  })

  test('ends after so many seconds with the last reason, also when the server hangs', async () => {
    const url = serve([STARTING])
    expect(await health(url, ['--wait', '1'])).toEqual({
      code: 1,
      out: '',
      err: 'not ready after 1 second: 503 NOT_READY: the server is starting (request req_1)\nhint: the log of the server says why\n',
    })
    expect(asked.length).toBeGreaterThan(1)
    await server?.stop(true)
    expect(await health(serve([HANGS]), ['--wait', '1', '--json'])).toMatchObject({
      code: 1,
      err: expect.stringMatching(/"not ready after 1 second: .* does not answer: no answer within \d+ ms"/),
    })
  })

  /** A start that failed on a wrong setting would otherwise be waited for until the end. */
  test('with --pid it ends as soon as the process has ended', async () => {
    const gone = Bun.spawn(['true'])
    await gone.exited
    const url = `http://127.0.0.1:${await freePort()}`
    const { code, err } = await health(url, ['--wait', '180', '--pid', String(gone.pid)])
    expect([code, err]).toEqual([
      1,
      `process ${gone.pid} has ended: ${url} (TOLLGATE_URL) does not answer: nothing listens there\nhint: the log of the server says why\n`,
    ])
    const ready = serve([STARTING, READY])
    expect(await health(ready, ['--wait', '180', '--pid', String(process.pid)])).toMatchObject({ code: 0 })
  })

  test.each([
    [['--wait', '3m'], '--wait'],
    [['--wait', '0'], '--wait'],
    [['--pid', '1'], '--pid needs --wait'],
    [['--wait', '1', '--pid', '$MAINPID'], '--pid'],
  ])('%j is a usage error', async (words, message) => {
    expect(await health('http://127.0.0.1:9', words)).toMatchObject({
      code: 2,
      err: expect.stringContaining(message),
    })
  })
})
