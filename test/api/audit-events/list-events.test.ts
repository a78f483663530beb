import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { newId } from '../../../src/lib/ids.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../../support/database.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const list = async (workspace: TestWorkspace, query: Record<string, unknown> = {}): Promise<Json[]> =>
  (await workspace.get('audit.listEvents', query)).events

test('an event says what happened, who did it, to which resources, from which address', async () => {
  const workspace = await server.workspace()
  const before = Date.now()
  const apiId = await makeApi(workspace)
  const [event] = await list(workspace, { event: 'api.create' })
  expect(event).toEqual({
    id: expect.stringMatching(/^log_/),
    time: event.time,
    event: 'api.create',
    description: `created API ${apiId}`,
    actor: { type: 'key', id: workspace.rootKeyId },
    resources: [{ type: 'api', id: apiId, name: 'test api' }],
    location: expect.stringContaining('127.0.0.1'),
    userAgent: expect.stringContaining('Bun/'),
  })
  expect(event.time).toBeWithin(before, Date.now() + 1)
})

test('filters by event, actor, resource and time can be combined', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const first = await makeKey(workspace, apiId)
  const otherRootKey = await workspace.rootKeyWith('api.*.create_key')
  await server.post('keys.createKey', { apiId }, otherRootKey)
  await workspace.post('keys.deleteKey', { keyId: first.keyId })

  expect(await list(workspace, { event: 'key.create' })).toHaveLength(2)
  const byOwner = await list(workspace, { event: 'key.create', actorId: workspace.rootKeyId })
  expect(byOwner.map(({ resources }) => resources[0].id)).toEqual([first.keyId])
  const ofKey = await list(workspace, { resourceId: first.keyId })
  expect(ofKey.map(({ event }) => event).sort()).toEqual(['key.create', 'key.delete'])
  expect(await list(workspace, { resourceId: 'key_unknown' })).toEqual([])

  const all = await list(workspace)
  const times = all.map(({ time }) => time)
  const [earliest, latest] = [Math.min(...times), Math.max(...times)]
  expect(await list(workspace, { start: earliest, end: latest + 1 })).toEqual(all)
  expect(await list(workspace, { end: earliest })).toEqual([])
  expect(await list(workspace, { start: latest + 1 })).toEqual([])
  expect((await list(workspace, { start: latest })).map(({ time }) => time)).toContain(latest)
})

/** Bug: a page with an end in the past read the log from there to its newest entry, as the filter by time had no index. */
test('with an end in the past, much later events are not even read', async () => {
  const workspace = await server.workspace()
  await makeApi(workspace)
  const { sql } = server.server.deps
  const atMs = Date.now() - 30 * 86_400_000
  const [event] = await list(workspace)
  const old = newId('log', atMs)
  await sql`
    insert into audit_events (id, workspace_id, event, actor_type, actor_id, resources, description, occurred_at)
    select ${old}, workspace_id, event, actor_type, actor_id, resources, description, ${atMs}
      from audit_events where id = ${event.id}`
  // An event as an old one would be stored, but with a time that contradicts its id: found only if it is read.
  await sql`update audit_events set seq = 0 where id = ${old}`
  await sql`update audit_events set occurred_at = ${atMs} where id = ${event.id}`
  expect((await list(workspace, { end: atMs + 1 })).map(({ id }) => id)).toEqual([old])
  expect(await list(workspace, { end: atMs })).toEqual([])
  expect((await list(workspace, { end: Date.now() + 1 })).map(({ id }) => id)).toContain(event.id)
})

/** Their ids are made in the database. They must sort, and be found by time, like all others. */
test('events of keys deleted together are found by time and key', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId, { ownerId: 'user_1' })
  const start = Date.now()
  await workspace.post('apis.deleteKeys', { apiId, permanent: true })
  const events = await list(workspace, { start, event: 'key.delete', resourceId: keyId })
  expect(events.map(({ resources }) => resources)).toEqual([
    [
      { type: 'key', id: keyId },
      { type: 'api', id: apiId },
      { type: 'identity', id: expect.any(String) },
    ],
  ])
})

