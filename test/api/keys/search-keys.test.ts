import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { findIdsByText, WALKED_BY_USE_MAX, walkIds } from '../../../src/api/keys/search/store.ts'
import { HOUR_MS } from '../../../src/lib/clock.ts'
import type { WorkspaceId } from '../../../src/lib/ids.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { explaining } from '../../support/plan.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
/** The server's time. */
let now = Date.now()
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const namesOf = async (workspace: TestWorkspace, query: Record<string, unknown> = {}): Promise<string[]> =>
  (await workspace.get('keys.searchKeys', query)).keys.map(({ name }: Json) => name)

describe('keys.searchKeys', () => {
  test('finds keys by the beginning of their start, name, id and external id, in one API or in all', async () => {
    const workspace = await server.workspace()
    const [one, two] = [await makeApi(workspace), await makeApi(workspace)]
    const web = await makeKey(workspace, one, {
      name: 'Web checkout',
      prefix: 'demo',
      externalId: 'user_881',
    })
    await makeKey(workspace, two, { name: 'web shop', externalId: 'user_9' })
    await makeKey(workspace, two, { name: 'ci', prefix: 'web' })
    expect((await namesOf(workspace, { search: 'WEB' })).sort()).toEqual(['Web checkout', 'web shop'])
    expect((await namesOf(workspace, { search: 'web' })).sort()).toEqual(['Web checkout', 'ci', 'web shop'])
    expect(await namesOf(workspace, { search: 'web', apiId: one })).toEqual(['Web checkout'])
    expect(await namesOf(workspace, { search: web.key.slice(0, 8) })).toEqual(['Web checkout'])
    expect(await namesOf(workspace, { search: web.keyId })).toEqual(['Web checkout'])
    expect(await namesOf(workspace, { search: web.keyId.slice(0, -1) })).toEqual(['Web checkout'])
    expect((await namesOf(workspace, { search: 'user_' })).sort()).toEqual(['Web checkout', 'web shop'])
    expect(await namesOf(workspace, { search: 'checkout' })).toEqual([])
    // Neither a pattern nor a range: each text means itself.
    for (const search of ['%', '_', '*', '\\', "'", '\u{10ffff}'])
      expect(await namesOf(workspace, { search })).toEqual([])
  })

  test('finds neither deleted keys, nor keys of deleted APIs, nor root keys, nor those of others', async () => {
    const [workspace, other] = [await server.workspace(), await server.workspace()]
    const [kept, gone] = [await makeApi(workspace), await makeApi(workspace)]
    const { keyId } = await makeKey(workspace, kept, { name: 'a deleted' })
    await workspace.post('keys.deleteKey', { keyId })
    await makeKey(workspace, gone, { name: 'a key of a deleted API' })
    await workspace.post('apis.deleteApi', { apiId: gone })
    await makeKey(other, await makeApi(other), { name: 'a foreign key' })
    await workspace.post('rootKeys.createRootKey', { name: 'a root key', permissions: [] })
    for (const query of [{}, { search: 'a' }, { state: 'active' }, { search: 'a', state: 'active' }])
      expect(await workspace.get('keys.searchKeys', query)).toEqual({
        keys: [],
        total: 0,
        isTotalExact: true,
      })
  })

  test('each state has its keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await makeKey(workspace, apiId, { name: 'plain' })
    await makeKey(workspace, apiId, { name: 'off', enabled: false })
    await makeKey(workspace, apiId, { name: 'over', expires: now - 1 })
    await makeKey(workspace, apiId, { name: 'soon', expires: now + 6 * 24 * HOUR_MS })
    await makeKey(workspace, apiId, { name: 'later', expires: now + 8 * 24 * HOUR_MS })
    await makeKey(workspace, apiId, { name: 'few', remaining: 10 })
    await makeKey(workspace, apiId, { name: 'many', remaining: 11 })
    const inState = async (state: string, search?: string) =>
      (await namesOf(workspace, { state, ...(search !== undefined && { search }) })).sort()
    expect(await inState('active')).toEqual(['few', 'later', 'many', 'plain', 'soon'])
    expect(await inState('disabled')).toEqual(['off'])
    expect(await inState('expired')).toEqual(['over'])
    expect(await inState('expiresSoon')).toEqual(['soon'])
    expect(await inState('lowCredits')).toEqual(['few'])
    // With a text too, which is found in another way.
    expect(await inState('active', 'o')).toEqual([])
    expect(await inState('disabled', 'o')).toEqual(['off'])
    const refused = await server.get('keys.searchKeys', { state: 'tired' }, workspace.rootKey)
    expect(refused.status).toBe(400)
  })

  test('keys are found by the hour of their last verification, and those never verified', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { sql } = server.server.deps
    const hour = now - (now % HOUR_MS)
    for (const [name, hoursAgo] of [
      ['this hour', 0],
      ['the hour in which the last hour begins', 1],
      ['before', 2],
      ['a day ago', 24],
      ['six days ago', 6 * 24],
      ['eight days ago', 8 * 24],
      ['thirty days ago', 30 * 24],
      ['months ago', 70 * 24],
    ] as const) {
      const { keyId } = await makeKey(workspace, apiId, { name })
      await sql`select make_usage_month(${hour - hoursAgo * HOUR_MS})`
      await sql`update keys set created_at = ${hour - 80 * 24 * HOUR_MS} where id = ${keyId}`
      await sql`
        insert into usage_verifications (workspace_id, keyspace_id, hour, key_id, identity_id, tag_set, valid, rate_limited,
                                         expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
        select workspace_id, keyspace_id, ${hour - hoursAgo * HOUR_MS}, id, '', '\\x', 0, 0, 0, 1, 0, 0, 0 from keys where id = ${keyId}`
    }
    await makeKey(workspace, apiId, { name: 'never' })
    const { keyId: old } = await makeKey(workspace, apiId, { name: 'known by its day alone' })
    await sql`update keys set created_at = ${hour - 80 * 24 * HOUR_MS} where id = ${old}`
    await sql`
      insert into usage_verification_days (workspace_id, keyspace_id, day, key_id, identity_id, tag_set, valid, rate_limited,
                                           expired, disabled, forbidden, usage_exceeded, insufficient_permissions)
      select workspace_id, keyspace_id, ${hour - 75 * 24 * HOUR_MS}, id, '', '\\x', 1, 0, 0, 0, 0, 0, 0 from keys where id = ${old}`

    const usedIn = async (used: string, query: Json = {}) =>
      (await namesOf(workspace, { used, ...query })).sort()
    const lastHour = ['the hour in which the last hour begins', 'this hour']
    expect(await usedIn('lastHour')).toEqual(lastHour)
    expect(await usedIn('last24Hours')).toEqual(['a day ago', 'before', ...lastHour])
    expect(await usedIn('last7Days')).toEqual(['a day ago', 'before', 'six days ago', ...lastHour])
    expect(await usedIn('last30Days')).toHaveLength(7)
    expect(await usedIn('never')).toEqual(['never'])
    // With a text too, which is found in another way.
    expect(await usedIn('lastHour', { search: 'th', apiId })).toEqual(lastHour)
    expect(await usedIn('never', { search: 'th' })).toEqual([])
    expect(await workspace.get('keys.searchKeys', { used: 'never' })).toMatchObject({
      total: 1,
      isTotalExact: true,
    })
    expect((await server.get('keys.searchKeys', { used: 'often' }, workspace.rootKey)).status).toBe(400)
  })

  test('pages go from the newest to the oldest over all APIs, each key once, with the number of all', async () => {
    const workspace = await server.workspace()
    const apis = [await makeApi(workspace), await makeApi(workspace), await makeApi(workspace)]
    const made: string[] = []
    const active: string[] = []
    for (let at = 0; at < 12; at++) {
      const fields = { name: `page ${at}`, enabled: at % 2 === 0 }
      const { keyId } = await makeKey(workspace, apis[at % 3] ?? '', fields)
      made.push(keyId)
      if (fields.enabled) active.push(keyId)
    }
    // Ids hold the second of their creation. Within a second their order is no one's.
    made.sort().reverse()
    active.sort().reverse()
    const pagesOf = async (query: Json): Promise<string[]> => {
      const ids: string[] = []
      let cursor: string | undefined
      do {
        const page = await workspace.get('keys.searchKeys', {
          ...query,
          limit: 5,
          ...(cursor !== undefined && { cursor }),
        })
        expect(page.keys.length).toBeLessThanOrEqual(5)
        expect(page.isTotalExact).toBe(true)
        ids.push(...page.keys.map(({ id }: Json) => id))
        if (cursor === undefined && page.cursor === undefined) expect(page.total).toBe(ids.length)
        cursor = page.cursor
        if (cursor === undefined) expect(page.total).toBe(ids.length)
      } while (cursor !== undefined)
      return ids
    }
    expect(await pagesOf({})).toEqual(made)
    expect(await pagesOf({ search: 'page' })).toEqual(made)
    expect(await pagesOf({ state: 'active' })).toEqual(active)
    expect(await pagesOf({ apiId: apis[0], state: 'active' })).toHaveLength(2)
  })

  test('a root key for one API finds keys of that one and learns nothing of others', async () => {
    const workspace = await server.workspace()
    const [one, two] = [await makeApi(workspace), await makeApi(workspace)]
    await makeKey(workspace, one, { name: 'mine' })
    const rootKey = await workspace.rootKeyWith(`api.${one}.read_key`)
    expect((await server.get('keys.searchKeys', { apiId: one }, rootKey)).body.keys).toHaveLength(1)
    for (const query of [{}, { apiId: two }, { apiId: 'api_none' }])
      expect(refusalOf(await server.get('keys.searchKeys', query, rootKey))).toMatchObject({ status: 403 })
  })
})

