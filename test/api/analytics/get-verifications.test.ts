import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { newId } from '../../../src/lib/ids.ts'
import type { Outcome } from '../../../src/usage/recorder.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { OUTCOMES } from '../../usage/oracle.ts'

setDefaultTimeout(SLOW_MS)

const HOUR = 3_600_000
const DAY = 24 * HOUR
/** Not aligned to any bucket. */
const NOW = Date.UTC(2026, 10, 21, 13, 37)
const THIS_HOUR = NOW - (NOW % HOUR)

let server: TestServer
let workspace: TestWorkspace
let rootKey: string
beforeAll(async () => {
  server = await startTestServer({ clock: () => NOW })
  workspace = await server.workspace()
  rootKey = await workspace.rootKeyWith('api.*.read_api')
})
afterAll(() => server[Symbol.asyncDispose]())

/** Creates an API. Verifications of it can be made at chosen times. */
async function makeApi() {
  const { apiId } = await workspace.post('apis.createApi', { name: 'some api' })
  const { sql, usage } = server.server.deps
  const [api] = await sql<
    { keyspaceId: string }[]
  >`select keyspace_id as "keyspaceId" from apis where id = ${apiId}`
  const record = (
    event: { atMs?: number; keyId?: string; identityId?: string | null; outcome?: Outcome; tags?: string[] },
    times = 1,
  ) => {
    for (let i = 0; i < times; i++)
      usage.recordVerification({
        workspaceId: workspace.workspaceId,
        keyspaceId: api?.keyspaceId ?? '',
        keyId: 'key_1',
        identityId: null,
        outcome: 'VALID',
        tags: null,
        atMs: NOW,
        ...event,
      })
  }
  const ask = async (query: Record<string, unknown> = {}): Promise<Json> => {
    await usage.flush()
    const { status, body } = await server.get('analytics.getVerifications', { apiId, ...query }, rootKey)
    if (status !== 200) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
    return body
  }
  return { apiId: String(apiId), record, ask }
}

async function makeIdentity(): Promise<{ id: string; externalId: string }> {
  const id = newId('id')
  const externalId = `user of ${id}`
  await server.server.deps.sql`
    insert into identities (id, workspace_id, external_id, created_at)
    values (${id}, ${workspace.workspaceId}, ${externalId}, ${NOW})`
  return { id, externalId }
}

const refusal = async (query: Record<string, unknown>, key: string | null = rootKey) => {
  const { status, body } = await server.get('analytics.getVerifications', query, key)
  return [status, body.error?.code]
}

describe('the hour rule of the specification', () => {
  test('the hours of start and end count as a whole, the hours beside them do not', async () => {
    const { record, ask } = await makeApi()
    const [start, end] = [THIS_HOUR - 5 * HOUR + 59 * 60_000, THIS_HOUR - 2 * HOUR + 1]
    const inside = [THIS_HOUR - 5 * HOUR, start, end, THIS_HOUR - HOUR - 1]
    const outside = [THIS_HOUR - 5 * HOUR - 1, THIS_HOUR - HOUR]
    for (const atMs of [...inside, ...outside]) record({ atMs })
    expect((await ask({ start, end }))[0].total).toBe(inside.length)
  })

  test('without a range the last 24 hours and the current hour count', async () => {
    const { record, ask } = await makeApi()
    for (const atMs of [THIS_HOUR - 24 * HOUR, NOW]) record({ atMs })
    record({ atMs: THIS_HOUR - 24 * HOUR - 1 })
    record({ atMs: THIS_HOUR + HOUR })
    expect((await ask())[0].total).toBe(2)
    const hours = await ask({ groupBy: 'hour' })
    expect(hours).toHaveLength(25)
    expect(hours[0]).toMatchObject({ time: THIS_HOUR - 24 * HOUR, total: 1 })
    expect(hours[24]).toMatchObject({ time: THIS_HOUR, total: 1 })
  })
})