test('pages follow each other, with a cursor only while more follow', async () => {
  const workspace = await server.workspace()
  for (let index = 0; index < 4; index++) await makeApi(workspace)
  const all = await list(workspace, { event: 'api.create' })
  const first = await workspace.get('audit.listEvents', { event: 'api.create', limit: 3, start: 0 })
  expect([first.events, first.cursor]).toEqual([all.slice(0, 3), all[2]?.id])
  const second = await workspace.get('audit.listEvents', {
    event: 'api.create',
    limit: 3,
    start: 1,
    cursor: first.cursor,
  })
  expect(second).toEqual({ events: all.slice(3) })
})

/** Ids are ordered to the second only: of 23 neighbours within one second, 8 were in the wrong order. */
describe('events are listed in the order in which they happened', () => {
  const namesOf = (events: Json[]) => events.map(({ resources }) => resources[0].name)
  const walk = async (workspace: TestWorkspace, query: Record<string, unknown>): Promise<Json[]> => {
    const events: Json[] = []
    let cursor: string | undefined
    do {
      const page = await workspace.get('audit.listEvents', { ...query, ...(cursor && { cursor }) })
      events.push(...page.events)
      cursor = page.cursor
    } while (cursor !== undefined)
    return events
  }

  test('within one second, on several servers, and in pages of any size', async () => {
    await using database = await openTestDatabase()
    await using first = await startTestServer({ database })
    // The embedded database has one server.
    await using second = TEST_DATABASE_URL === null ? null : await startTestServer({ database })
    const workspace = await first.workspace()
    const names = Array.from({ length: 40 }, (_, index) => `role ${index}`)
    for (const [index, name] of names.entries())
      await (index % 2 === 0 ? first : (second ?? first)).post(
        'permissions.createRole',
        { name },
        workspace.rootKey,
      )
    expect(namesOf(await list(workspace, { event: 'role.create' }))).toEqual(names)
    const start = Date.now() - 60_000
    for (const filter of [
      { event: 'role.create' },
      { actorId: workspace.rootKeyId },
      { start, end: start + 120_000 },
    ])
      for (const limit of [1, 3, 100]) {
        expect(namesOf(await walk(workspace, { ...filter, limit }))).toEqual(names)
        const newestFirst = await walk(workspace, { ...filter, limit, order: 'newestFirst' })
        expect(namesOf(newestFirst)).toEqual(names.toReversed())
      }
  })

  test('within one call', async () => {
    const workspace = await server.workspace()
    const { roleId } = await workspace.post('permissions.createRole', { name: 'a role' })
    const slugs = Array.from({ length: 30 }, (_, index) => `permission.${index}`)
    const permissions = slugs.map((slug) => ({ slug, create: true }))
    await workspace.post('permissions.setRolePermissions', { roleId, permissions })
    expect(namesOf(await list(workspace, { event: 'permission.create' }))).toEqual(slugs)
  })

  test('from before the order was stored, by id and before all others', async () => {
    const workspace = await server.workspace()
    for (let index = 0; index < 6; index++) await makeApi(workspace)
    const { sql } = server.server.deps
    const made = await list(workspace)
    const old = made.slice(0, 4).map(({ id }) => id)
    await sql`update audit_events set seq = 0 where id = any(${old}::text[])`
    const expected = [...old.toSorted(), ...made.slice(4).map(({ id }) => id)]
    for (const limit of [1, 2, 5, 100])
      for (const order of ['oldestFirst', 'newestFirst'])
        expect((await walk(workspace, { limit, order })).map(({ id }) => id)).toEqual(
          order === 'oldestFirst' ? expected : expected.toReversed(),
        )
  })

  test('newest first, a range of time and filters hold too, and a cursor that names no event is a place', async () => {
    const workspace = await server.workspace()
    for (let index = 0; index < 5; index++) await makeApi(workspace)
    const all = await list(workspace, { event: 'api.create' })
    const { sql } = server.server.deps
    const now = Date.now()
    const hours = (index: number) => now - (10 - index) * 3 * 3_600_000
    for (const [index, { id }] of all.entries())
      await sql`
        update audit_events set id = ${newId('log', hours(index))}, seq = ${index}, occurred_at = ${hours(index)} where id = ${id}`
    const newest = async (query: object) =>
      (await walk(workspace, { event: 'api.create', order: 'newestFirst', ...query })).map(
        ({ resources }) => resources[0].id,
      )
    const ids = all.map(({ resources }) => resources[0].id).toReversed()
    for (const limit of [1, 2, 100]) {
      expect(await newest({ limit })).toEqual(ids)
      expect(await newest({ limit, start: hours(1) - 1, end: hours(3) + 60_000 })).toEqual(ids.slice(1, 4))
      expect(await newest({ limit, resourceId: ids[2] })).toEqual([ids[2]])
    }
    const cursor = newId('log', hours(2) + 3_600_000)
    const { events } = await workspace.get('audit.listEvents', { order: 'newestFirst', cursor, limit: 2 })
    expect(events.map(({ resources }: Json) => resources[0].id)).toEqual(ids.slice(2, 4))
  })

  test('events written between two pages are neither lost nor listed twice', async () => {
    const workspace = await server.workspace()
    const names = (from: number) => Array.from({ length: 20 }, (_, index) => `role ${from + index}`)
    const make = (name: string) => workspace.post('permissions.createRole', { name })
    for (const name of names(0)) await make(name)
    const [seen] = await Promise.all([
      walk(workspace, { event: 'role.create', limit: 2 }),
      ...names(20).map(make),
    ])
    expect(namesOf(seen).slice(0, 20)).toEqual(names(0))
    expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length)
  })
})

