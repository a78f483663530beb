import { expect, setDefaultTimeout, test } from 'bun:test'
import { Agent, request } from 'node:http'
import { openTestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Bug: a SIGTERM reset the connections of ten callers that reused them. */
test.each(['1', '3'])(
  'callers that reuse connections see no reset at a stop of %s HTTP threads',
  async (threads) => {
    await using database = await openTestDatabase()
    const env: Record<string, string> = {
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_HTTP_THREADS: threads,
    }
    if (database.databaseUrl !== null) env.DATABASE_URL = database.databaseUrl
    await using server = await spawnServer(env)
    const agent = new Agent({ keepAlive: true, maxSockets: 10 })
    /** @returns the status, or the code of the error. */
    const verify = () =>
      new Promise<string>((resolve) => {
        const headers = { 'content-type': 'application/json' }
        const sent = request(
          `${server.url}/v1/keys.verifyKey`,
          { agent, method: 'POST', headers },
          (answer) => {
            answer.resume()
            answer.on('end', () => resolve(String(answer.statusCode)))
            answer.on('error', (cause: NodeJS.ErrnoException) => resolve(`in the answer: ${cause.code}`))
          },
        )
        sent.on('error', (cause: NodeJS.ErrnoException) => resolve(cause.code ?? cause.message))
        sent.end('{"key":"unknown"}')
      })
    let answered = 0
    const callers = Array.from({ length: 10 }, async () => {
      for (;;) {
        const outcome = await verify()
        if (outcome !== '200') return outcome
        answered++
      }
    })
    while (answered < 100) await Bun.sleep(10)
    expect(await server.end('SIGTERM')).toBe(0)
    // Told that their connections end, they open new ones, but the server no longer listens.
    expect(await Promise.all(callers)).toEqual(Array(10).fill('ECONNREFUSED'))
  },
)
