import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { RedisAddress } from '../../src/lib/fleet-url.ts'
import { freePort, takesConnections } from './nginx.ts'
import { redisAt, startRedis, type TestRedis } from './redis.ts'

/** A Redis Cluster for one test. */
export type TestRedisCluster = AsyncDisposable & {
  address: RedisAddress
  masters: TestRedis[]
  /** As many, each of the master with the same number, or none. */
  replicas: TestRedis[]
}

/**
 * @param options.nodeTimeoutMs After that a master that does not answer is replaced.
 * @param options.flags Of all nodes. @param options.hasTls They talk TLS with each other too.
 */
export async function startRedisCluster(options: {
  masters: number
  hasReplicas: boolean
  nodeTimeoutMs: number
  flags?: string[]
  hasTls?: boolean
}): Promise<TestRedisCluster> {
  const { flags = [], hasTls = false } = options
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-redis-cluster-'))
  const count = options.masters * (options.hasReplicas ? 2 : 1)
  const ports = new Set<number>()
  while (ports.size < count) ports.add(await freeNodePort())
  const nodes = await Promise.all(
    [...ports].map((port, i) =>
      startRedis({
        port,
        flags: [
          ...['--cluster-enabled', 'yes', '--cluster-config-file', join(folder, `nodes-${i}.conf`)],
          ...['--cluster-node-timeout', String(options.nodeTimeoutMs), '--repl-diskless-sync-delay', '0'],
          ...['--cluster-require-full-coverage', 'no', '--cluster-allow-replica-migration', 'no'],
          ...(hasTls ? ['--tls-cluster', 'yes', '--tls-replication', 'yes'] : []),
          ...flags,
        ],
        address: { hasTls },
      }),
    ),
  )
  const masters = nodes.slice(0, options.masters)
  const replicas = nodes.slice(options.masters)
  const slotsOf = (i: number) => Math.floor((i * 16_384) / options.masters)
  const [first] = masters
  for (const [i, node] of nodes.entries()) {
    await node.ask('cluster', 'set-config-epoch', i + 1)
    if (i < options.masters) await node.ask('cluster', 'addslotsrange', slotsOf(i), slotsOf(i + 1) - 1)
    if (i > 0) await first?.ask('cluster', 'meet', '127.0.0.1', node.port)
  }
  const until = async (node: TestRedis, is: (info: string) => boolean) => {
    while (!is(String(await node.ask('cluster', 'info')))) await Bun.sleep(10)
  }
  const isWhole = (info: string) =>
    info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${count}`)
  for (const node of nodes) await until(node, isWhole)
  for (const [i, replica] of replicas.entries()) {
    await replica.ask('cluster', 'replicate', String(await masters[i]?.ask('cluster', 'myid')))
    while (!String(await replica.ask('info', 'replication')).includes('master_link_status:up'))
      await Bun.sleep(10)
  }
  return {
    address: {
      ...redisAt(0),
      hasTls,
      mode: 'cluster',
      hosts: nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    },
    masters,
    replicas,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()))
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Nodes talk to each other on a port that is 10 000 higher. Above 32 768 any connection may have it. */
async function freeNodePort(): Promise<number> {
  for (;;) {
    const port = await freePort()
    if (port + 10_000 < 32_768 && !(await takesConnections(port + 10_000))) return port
  }
}