test('an event lists the fields that it changed, of every resource, and none of what is new or deleted', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId } = await makeKey(workspace, apiId, { name: 'old' })
  await workspace.post('keys.updateKey', { keyId, name: 'new', enabled: false })
  await workspace.post('keys.deleteKey', { keyId })
  const [updated] = await list(workspace, { event: 'key.update' })
  expect(updated.changes).toEqual([
    { resourceId: keyId, field: 'name', before: 'old', after: 'new' },
    { resourceId: keyId, field: 'enabled', before: true, after: false },
  ])
  for (const event of ['key.create', 'key.delete'])
    expect((await list(workspace, { event }))[0]).not.toHaveProperty('changes')
})

test('events of another workspace are not listed', async () => {
  const [mine, theirs] = [await server.workspace(), await server.workspace()]
  const apiId = await makeApi(theirs)
  expect(await list(mine, { resourceId: apiId })).toEqual([])
  expect(await list(mine, { actorId: theirs.rootKeyId })).toEqual([])
})

test('accepts its permission and no other', async () => {
  const workspace = await server.workspace()
  const statusWith = async (...permissions: string[]) =>
    refusalOf(await server.get('audit.listEvents', {}, await workspace.rootKeyWith(...permissions)))
  expect((await statusWith('audit.*.read_event', 'another')).status).toBe(200)
  expect(await statusWith('api.*.read_api')).toMatchObject({ status: 403, code: 'INSUFFICIENT_PERMISSIONS' })
})

test.each([
  ['limit', '101', 'limit: Number must be less than or equal to 100'],
  ['start', '-1', 'start: Number must be greater than or equal to 0'],
  ['end', 'yesterday', 'end: Expected number, received nan'],
  ['order', 'newest', "order: Invalid enum value. Expected 'oldestFirst' | 'newestFirst', received 'newest'"],
  ['event', '', 'event: String must contain at least 1 character(s)'],
])('%s=%s is a 400', async (name, value, message) => {
  const answer = await server.get('audit.listEvents', { [name]: value })
  expect(refusalOf(answer)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
})
