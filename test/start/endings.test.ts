import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { openSpills } from '../../src/data-dir/spill.ts'
import { Columns, expectHealthy } from '../support/columns.ts'
import { copyEmbedded, openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { MAY_MOUNT, mountReal } from '../support/disk.ts'
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

/**
 * A file system on a file. Only what was written back is copied, which is the state that a machine would find. A disk that
 * reports writes too early, and a Postgres of the operator's own, are not tested.
 */
describe.if(MAY_MOUNT && TEST_DATABASE_URL === null)('when the power fails', () => {
  test('answered calls are on the disk: keys, credits, secrets, and flushed counts', async () => {
    await using disk = await mountReal({ mebibytes: 400 })
    const folder = `${disk.path}/data`
    await copyEmbedded(folder)
    Bun.spawnSync(['sync', '--file-system', disk.path])
    const env = envOf({ dataDir: folder, databaseUrl: null })
    await using server = await spawnServer({ ...env, TOLLGATE_ROOT_KEY: '' })
    const secrets = ['root-key', 'vault-key', 'node-0.id'].map((name) =>
      readFileSync(`${folder}/${name}`, 'utf8'),
    )
    await server.end('SIGTERM')
    await using second = await spawnServer(env)
    const columns = await Columns.open(second, { stock: 60 })
    const loading = columns.load({ clients: 8 })
    const flushedAt = await columns.untilFlushed(second)
    second.process.kill('SIGSTOP')
    await using found = await disk.afterPowerLoss()
    await second.end('SIGKILL')
    await loading

    const dataDir = `${found.path}/data`
    const kept = ['root-key', 'vault-key', 'node-0.id'].map((name) =>
      readFileSync(`${dataDir}/${name}`, 'utf8'),
    )
    expect(kept).toEqual(secrets)
    await using next = await spawnServer({ ...env, TOLLGATE_DATA_DIR: dataDir })
    columns.calls = next
    await columns.expectCountedBefore(flushedAt)
    expectHealthy(await columns.askAll())
    expect(await next.end('SIGTERM')).toBe(0)
  })

  /** A file's name is stored in its folder: a synced file in an unsynced folder can be lost. */
  for (const way of ['write', 'writeAsync'] as const)
    test(`data that could not be sent to Postgres is on the disk once it is written (${way})`, async () => {
      await using disk = await mountReal({ mebibytes: 32 })
      await openSpills(disk.path)[way]('usage', { count: 1 })
      await using found = await disk.afterPowerLoss()
      expect([...openSpills(found.path).read('usage')].map(({ value }) => value)).toEqual([{ count: 1 }])
    })
})