const NO_COUNTS = {
  valid: 0,
  notFound: 0,
  forbidden: 0,
  usageExceeded: 0,
  rateLimited: 0,
  unauthorized: 0,
  disabled: 0,
  insufficientPermissions: 0,
  expired: 0,
  total: 0,
}

const sumsOf = (rows: readonly Json[]): typeof NO_COUNTS => {
  const sums = { ...NO_COUNTS }
  for (const row of rows)
    for (const name of Object.keys(sums) as (keyof typeof sums)[]) sums[name] += row[name] // the names of the object
  return sums
}

describe('rows', () => {
  test('without groups there is one row, with zeros when there is no data', async () => {
    const { ask } = await makeApi()
    expect(await ask({ start: NOW - DAY })).toEqual([NO_COUNTS])
  })

  test('30 hours without data are 30 rows by hour, and no row without a time group', async () => {
    const { ask } = await makeApi()
    const range = { start: NOW - 30 * HOUR, end: NOW }
    expect(await ask({ ...range, groupBy: 'hour' })).toHaveLength(30)
    expect(await ask({ ...range, groupBy: 'key' })).toEqual([])
  })

  test('filled-in rows of combined groups have empty values', async () => {
    const { ask } = await makeApi()
    const range = { start: NOW - HOUR, end: NOW }
    const [row] = await ask({ ...range, groupBy: ['hour', 'key', 'identity', 'tags'] })
    expect(row).toMatchObject({ time: THIS_HOUR - HOUR, keyId: '', tags: [], total: 0 })
    expect(row).not.toHaveProperty('identity')
    expect((await ask({ ...range, groupBy: ['hour', 'tag'] }))[0]).toMatchObject({ tag: '', total: 0 })
  })

  test('sums by hour, day and month include all of 10 000 events of three keys', async () => {
    const { record, ask } = await makeApi()
    const outcomes = ['VALID', 'RATE_LIMITED', 'DISABLED'] as const
    const expected = { total: 10_000, valid: 0, rateLimited: 0, disabled: 0 }
    for (let i = 0; i < 10_000; i++) {
      const outcome = outcomes[(i >> 2) % 3] ?? 'VALID'
      if (outcome === 'VALID') expected.valid++
      else if (outcome === 'DISABLED') expected.disabled++
      else expected.rateLimited++
      record({ keyId: `key_${i % 3}`, outcome, atMs: NOW - ((i * 7919 * 1000) % (40 * DAY)) })
    }
    for (const groupBy of ['hour', 'day', 'month']) {
      const rows: Json[] = await ask({ start: NOW - 40 * DAY, end: NOW, groupBy })
      expect({ groupBy, ...sumsOf(rows) }).toEqual({ groupBy, ...NO_COUNTS, ...expected })
    }
  })

  describe('with a filter by externalId', () => {
    test('by hour over 24 hours there are 25 rows with the sums of that identity, which has two of three keys', async () => {
      const { record, ask } = await makeApi()
      const { id, externalId } = await makeIdentity()
      for (let i = 0; i < 900; i++)
        record({
          keyId: `key_${i % 3}`,
          identityId: i % 3 === 2 ? null : id,
          outcome: i % 2 === 0 ? 'VALID' : 'DISABLED',
          atMs: NOW - ((i * 7919 * 1000) % DAY),
        })
      const rows: Json[] = await ask({ externalId, groupBy: 'hour', start: NOW - DAY, end: NOW })
      expect(rows).toHaveLength(25)
      expect(sumsOf(rows)).toEqual({ ...NO_COUNTS, total: 600, valid: 300, disabled: 300 })
    })

    test('by key and hour of 100 000 events every row has its key, and the sums match in total and for each key', async () => {
      const { record, ask } = await makeApi()
      const { id, externalId } = await makeIdentity()
      const totals: Record<string, number> = {}
      for (let i = 0; i < 100_000; i++) {
        const isOurs = i % 7 !== 3
        const keyId = `key_${(i * 31) % 5}`
        if (isOurs) totals[keyId] = (totals[keyId] ?? 0) + 1
        record({ keyId, identityId: isOurs ? id : null, atMs: NOW - ((i * 7919 * 1000) % (3 * DAY)) })
      }
      const rows: Json[] = await ask({ externalId, groupBy: ['key', 'hour'], start: NOW - 3 * DAY, end: NOW })
      expect(rows.every(({ keyId }) => keyId.startsWith('key_'))).toBe(true)
      const byKey = Object.groupBy(rows, ({ keyId }) => keyId)
      const sums = Object.entries(byKey).map(([keyId, ofKey = []]) => [keyId, sumsOf(ofKey).total])
      expect(Object.fromEntries(sums)).toEqual(totals)
    })

    test('by month from the first of the last month until now there are two rows', async () => {
      const { record, ask } = await makeApi()
      const { id, externalId } = await makeIdentity()
      const [october, november] = [Date.UTC(2026, 9), Date.UTC(2026, 10)]
      for (const atMs of [october, november - 1]) record({ identityId: id, atMs }, 3)
      for (const atMs of [november, NOW]) record({ identityId: id, atMs }, 5)
      record({ identityId: id, atMs: october - 1 }, 100)
      const rows: Json[] = await ask({ externalId, groupBy: 'month', start: october, end: NOW })
      expect(rows.map(({ time, total }) => [time, total])).toEqual([
        [october, 6],
        [november, 10],
      ])
    })

    test('by day from the second of a month, for a month, the sums include everything since', async () => {
      const { record, ask } = await makeApi()
      const { id, externalId } = await makeIdentity()
      const [start, end] = [Date.UTC(2026, 9, 2), Date.UTC(2026, 10, 2)]
      for (let hour = -5; hour < 31 * 24; hour++) record({ identityId: id, atMs: start + hour * HOUR })
      const rows: Json[] = await ask({ externalId, groupBy: 'day', start, end })
      expect(rows).toHaveLength(31)
      expect(rows.every(({ total }) => total === 24)).toBe(true)
    })
  })

  test('one event is counted in its hour under its outcome, for every outcome', async () => {
    const { record, ask } = await makeApi()
    for (const [i, outcome] of Object.keys(OUTCOMES).entries())
      record({ atMs: THIS_HOUR - i * HOUR, outcome: outcome as Outcome }) // the keys are outcomes
    const rows: Json[] = await ask({
      groupBy: 'hour',
      start: THIS_HOUR - 6 * HOUR,
      end: NOW,
      orderBy: 'time',
      order: 'desc',
    })
    for (const [i, field] of Object.values(OUTCOMES).entries())
      expect(rows[i]).toEqual({ time: THIS_HOUR - i * HOUR, ...NO_COUNTS, total: 1, [field]: 1 })
  })

  test('a tag of 512 characters, the longest that a verification takes, can be asked for', async () => {
    const { record, ask } = await makeApi()
    const tag = 't'.repeat(512)
    record({ tags: [tag] })
    record({ tags: ['another'] })
    expect(await ask({ tag })).toMatchObject([{ total: 1 }])
  })

  /** A verification may have at most ten tags, but the storage has no such bound. */
  test('sets of 1, 2, 10 and 100 tags are returned complete and sorted', async () => {
    const { record, ask } = await makeApi()
    const sets = [1, 2, 10, 100].map((size) =>
      Array.from({ length: size }, (_, i) => `tag ${(i * 37) % 101} of ${size} "{\\}",é`),
    )
    for (const tags of sets) record({ tags })
    const rows: Json[] = await ask({ groupBy: 'tags' })
    const found = rows.map(({ tags }) => tags).sort((a: string[], b: string[]) => a.length - b.length)
    expect(found).toEqual(sets.map((tags) => tags.toSorted()))
  })

  test('four tag sets give four rows by tags and one row for each tag, and a filter means all given tags', async () => {
    const { record, ask } = await makeApi()
    record({ tags: ['b', 'a'] }, 1)
    record({ tags: ['a'], outcome: 'DISABLED' }, 2)
    record({ tags: [] }, 4)
    record({ tags: ['b', 'c'], outcome: 'RATE_LIMITED' }, 8)
    const byTags: Json[] = await ask({ groupBy: 'tags' })
    expect(byTags.map(({ tags, total }) => [tags, total])).toEqual([
      [[], 4],
      [['a'], 2],
      [['a', 'b'], 1],
      [['b', 'c'], 8],
    ])
    const byTag: Json[] = await ask({ groupBy: 'tag' })
    expect(
      byTag.map(({ tag, total, valid, disabled, rateLimited }) => [tag, total, valid, disabled, rateLimited]),
    ).toEqual([
      ['a', 3, 1, 2, 0],
      ['b', 9, 1, 0, 8],
      ['c', 8, 0, 0, 8],
    ])
    expect((await ask({ tag: 'a' }))[0]).toMatchObject({ total: 3 })
    expect((await ask({ tag: ['a', 'b'] }))[0]).toMatchObject({ total: 1 })
    expect((await ask({ tag: 'a,b' }))[0]).toMatchObject({ total: 0 }) // a comma belongs to the tag
  })

  test('keyId filters by one key, and adds up several, repeated or joined with a comma', async () => {
    const { record, ask } = await makeApi()
    record({ keyId: 'key_1' }, 1)
    record({ keyId: 'key_2' }, 2)
    record({ keyId: 'key_3' }, 4)
    expect((await ask({ keyId: 'key_2' }))[0].total).toBe(2)
    expect((await ask({ keyId: ['key_1', 'key_3'] }))[0].total).toBe(5)
    expect((await ask({ keyId: 'key_1,key_2' }))[0].total).toBe(3)
    const rows: Json[] = await ask({ groupBy: 'key,hour', start: THIS_HOUR, end: NOW })
    expect(rows.map(({ keyId, time, total }) => [keyId, time, total])).toEqual([
      ['key_1', THIS_HOUR, 1],
      ['key_2', THIS_HOUR, 2],
      ['key_3', THIS_HOUR, 4],
    ])
  })

  test('an identity is counted by its external id, and keeps its rows after its deletion', async () => {
    const { record, ask } = await makeApi()
    const [one, two] = [await makeIdentity(), await makeIdentity()]
    record({ identityId: one.id, keyId: 'key_1' }, 1)
    record({ identityId: one.id, keyId: 'key_2' }, 2)
    record({ identityId: two.id, keyId: 'key_3' }, 4)
    record({ keyId: 'key_4' }, 8)
    expect((await ask({ externalId: one.externalId }))[0].total).toBe(3)
    expect(
      await ask({ externalId: one.externalId, groupBy: 'hour', start: NOW - DAY, end: NOW }),
    ).toHaveLength(25)
    await server.server.deps.sql`delete from identities where id = ${two.id}`
    const rows: Json[] = await ask({ groupBy: 'identity', orderBy: 'total', order: 'desc' })
    expect(rows.map(({ identity, total }) => [identity, total])).toEqual([
      [{ id: two.id }, 4],
      [one, 3],
    ])
  })

  test('the ten identities with the most verifications in 30 days are the right ones', async () => {
    const { record, ask } = await makeApi()
    for (let i = 0; i < 100; i++) {
      record({ identityId: `id_${i}`, atMs: NOW - ((i * 29) % 30) * DAY }, (i * 37) % 101)
      record({ identityId: `id_${i}`, atMs: NOW - 31 * DAY }, 200)
    }
    const rows: Json[] = await ask({
      start: NOW - 30 * DAY,
      groupBy: 'identity',
      orderBy: 'total',
      order: 'desc',
      limit: 10,
    })
    const totals = Array.from({ length: 100 }, (_, i) => (i * 37) % 101).sort((a, b) => b - a)
    expect(rows.map(({ total }) => total)).toEqual(totals.slice(0, 10))
    expect(rows.every(({ identity }) => identity.id.startsWith('id_'))).toBe(true)
  })
})

