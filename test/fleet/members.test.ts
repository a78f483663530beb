import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { examineFleet } from '../../src/fleet/examine-fleet.ts'
import { joinFleet, Members } from '../../src/fleet/members.ts'
import type { FleetOptions } from '../../src/fleet/open-engine.ts'
import { beatFleet, leaveFleet, nextServerId } from '../../src/fleet/store.ts'
import { POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { openTestSql, TEST_DATABASE_URL, type TestSql } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { REDIS_SERVER, redisAt, startRedis, type TestRedis } from '../support/redis.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const POSTGRES: FleetOptions = { address: { kind: 'postgres' }, timeoutMs: 1_000, replicas: 0 }

describe.skipIf(TEST_DATABASE_URL === null)('servers of one database', () => {
  let database: TestSql
  let redis: TestRedis | null = null
  beforeAll(async () => {
    database = await openTestSql()
    if (REDIS_SERVER !== null) redis = await startRedis()
  })
  afterAll(async () => {
    await redis?.[Symbol.asyncDispose]()
    await database?.[Symbol.asyncDispose]()
  })
  beforeEach(async () => {
    await database.sql`truncate fleet, fleet_members`
    await redis?.ask('flushall')
  })

  const join = (fleet: FleetOptions, processId: string) =>
    joinFleet(fleet, { database: database.address, processId })
  const onRedis = (number = 0): FleetOptions => ({
    ...POSTGRES,
    address: { ...(redis?.address ?? redisAt(1)), database: number },
  })
  const self = (processId: string) => ({ processId, host: 'here', engine: 'postgres' })
  const age = (processId: string, ms: number) =>
    database.sql`update fleet_members set seen_at = seen_at - ${ms} where process_id = ${processId}`

  test('get the same engine id, and count each other', async () => {
    const one = await join(POSTGRES, 'one')
    const two = await join(POSTGRES, 'two')
    expect([one.servers, two.servers]).toEqual([1, 2])
    expect(two.fleetId).toBe(one.fleetId)
    expect(Math.abs(two.nowMs - Date.now())).toBeLessThan(10_000)
    expect(await nextServerId(database.sql)).toBeLessThan(await nextServerId(database.sql))
  })

  test('a killed server counts until it has not been seen for 20 s, and its row goes after a minute', async () => {
    await beatFleet(database.sql, self('killed'))
    await age('killed', 15_000)
    expect(await beatFleet(database.sql, self('one'))).toBe(2)
    await age('killed', 6_000)
    expect(await beatFleet(database.sql, self('one'))).toBe(1)
    await age('killed', 60_000)
    await beatFleet(database.sql, self('one'))
    expect([...(await database.sql`select process_id from fleet_members`)]).toEqual([{ process_id: 'one' }])
    await leaveFleet(database.sql, 'one')
    expect(await beatFleet(database.sql, self('two'))).toBe(1)
  })

  test('after an outage of the database the number does not fall before others could be seen again', async () => {
    let nowMs = 0
    const counts: number[] = []
    const members = new Members(database.sql, {
      fleet: POSTGRES,
      processId: 'one',
      joined: { fleetId: '', servers: 3, nowMs: 0 },
      onCount: (servers) => counts.push(servers),
      timers: { now: () => nowMs, after: () => () => {}, every: () => () => {}, soon: () => {} },
    })
    nowMs = 60_000 // no beat in between: the database was away, and all other rows are old
    await members.beat()
    expect(members.servers).toBe(3)
    nowMs = 79_000
    await members.beat()
    expect(members.servers).toBe(3)
    for (const other of ['two', 'three', 'four']) await beatFleet(database.sql, self(other))
    await members.beat()
    expect(members.servers).toBe(4)
    for (const other of ['two', 'three', 'four']) await leaveFleet(database.sql, other)
    nowMs = 85_000
    await members.beat()
    expect(counts).toEqual([4, 1])
  })

  test.skipIf(REDIS_SERVER === null)(
    'refuse another kind of engine while one runs, not afterwards',
    async () => {
      await join(POSTGRES, 'one')
      await expect(join(onRedis(), 'two')).rejects.toThrow(
        'servers on this database share their limits on postgres (',
      )
      expect(await redis?.ask('dbsize')).toBe(0)
      expect(await examineFleet(onRedis(), database.address)).toMatchObject([{ status: 'fail' }])
      await leaveFleet(database.sql, 'one')
      expect((await join(onRedis(), 'two')).servers).toBe(1)
    },
  )

  test.skipIf(REDIS_SERVER === null)('refuse a Redis that the others do not use', async () => {
    await join(onRedis(), 'one')
    const beating = setInterval(() => void beatFleet(database.sql, self('one')), 200)
    try {
      await expect(join(onRedis(2), 'two')).rejects.toThrow('two engines would let through twice the limit')
      expect(await examineFleet(onRedis(2), database.address)).toMatchObject([{ status: 'fail' }])
      expect(await examineFleet(onRedis(), database.address)).toMatchObject([{ status: 'ok' }])
      expect(String(await redis?.ask('info', 'keyspace'))).not.toContain('db2')
    } finally {
      clearInterval(beating)
    }
  })

  test.skipIf(REDIS_SERVER === null)(
    'take an emptied Redis again once killed servers no longer count',
    async () => {
      const { fleetId } = await join(onRedis(), 'killed')
      await redis?.ask('flushall')
      await age('killed', 19_000)
      expect((await join(onRedis(), 'next')).fleetId).toBe(fleetId)
      expect(await redis?.ask('hget', 't:{ms3}', 'fleet')).toBe(fleetId)
    },
  )

  test.skipIf(REDIS_SERVER === null)('doctor tells what should be changed, and changes nothing', async () => {
    await redis?.ask('config', 'set', 'maxmemory', '100mb')
    await redis?.ask('config', 'set', 'maxmemory-policy', 'allkeys-lru')
    const findings = await examineFleet(onRedis(), database.address)
    await redis?.ask('config', 'set', 'maxmemory', '0')
    expect(findings.map(({ status }) => status)).toEqual(['ok', 'warn'])
    expect(findings[1]?.text).toContain('maxmemory-policy')
    expect(await redis?.ask('dbsize')).toBe(0)
    expect([...(await database.sql`select 1 from fleet`)]).toEqual([])
    const away = { ...POSTGRES, address: redisAt(1) }
    expect(await examineFleet(away, database.address)).toMatchObject([
      { status: 'fail', text: expect.stringContaining('redis://127.0.0.1:1 cannot be asked: ') },
    ])
  })
})

/** Redis counts by that number: two servers with one would take each other's counts for their own. */
test.skipIf(!IS_NIGHTLY || POSTGRES_BIN === null)(
  'a crash of Postgres hands out no number of a server again, whatever synchronous_commit says',
  async () => {
    await using cluster = await startCluster({
      settings: { synchronous_commit: 'off', wal_writer_delay: '10s' },
    })
    const next = async () => {
      const sql = connect({ kind: 'url', url: cluster.url }, { connectionsMax: 1 })
      const id = await nextServerId(sql)
      await sql.end()
      return id
    }
    await cluster.query('create sequence fleet_server_ids; grant usage on fleet_server_ids to tollgate')
    await cluster.query('checkpoint')
    const id = await next()
    await cluster.kill()
    await cluster.start()
    expect(await next()).toBeGreaterThan(id)
  },
)
