import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { RedisAddress } from '../../src/lib/fleet-url.ts'
import { freePort } from './nginx.ts'
import { REDIS_SERVER, redisAt, startRedis, type TestRedis } from './redis.ts'

/** A Redis, a replica of it, and Sentinels that replace the one by the other. */
export type TestSentinels = AsyncDisposable & {
  address: RedisAddress
  ports: number[]
  /** The first is the master at the beginning. */
  nodes: [TestRedis, TestRedis]
}

/**
 * @param options.flags Of both servers.
 * @param options.sentinel Lines for each Sentinel. @param options.tls Its port is one of TLS.
 * @param options.address What a client needs besides.
 */
export async function startSentinels(
  options: {
    sentinels?: number
    downAfterMs?: number
    flags?: string[]
    sentinel?: string[]
    hasTls?: boolean
    address?: Partial<RedisAddress>
  } = {},
): Promise<TestSentinels> {
  const {
    sentinels = 1,
    downAfterMs = 500,
    flags = [],
    sentinel = [],
    hasTls = false,
    address = {},
  } = options
  const common = { flags: ['--repl-diskless-sync-delay', '0', ...flags], address: { ...address, hasTls } }
  const master = await startRedis(common)
  const replica = await startRedis({
    ...common,
    flags: [...common.flags, '--replicaof', '127.0.0.1', String(master.port)],
  })
  while (!String(await replica.ask('info', 'replication')).includes('master_link_status:up'))
    await Bun.sleep(10)
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-sentinel-'))
  const ports: number[] = []
  const children: Bun.Subprocess[] = []
  for (let i = 0; i < sentinels; i++) {
    const port = await freePort()
    ports.push(port)
    const settings = [
      ...(hasTls ? ['port 0', `tls-port ${port}`] : [`port ${port}`]),
      'bind 127.0.0.1',
      `dir ${folder}`,
      `sentinel monitor main 127.0.0.1 ${master.port} ${Math.floor(sentinels / 2) + 1}`,
      `sentinel down-after-milliseconds main ${downAfterMs}`,
      'sentinel failover-timeout main 3000',
      ...sentinel,
    ]
    const file = join(folder, `sentinel-${i}.conf`)
    writeFileSync(file, `${settings.join('\n')}\n`)
    const command = [REDIS_SERVER ?? '', file, '--sentinel']
    children.push(Bun.spawn(command, { stdout: 'ignore', stderr: 'ignore' }))
  }
  return {
    address: {
      ...redisAt(0),
      ...address,
      hasTls,
      mode: 'sentinel',
      hosts: ports.map((port) => ({ host: '127.0.0.1', port })),
      masterName: 'main',
    },
    ports,
    nodes: [master, replica],
    [Symbol.asyncDispose]: async () => {
      for (const child of children) child.kill()
      await Promise.all(children.map((child) => child.exited))
      await Promise.all([master, replica].map((node) => node[Symbol.asyncDispose]()))
      rmSync(folder, { recursive: true })
    },
  }
}