describe('among many keys', () => {
  /** Keys of one workspace, without the cost of creating each by a call. */
  async function fill(workspace: TestWorkspace, apiId: string, count: number): Promise<string> {
    const { sql } = server.server.deps
    const { keyId } = await makeKey(workspace, apiId, { name: 'template' })
    await sql`
      insert into keys (id, workspace_id, keyspace_id, hash, start, name, enabled, created_at)
      select 'key_' || lpad(to_hex(n), 14, '0') || right(id, 2), workspace_id, keyspace_id, id || n, 'many_' || to_hex(n), 'many ' || n, n > 10, created_at
        from keys cross join generate_series(1, ${count}::integer) as n where id = ${keyId}`
    const [row] = await sql<{ id: string }[]>`select keyspace_id as id from keys where id = ${keyId}`
    return row?.id ?? ''
  }

  /** Each connection plans the statements of a function once, and reads catalogs for it. */
  async function fewest(pagesRead: () => number, ask: () => Promise<unknown>): Promise<number> {
    let pages = Number.POSITIVE_INFINITY
    for (let time = 0; time < 20; time++) {
      await ask()
      pages = Math.min(pages, pagesRead())
    }
    return pages
  }

  /** Right after an import the statistics know of no key, and all were read and sorted for a page of them. */
  test('a search reads the same few pages when statistics are from before its keys', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { sql: direct } = server.server.deps
    await direct`alter table keys set (autovacuum_enabled = off)`
    await direct`analyze keys`
    const keyspaceId = await fill(workspace, apiId, 60_000)
    const { sql, pagesRead, rowsRead } = explaining(direct)
    const workspaceId = workspace.workspaceId as WorkspaceId // of the test's own
    // The table has some 1 400. It comes first: a key between two of another import would count its page again.
    for (const text of ['key_', 'key_0', 'many', 'none']) {
      const pages = await fewest(pagesRead, () => findIdsByText(sql, workspaceId, text))
      expect([text, pages < 700]).toEqual([text, true])
    }
    const search = { keyspaceIds: [keyspaceId], text: null, state: null, used: null, now }
    const first = { before: '', limit: 100 }
    expect(await fewest(pagesRead, () => walkIds(sql, search, first))).toBeLessThan(100)
    expect(await fewest(pagesRead, () => walkIds(sql, { ...search, used: 'never' }, first))).toBeLessThan(
      1000,
    )
    const { ids, next } = await walkIds(direct, { ...search, used: 'last30Days' }, { before: '', limit: 100 })
    expect(ids).toEqual([])
    expect(next).not.toBeNull() // its rest is another page's
    await walkIds(sql, { ...search, used: 'last30Days' }, { before: '', limit: 100 })
    expect(pagesRead()).toBeLessThan(5 * WALKED_BY_USE_MAX)
    expect(rowsRead('usage_verifications')).toBe(0)
  })

  test('a text reads few rows, one that finds thousands too, and the total says that it is not exact', async () => {
    const workspace = await server.workspace()
    const keyspaceId = await fill(workspace, await makeApi(workspace), 25_000)
    const one = await workspace.get('keys.searchKeys', { search: 'many 12345' })
    expect(one).toMatchObject({ total: 1, isTotalExact: true, keys: [{ name: 'many 12345' }] })
    const many = await workspace.get('keys.searchKeys', { search: 'many', limit: 3 })
    expect(many).toMatchObject({ total: 1000, isTotalExact: false })
    expect(many.keys.map(({ name }: Json) => name)).toEqual(['many 25000', 'many 24999', 'many 24998'])
    expect(await workspace.get('keys.searchKeys', { limit: 1 })).toMatchObject({
      total: 25_001,
      isTotalExact: true,
    })

    const { sql, pagesRead } = explaining(server.server.deps.sql)
    const workspaceId = workspace.workspaceId as WorkspaceId // of the test's own
    expect(await fewest(pagesRead, () => findIdsByText(sql, workspaceId, 'many'))).toBeLessThan(2000)
    const search = { keyspaceIds: [keyspaceId], text: null, state: null, used: null, now }
    expect(await fewest(pagesRead, () => walkIds(sql, search, { before: '', limit: 100 }))).toBeLessThan(200)
  })

  test('rare keys are found behind pages without any: each goes on where the one before stopped', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { sql } = server.server.deps
    const { keyId } = await makeKey(workspace, apiId, { name: 'template' })
    await sql`
      insert into keys (id, workspace_id, keyspace_id, hash, start, name, enabled, created_at)
      select 'key_rare' || lpad(to_hex(n), 12, '0'), workspace_id, keyspace_id, id || n, 'rare_' || n, null, n > 3, created_at
        from keys cross join generate_series(1, 45000) as n where id = ${keyId}`
    const found: string[] = []
    let pages = 0
    let cursor: string | undefined
    do {
      const page = await workspace.get('keys.searchKeys', {
        apiId,
        state: 'disabled',
        ...(cursor !== undefined && { cursor }),
      })
      found.push(...page.keys.map(({ start }: Json) => start))
      cursor = page.cursor
      pages++
    } while (cursor !== undefined && pages < 10)
    expect(found).toEqual(['rare_3', 'rare_2', 'rare_1'])
    expect(pages).toBeGreaterThan(1)
  })
})

