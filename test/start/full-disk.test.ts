import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Columns, expectHealthy } from '../support/columns.ts'
import { copyEmbedded, openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { type Disk, MAY_MOUNT, mountSmall } from '../support/disk.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'

setDefaultTimeout(SLOW_MS)

/** Fills the disk. @returns a function that frees it again. */
function fill({ path }: Disk): () => void {
  const filler = join(path, 'filler')
  for (const size of [2 ** 20, 4096])
    try {
      for (;;) writeFileSync(filler, Buffer.alloc(size), { flag: 'a' })
    } catch (cause) {
      expect(cause).toMatchObject({ code: 'ENOSPC' })
    }
  return () => rmSync(filler)
}

describe.if(MAY_MOUNT)('a data directory', () => {
  test('that is write-protected or full ends the start with one line that names it', async () => {
    await using disk = await mountSmall({ mebibytes: 4 })
    await using database = await openTestDatabase()
    const refusal = async (dataDir: string) => {
      const env = { TOLLGATE_DATA_DIR: dataDir, DATABASE_URL: database.databaseUrl ?? '' }
      const message = await spawnServer(env).catch((cause: Error) => cause.message)
      expect(message).toContain('ended with 1')
      expect(message).toContain(dataDir)
      expect(String(message).trim().split('\n')).toHaveLength(1)
    }
    mkdirSync(`${disk.path}/made`)
    const empty = fill(disk)
    await refusal(`${disk.path}/made`)
    await refusal(`${disk.path}/new`)
    empty()
    Bun.spawnSync(['mount', '-o', 'remount,ro', disk.path])
    await refusal(`${disk.path}/made`)
    await refusal(`${disk.path}/new`)
  })

  const once = test.if(TEST_DATABASE_URL === null)

  once('that fills up under an embedded database fails writes until there is room again', async () => {
    await using disk = await mountSmall({ mebibytes: 240 })
    await copyEmbedded(disk.path)
    await using server = await spawnServer({ TOLLGATE_DATA_DIR: disk.path, TOLLGATE_FLUSH_MS: '200' })
    const columns = await Columns.open(server, { stock: 200 })
    const stopTraffic = columns.startTraffic()
    const empty = fill(disk)
    let failed = 0
    const until = performance.now() + 30_000
    while (failed < 10 && performance.now() < until) {
      const { status, ms } = await columns.ask('writes')
      if (status !== 200) {
        expect(status).toBe(500)
        failed++
      }
      expect(ms).toBeLessThan(3000)
      for (const column of ['cold', 'credits'] as const) {
        const { status, code } = await columns.ask(column)
        expect(['200 VALID', '500 INTERNAL_SERVER_ERROR']).toContain(`${status} ${code}`)
        await Bun.sleep(20)
      }
    }
    expect(failed).toBe(10)
    expect((await server.get('liveness')).status).toBe(200)
    empty()
    const emptiedAt = performance.now()
    while ((await columns.ask('writes')).status !== 200) await Bun.sleep(50)
    expect(performance.now() - emptiedAt).toBeLessThan(5000)
    while ((await columns.ask('unknown')).status !== 200) await Bun.sleep(50)
    expectHealthy(await columns.askAll())
    await stopTraffic()
    await columns.expectAllCounted()
    await columns.expectMade()
    expect(await server.end('SIGTERM')).toBe(0)
  })

  const onRealPostgres = test.if(TEST_DATABASE_URL !== null)

  onRealPostgres(
    'that is full when a stop has counts to keep: they are lost, which the log and the exit status say, in time',
    async () => {
      await using database = await openTestDatabase()
      await using disk = await mountSmall({ mebibytes: 4 })
      await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
      await using server = await spawnServer({
        TOLLGATE_DATA_DIR: disk.path,
        DATABASE_URL: wire.address.kind === 'url' ? wire.address.url : '',
      })
      const body = { identifier: 'x', limit: 10, duration: 86_400_000 }
      await server.post('ratelimits.limit', body, OPERATOR_KEY)
      await wire.cut()
      fill(disk)
      expect(await server.post('ratelimits.limit', body, OPERATOR_KEY)).toMatchObject({ status: 200 })
      const stoppingAt = performance.now()
      expect(await server.end('SIGTERM')).toBe(1)
      expect(performance.now() - stoppingAt).toBeLessThan(10_000)
      expect(server.output()).toContain('ENOSPC')
      expect(server.output()).toContain('windows')
    },
  )
})
