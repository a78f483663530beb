import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills } from '../../src/data-dir/spill.ts'
import { Columns, expectHealthy } from '../support/columns.ts'
import { copyEmbedded } from '../support/database.ts'
import { MAY_MOUNT, mountReal } from '../support/disk.ts'
import { spawnServer } from '../support/process.ts'
import { spawnOnTerminal } from '../support/terminal.ts'
import { SLOW_MS } from '../support/timeout.ts'

/** What an end of the process does where the database is in it, whichever the suite runs on. */
setDefaultTimeout(2 * SLOW_MS)

const FLUSH_MS = 200

const envOf = (dataDir: string): Record<string, string> => ({
  TOLLGATE_DATA_DIR: dataDir,
  DATABASE_URL: '',
  TOLLGATE_FLUSH_MS: String(FLUSH_MS),
  TOLLGATE_DB_TIMEOUT_MS: '10000', // writes are synced to a disk that other tests use too
})

test('a signal while the embedded database is created ends it with 0, and the next start creates it', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-embedded-ends-'))
  try {
    const env = { TOLLGATE_DATA_DIR: dataDir, DATABASE_URL: '' }
    await using started = spawnOnTerminal([process.execPath, 'src/main.ts', 'serve'], env)
    await started.shown(/database_creating/)
    started.interrupt()
    expect(await started.ended(), started.output()).toBe(0)
    expect(started.output()).toMatch(/info\s+stopped /)
    expect(started.output()).not.toMatch(/^Tollgate listens on /m)
    await using server = await spawnServer(env)
    expect((await server.get('liveness')).status).toBe(200)
    expect(server.output()).toContain('"event":"database_created"')
  } finally {
    rmSync(dataDir, { recursive: true, force: true })
  }
})

/**
 * A file system on a file. Only what was written back is copied, which is the state that a machine would find. A disk that
 * reports writes too early, and a Postgres of the operator's own, are not tested.
 */
describe.if(MAY_MOUNT)('when the power fails', () => {
  test('answered calls are on the disk: keys, credits, secrets, and flushed counts', async () => {
    await using disk = await mountReal({ mebibytes: 400 })
    const folder = `${disk.path}/data`
    await copyEmbedded(folder)
    Bun.spawnSync(['sync', '--file-system', disk.path])
    await using server = await spawnServer({ ...envOf(folder), TOLLGATE_ROOT_KEY: '' })
    const secrets = ['root-key', 'vault-key', 'node-0.id'].map((name) =>
      readFileSync(`${folder}/${name}`, 'utf8'),
    )
    await server.end('SIGTERM')
    await using second = await spawnServer(envOf(folder))
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
    await using next = await spawnServer(envOf(dataDir))
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
