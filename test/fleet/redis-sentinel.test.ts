import { expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Answered, Entry } from '../../src/fleet/engine.ts'
import { RedisEngine } from '../../src/fleet/redis.ts'
import { freePort } from '../support/nginx.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { REDIS_SERVER, redisAt, startRedis } from '../support/redis.ts'
import { entryOf, exchangeOf, newCell } from './engine-contract.ts'

setDefaultTimeout(120_000) // a failover takes seconds

/** In the night, as each waits for a failover. */
const it = test.skipIf(REDIS_SERVER === null || !IS_NIGHTLY)

it.each(['killed', 'frozen'] as const)(
  'behind a Sentinel, a master that is %s is replaced, and what was given counts',
  async (end) => {
    await using master = await startRedis({ flags: ['--repl-diskless-sync-delay', '0'] })
    await using replica = await startRedis({ flags: ['--replicaof', '127.0.0.1', String(master.port)] })
    const isLinked = async () =>
      String(await replica.ask('info', 'replication')).includes('master_link_status:up')
    while (!(await isLinked())) await Bun.sleep(10)
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-sentinel-'))
    const port = await freePort()
    const settings = [
      `port ${port}`,
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor main 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds main 500',
      'sentinel failover-timeout main 3000',
    ]
    writeFileSync(join(folder, 'sentinel.conf'), `${settings.join('\n')}\n`)
    const command = [REDIS_SERVER ?? '', join(folder, 'sentinel.conf'), '--sentinel']
    const sentinel = Bun.spawn(command, { stdout: 'ignore', stderr: 'ignore' })
    const engine = await RedisEngine.open(
      { ...redisAt(0), mode: 'sentinel', hosts: [{ host: '127.0.0.1', port }], masterName: 'main' },
      { serverId: 1, timeoutMs: 300, learnMs: 900, replicas: 0 },
    )
    try {
      const cell = newCell()
      await learned(engine, [])
      expect((await learned(engine, [entryOf(cell, { asked: 40 })])).answers).toMatchObject([{ given: 40 }])
      await Bun.sleep(2_500) // a Sentinel asks a master for its replicas when it starts, then every ten seconds
      if (end === 'killed') await master.kill()
      else master.freeze()
      const held = await retried(engine, [entryOf(cell, { given: 40, asked: 1 })])
      expect(held).toMatchObject({ isLearning: true, answers: [{ given: 40, gift: 0, sum: 40 }] })
      expect((await learned(engine, [entryOf(cell, { given: 40, asked: 70 })])).answers).toMatchObject([
        { given: 100, gift: 60, sum: 100 },
      ])
    } finally {
      await engine.close()
      sentinel.kill()
      await sentinel.exited
      rmSync(folder, { recursive: true })
    }
  },
)

/** Says it until it is answered. */
async function retried(engine: RedisEngine, entries: Entry[]): Promise<Answered> {
  for (;;) {
    const result = await engine.exchange(exchangeOf(entries))
    if (result.kind === 'answered') return result
    await Bun.sleep(10)
  }
}

/** Says it until it is answered by one that does not learn. */
async function learned(engine: RedisEngine, entries: Entry[]): Promise<Answered> {
  for (;;) {
    const result = await retried(engine, entries)
    if (!result.isLearning) return result
    await Bun.sleep(10)
  }
}