describe('a verification by verifyKey', () => {
  test('is counted under its key and tags, and stays after the key is deleted', async () => {
    const { apiId, ask } = await makeApi()
    const { key, keyId } = await workspace.post('keys.createKey', {
      apiId,
      ratelimit: { type: 'fast', limit: 2, duration: 60_000 },
    })
    for (let i = 0; i < 3; i++) await server.post('keys.verifyKey', { apiId, key, tags: ['x', 'y', 'x'] })
    const seen = { keyId, tags: ['x', 'y'], valid: 2, rateLimited: 1, total: 3 }
    expect(await ask({ groupBy: ['key', 'tags'] })).toMatchObject([seen])
    await workspace.post('keys.deleteKey', { keyId })
    expect((await server.post('keys.verifyKey', { apiId, key })).body.code).toBe('NOT_FOUND')
    expect(await ask({ groupBy: ['key', 'tags'] })).toMatchObject([seen])
  })
})

describe('refusals come in the order of the contract', () => {
  const missing = 'api_11111111111111111'

  test('a bad query is refused before the root key is checked', async () => {
    const bad: Record<string, unknown>[] = [
      {},
      { apiId: missing, groupBy: 'week' },
      { apiId: missing, groupBy: ['hour', 'keys'] },
      { apiId: missing, groupBy: 'hour,' },
      { apiId: missing, limit: 0 },
      { apiId: missing, limit: 'many' },
      { apiId: missing, order: 'up' },
      { apiId: missing, orderBy: 'key' },
      { apiId: missing, start: 'today' },
      { apiId: missing, start: 1.5 },
      { apiId: missing, start: NOW, end: NOW },
      { apiId: missing, start: NOW + 1 },
      { apiId: missing, groupBy: ['tag', 'tags'] },
      { apiId: missing, groupBy: 'tag,tags' },
      { apiId: missing, groupBy: 'key', orderBy: 'time' },
    ]
    for (const query of bad)
      expect({ query, got: await refusal(query, null) }).toEqual({ query, got: [400, 'BAD_REQUEST'] })
  })

  test('then a root key without the permission of the specification or `*` is refused', async () => {
    const { apiId } = await makeApi()
    expect(await refusal({ apiId: missing }, null)).toEqual([403, 'UNAUTHORIZED'])
    for (const permission of [`api.${apiId}.read_api`, 'api.*.read_key'])
      expect(await refusal({ apiId }, await workspace.rootKeyWith(permission))).toEqual([
        403,
        'INSUFFICIENT_PERMISSIONS',
      ])
    for (const held of [['api.*.read_api', 'x'], ['*']])
      expect(await refusal({ apiId }, await workspace.rootKeyWith(...held))).toEqual([200, undefined])
  })

  test('then a missing API, keyspace or identity is refused', async () => {
    const { apiId } = await makeApi()
    const stranger = await (await server.workspace()).post('apis.createApi', { name: 'of another workspace' })
    expect(await refusal({ apiId: missing, externalId: 'nobody' })).toEqual([404, 'NOT_FOUND'])
    expect(await refusal({ apiId: stranger.apiId })).toEqual([404, 'NOT_FOUND'])
    expect(await refusal({ apiId, externalId: 'nobody' })).toEqual([404, 'NOT_FOUND'])
    await server.server.deps.sql`update apis set keyspace_id = null where id = ${apiId}`
    expect(await refusal({ apiId, externalId: 'nobody' })).toEqual([412, 'PRECONDITION_FAILED'])
  })
})