describe('keys.getLastUsed', () => {
  test('tells the hour of the last verification, refused ones too, and leaves out keys that do not exist', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const [used, refused, unused] = [
      await makeKey(workspace, apiId),
      await makeKey(workspace, apiId, { enabled: false }),
      await makeKey(workspace, apiId),
    ]
    const foreign = await server.workspace()
    const theirs = await makeKey(foreign, await makeApi(foreign))
    await server.post('keys.verifyKey', { key: used.key })
    now += 3 * HOUR_MS
    await server.post('keys.verifyKey', { key: refused.key })
    await server.post('keys.verifyKey', { key: theirs.key })
    const hour = now - (now % HOUR_MS)
    const keyId = [unused.keyId, refused.keyId, used.keyId, refused.keyId]
    for (;;) {
      const { keys } = await workspace.get('keys.getLastUsed', { keyId })
      if (keys.filter(({ lastUsed }: Json) => lastUsed !== undefined).length < 2) {
        await Bun.sleep(20)
        continue
      }
      expect(keys).toEqual([
        { keyId: unused.keyId },
        { keyId: refused.keyId, lastUsed: hour },
        { keyId: used.keyId, lastUsed: hour - 3 * HOUR_MS },
      ])
      break
    }
    const asked = { keyId: [theirs.keyId, 'key_none'] }
    expect(await workspace.get('keys.getLastUsed', asked)).toEqual({ keys: [] })
    const many = { keyId: Array.from({ length: 101 }, (_, at) => `key_${at}`) }
    expect((await server.get('keys.getLastUsed', many, workspace.rootKey)).status).toBe(400)
    expect((await server.get('keys.getLastUsed', {}, workspace.rootKey)).status).toBe(400)
  })

  test('needs the right on the API of each key', async () => {
    const workspace = await server.workspace()
    const [one, two] = [await makeApi(workspace), await makeApi(workspace)]
    const [mine, other] = [await makeKey(workspace, one), await makeKey(workspace, two)]
    const rootKey = await workspace.rootKeyWith(`api.${one}.read_key`)
    const ask = (...keyId: string[]) => server.get('keys.getLastUsed', { keyId }, rootKey)
    expect((await ask(mine.keyId)).body).toEqual({ keys: [{ keyId: mine.keyId }] })
    expect(refusalOf(await ask(mine.keyId, other.keyId))).toEqual(
      refusalOf(await ask(mine.keyId, 'key_none')),
    )
    expect((await ask(other.keyId)).status).toBe(403)
  })
})
