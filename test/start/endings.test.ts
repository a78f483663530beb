import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { Columns, expectHealthy } from '../support/columns.ts'
import { openTestDatabase } from '../support/database.ts'
import { spawnServer } from '../support/process.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const FLUSH_MS = 200

describe('under load of every kind', () => {
  test('SIGTERM answers requests in flight and loses nothing', async () => {
    await using database = await openTestDatabase()
    const env = envOf(database)
    await using server = await spawnServer(env)
    const columns = await Columns.open(server, { stock: 60 })
    const loading = columns.load({ clients: 8 })
    await Bun.sleep(500)
    expect(await server.end('SIGTERM')).toBe(0)
    await loading

    await using next = await spawnServer(env)
    columns.calls = next
    await columns.expectAllCounted()
    await columns.expectMade()
    expectHealthy(await columns.askAll())
    expect(await next.end('SIGTERM')).toBe(0)
  })

  test('kill -9 loses unflushed windows and usage, and no key and no credit', async () => {
    await using database = await openTestDatabase()
    const env = envOf(database)
    await using server = await spawnServer(env)
    const columns = await Columns.open(server, { stock: 60 })
    const loading = columns.load({ clients: 8 })
    const flushedAt = await columns.untilFlushed(server)
    await server.end('SIGKILL')
    await loading

    await using next = await spawnServer(env)
    columns.calls = next
    await columns.expectCountedBefore(flushedAt)
    expectHealthy(await columns.askAll())
    expect(await next.end('SIGTERM')).toBe(0)
  })
})

const envOf = (database: { dataDir: string; databaseUrl: string | null }): Record<string, string> => ({
  TOLLGATE_DATA_DIR: database.dataDir,
  DATABASE_URL: database.databaseUrl ?? '',
  TOLLGATE_FLUSH_MS: String(FLUSH_MS),
  TOLLGATE_DB_TIMEOUT_MS: '10000', // writes are synced to a disk that other tests use too
})
