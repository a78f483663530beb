import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

if (POSTGRES_BIN === null) console.warn('no Postgres is installed: one that takes no writes is not tested')

/** By day one way to become read-only is enough. */
const atNight = test.if(IS_NIGHTLY)

describe.if(POSTGRES_BIN !== null)('a read-only database', () => {
  type World = AsyncDisposable & {
    cluster: Cluster
    server: ServerProcess
    post: Post
    apiId: string
    /** A cached key. */
    warm: string
    cold: string
    condition: () => Promise<unknown>
  }
  /** A server on a cluster of its own, with two HTTP threads, a cached and a cold key. */
  async function openWorld(urlOf: (cluster: Cluster) => string | Promise<string>): Promise<World> {
    await using opening = new AsyncDisposableStack()
    const cluster = opening.use(await startCluster())
    const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-read-only-'))
    opening.defer(() => rmSync(dataDir, { recursive: true, force: true }))
    const server = opening.use(
      await spawnServer({
        DATABASE_URL: await urlOf(cluster),
        TOLLGATE_DATA_DIR: dataDir,
        TOLLGATE_HTTP_THREADS: '1',
        TOLLGATE_FLUSH_MS: '200',
        TOLLGATE_DB_TIMEOUT_MS: '4000',
      }),
    )
    const post = (method: string, body: unknown) => server.post(method, body, OPERATOR_KEY)
    const { apiId } = (await post('apis.createApi', { name: 'read only' })).body
    const makeKey = async (fields: object = {}) =>
      (await post('keys.createKey', { apiId, ...fields })).body.key
    const [warm, cold] = [await makeKey(), await makeKey()]
    await post('keys.verifyKey', { key: warm })
    const condition = async () => (await server.get('liveness')).body.services.database
    const opened = opening.move()
    return {
      ...{ cluster, server, post, apiId, warm, cold, condition },
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    }
  }

  /** Writes without pause until `isOver`. @returns the statuses. */
  async function writing({ post, apiId }: World, isOver: () => Promise<boolean>): Promise<number[]> {
    const statuses: number[] = []
    while (!(await isOver())) {
      const answers = await Promise.all(Array.from({ length: 8 }, () => post('keys.createKey', { apiId })))
      statuses.push(...answers.map(({ status }) => status))
    }
    return statuses
  }

  async function refusesWrites(world: World): Promise<void> {
    const { post, server, apiId, warm, cold, condition } = world
    for (const status of await writing(world, async () => (await condition()) === 'read-only'))
      expect([200, 500]).toContain(status)
    expect((await post('keys.createKey', { apiId })).status).toBe(500)
    for (const key of [warm, cold])
      expect(await post('keys.verifyKey', { key })).toMatchObject({ status: 200, body: { valid: true } })
    const limit = { namespace: 'a', identifier: 'b', limit: 5, duration: 60_000 }
    expect((await server.get('apis.getApi', { apiId }, OPERATOR_KEY)).status).toBe(200)
    // Its namespace would have to be created.
    expect((await post('ratelimits.limit', limit)).status).toBe(500)
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    expect(metrics).toContain('tollgate_database_up 1')
    expect(metrics).toContain('tollgate_database_writable 0')
  }

  /** Eight at a time, so that every connection is used. */
  async function takesWritesAgain(world: World, since: number): Promise<void> {
    const { post, apiId, condition } = world
    let refusedAt = since
    for (let rounds = 0; rounds < 10; ) {
      const answers = await Promise.all(Array.from({ length: 8 }, () => post('keys.createKey', { apiId })))
      const isWell = answers.every(({ status }) => status === 200)
      rounds = isWell ? rounds + 1 : 0
      if (!isWell) refusedAt = performance.now()
    }
    expect(refusedAt - since).toBeLessThan(5000)
    while ((await condition()) !== 'ok') await Bun.sleep(50)
    expect(performance.now() - since).toBeLessThan(10_000)
  }

  test('set while it runs: liveness, metrics and one log line report it, writes return in five seconds, no count is lost', async () => {
    await using world = await openWorld(({ url }) => url)
    const { cluster, server, post, warm } = world
    await post('keys.verifyKey', { key: warm })
    await cluster.query('alter database tollgate set default_transaction_read_only = on', 'postgres')
    // Existing connections may still write; a failover ends them.
    await cluster.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where usename = 'tollgate'`,
      'postgres',
    )
    await refusesWrites(world)
    await cluster.query('alter database tollgate reset default_transaction_read_only', 'postgres')
    await takesWritesAgain(world, performance.now())
    const lines = (event: string) => server.output().split(`"event":"${event}"`).length - 1
    expect(lines('database_read_only')).toBeGreaterThan(0)
    expect(lines('database_writable')).toBe(lines('database_read_only'))
    const [usage] = (
      await server.get('analytics.getVerifications', { apiId: world.apiId }, await analyst(post))
    ).body
    expect(usage.total).toBe(4)
    expect(await server.end('SIGTERM')).toBe(0)
  })

  atNight('set for the whole server is detected, also on existing connections', async () => {
    await using world = await openWorld(({ url }) => url)
    const { cluster } = world
    const set = async (value: string) => {
      await cluster.query(`alter system set default_transaction_read_only = ${value}`, 'postgres')
      await cluster.query('select pg_reload_conf()', 'postgres')
    }
    await set('on')
    await refusesWrites(world)
    await set('off')
    await takesWritesAgain(world, performance.now())
  })

  atNight(
    'as a standby that takes over: reads continue there, and writes five seconds after its promotion',
    async () => {
      await using closing = new AsyncDisposableStack()
      let standby: Awaited<ReturnType<Cluster['standby']>> | null = null
      const world = closing.use(
        await openWorld(async (cluster) => {
          standby = closing.use(await cluster.standby())
          return `postgres://tollgate@127.0.0.1:${cluster.port},127.0.0.1:${standby.port}/tollgate`
        }),
      )
      const second = standby as Awaited<ReturnType<Cluster['standby']>> | null // set by openWorld
      const { cluster } = world
      const behind = async () => {
        const rows = await cluster.query(
          'select replay_lsn >= pg_current_wal_lsn() as is from pg_stat_replication',
          'postgres',
        )
        return rows[0]?.is !== true
      }
      while (await behind()) await Bun.sleep(20)
      await cluster.stop('immediate')
      await refusesWrites(world)
      await second?.promote()
      await takesWritesAgain(world, performance.now())
    },
  )
})

async function analyst(post: Post): Promise<string> {
  return (await post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] })).body.rootKey
}
type Post = (method: string, body: unknown) => ReturnType<ServerProcess['post']>
