import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** A workspace with a namespace. */
async function start() {
  const workspace = await server.workspace()
  const namespaceName = `ns ${crypto.randomUUID()}`
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: namespaceName })
  const set = async (identifier: string, limit: number, fields = {}): Promise<string> => {
    const body = { namespaceId, identifier, limit, duration: 60_000, ...fields }
    return (await workspace.post('ratelimits.setOverride', body)).overrideId
  }
  return {
    ...workspace,
    namespaceId,
    namespaceName,
    set,
    list: (query = {}) => workspace.get('ratelimits.listOverrides', { namespaceId, ...query }),
    /** The limit that applies to a call for this identifier; 10 is the caller's own. */
    limitFor: async (identifier: string) => {
      const body = { namespace: namespaceName, identifier, limit: 10, duration: 60_000, cost: 0 }
      return (await workspace.post('ratelimits.limit', body)).limit
    },
  }
}
const override = { identifier: 'user_1', limit: 5, duration: 60_000 }

describe('ratelimits.setOverride', () => {
  const messageOf = async (body: object) =>
    (await server.post('ratelimits.setOverride', { namespaceId: 'rlns_1', ...override, ...body })).body.error
      .message

  /** The texts are contract: clients compare them. */
  test('every bound allows its value and refuses one more', async () => {
    for (const identifier of ['', 'ab', 'a'.repeat(1024)])
      expect(await messageOf({ identifier })).toBe('key required')
    expect(await messageOf({ identifier: 'a'.repeat(1025) })).toBe(
      'identifier: String must contain at most 1024 character(s)',
    )
    expect(await messageOf({ limit: -1 })).toBe('limit: Number must be greater than or equal to 0')
    expect(await messageOf({ limit: 0 })).toBe('key required')
    expect(await messageOf({ limit: Number.MAX_SAFE_INTEGER })).toBe('key required')
    expect(await messageOf({ limit: 2 ** 53 })).toBe(
      'limit: Number must be less than or equal to 9007199254740991',
    )
    expect(await messageOf({ limit: undefined })).toBe('limit: Required')
    expect(await messageOf({ duration: 999 })).toBe('duration: Number must be greater than or equal to 1000')
    expect(await messageOf({ duration: 3_155_760_000_000 })).toBe('key required')
    expect(await messageOf({ duration: 3_155_760_000_001 })).toBe(
      'duration: Number must be less than or equal to 3155760000000',
    )
    expect(await messageOf({ async: 'true' })).toBe('async: Expected boolean, received string')
  })

  test('a request without a namespace is a 400 that names both fields, before the root key is checked', async () => {
    for (const name of [{}, { namespaceId: '' }, { namespaceId: '', namespaceName: '' }]) {
      const { status, body } = await server.post('ratelimits.setOverride', { ...override, ...name })
      expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
      expect(body.error.message).toContain('namespaceId')
      expect(body.error.message).toContain('namespaceName')
    }
  })

  test('an unknown namespace and one of another workspace are a 404 that names it, and none is created', async () => {
    const [one, other] = [await start(), await start()]
    for (const [name, named] of [
      [{ namespaceId: 'rlns_none', namespaceName: one.namespaceName }, 'rlns_none'],
      [{ namespaceId: other.namespaceId }, other.namespaceId],
      [{ namespaceName: other.namespaceName }, other.namespaceName],
    ] as const) {
      const { status, body } = await server.post(
        'ratelimits.setOverride',
        { ...override, ...name },
        one.rootKey,
      )
      expect([status, body.error.message]).toEqual([404, `namespace ${named} not found`])
    }
    expect((await one.get('ratelimits.listNamespaces')).total).toBe(1)
    expect((await other.list()).total).toBe(0)
  })

  test('setting an override again changes the same one, by either name of the namespace', async () => {
    const { post, list, namespaceId, namespaceName } = await start()
    const first = { identifier: 'user_1', limit: 10, duration: 6500, async: true }
    const { overrideId: id } = await post('ratelimits.setOverride', { namespaceId, ...first })
    expect(id).toMatch(/^rlor_/)
    expect((await list()).overrides).toEqual([{ id, ...first }])
    const second = { ...first, duration: 50_000 }
    expect(await post('ratelimits.setOverride', { namespaceName, ...second })).toEqual({ overrideId: id })
    expect((await list()).overrides).toEqual([{ id, ...second }])
    await post('ratelimits.setOverride', { namespaceId, ...override })
    expect((await list()).overrides).toEqual([{ id, ...override, async: false }])
  })

  test('several concurrent calls for one identifier create one override', async () => {
    const { set, list } = await start()
    const ids = await Promise.all([1, 2, 3, 4].map((limit) => set('user_1', limit)))
    expect(new Set(ids).size).toBe(1)
    expect((await list()).total).toBe(1)
  })

  test('it applies from the next call on, and its deletion too', async () => {
    const { set, limitFor, post, namespaceId } = await start()
    expect(await limitFor('user_1')).toBe(10)
    await set('user_1', 20)
    expect(await limitFor('user_1')).toBe(20)
    await set('user_1', 0)
    expect(await limitFor('user_1')).toBe(0)
    await post('ratelimits.deleteOverride', { namespaceId, identifier: 'user_1' })
    expect(await limitFor('user_1')).toBe(10)
  })

  test('a limit of 0 refuses every call', async () => {
    const { set, post, namespaceName } = await start()
    await set('user_1', 0)
    const body = { namespace: namespaceName, identifier: 'user_1', limit: 10, duration: 60_000 }
    expect(await post('ratelimits.limit', body)).toMatchObject({ success: false, limit: 0, remaining: 0 })
  })

  /** Findings 5.4: a limit for `u1` could not have an override. The last identifier is longer than an index entry. */
  test.each([
    '',
    'u1',
    'u',
    '*',
    'x'.repeat(1024),
    Array.from({ length: 1024 }, (_, i) => String.fromCharCode(0x4e00 + i)).join(''),
  ])('an identifier that can be limited can have an override: %p', async (identifier) => {
    const { set, get, post, list, limitFor, namespaceId } = await start()
    const id = await set(identifier, 20)
    expect(await set(identifier, 21)).toBe(id)
    expect(await limitFor(identifier === '*' ? 'anybody' : identifier)).toBe(21)
    expect(await limitFor(`${identifier}1`.slice(-1024))).toBe(identifier === '*' ? 21 : 10)
    expect(await get('ratelimits.getOverride', { namespaceId, identifier })).toMatchObject({
      id,
      identifier,
      limit: 21,
    })
    expect((await list()).overrides).toMatchObject([{ id, identifier }])
    await post('ratelimits.deleteOverride', { namespaceId, identifier })
    expect(await limitFor(identifier === '*' ? 'anybody' : identifier)).toBe(10)
  })

  test('an exact override beats a pattern, and of patterns the longest decides', async () => {
    const { set, limitFor } = await start()
    await set('*@example.org', 20)
    expect(await limitFor('ann@example.org')).toBe(20)
    await set('ann@*', 21)
    expect(await limitFor('ann@example.org')).toBe(20)
    await set('ann@*example.org', 22)
    expect(await limitFor('ann@example.org')).toBe(22)
    await set('ann@example.org', 30)
    expect(await limitFor('ann@example.org')).toBe(30)
    expect(await limitFor('bob@example.org')).toBe(20)
    expect(await limitFor('bob@example.com')).toBe(10)
    expect(await limitFor('Ann@example.com')).toBe(10)
  })

  test('it applies in its own namespace only', async () => {
    const [one, other] = [await start(), await start()]
    await one.set('user_1', 20)
    expect(await other.limitFor('user_1')).toBe(10)
    const { namespaceId } = await one.post('ratelimits.createNamespace', { name: 'second' })
    expect((await one.get('ratelimits.listOverrides', { namespaceId })).total).toBe(0)
  })

  test('the right may be general or for the namespace, and without it nothing is stored', async () => {
    const { rootKeyWith, namespaceId, list } = await start()
    const answer = async (...rights: string[]) => {
      const body = { namespaceId, ...override }
      const { body: reply } = await server.post('ratelimits.setOverride', body, await rootKeyWith(...rights))
      return reply.error?.code ?? reply.overrideId
    }
    for (const right of ['wrong.role', 'ratelimit.*.view', 'ratelimit.rlns_other.set_override'])
      expect(await answer(right)).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await answer()).toBe('INSUFFICIENT_PERMISSIONS')
    expect((await list()).total).toBe(0)
    const id = await answer('ratelimit.*.set_override', 'another')
    expect(id).toMatch(/^rlor_/)
    expect(await answer(`ratelimit.${namespaceId}.set_override`)).toBe(id)
  })
})

describe('ratelimits.getOverride', () => {
  test('shows all five fields, by id and by name of the namespace', async () => {
    const { set, get, namespaceId, namespaceName } = await start()
    const id = await set('user_*', 5, { async: true })
    const shown = { id, identifier: 'user_*', limit: 5, duration: 60_000, async: true }
    for (const name of [{ namespaceId }, { namespaceName }, { namespaceId, namespaceName: 'other' }])
      expect(await get('ratelimits.getOverride', { ...name, identifier: 'user_*' })).toEqual(shown)
  })

  /** The API itself always stores a value. */
  test('an async that was never set is null here and absent in the list', async () => {
    const { set, get, list, namespaceId } = await start()
    const id = await set('user_1', 5)
    await server.server.deps.sql`update ratelimit_overrides set async = null where id = ${id}`
    const shown = { id, ...override }
    expect(await get('ratelimits.getOverride', { namespaceId, identifier: 'user_1' })).toEqual({
      ...shown,
      async: null,
    })
    expect((await list()).overrides).toEqual([shown])
  })

  test('an empty namespaceId counts as absent, and is refused after the root key is checked', async () => {
    const { rootKey } = await start()
    const query = { namespaceId: '', identifier: 'user_1' }
    expect((await server.get('ratelimits.getOverride', query)).body.error.message).toBe('key required')
    const { status, body } = await server.get('ratelimits.getOverride', query, rootKey)
    expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
    expect(body.error.message).toContain('namespaceId')
  })

  test('an unknown or deleted override and one of another workspace are a 404, and patterns are not applied', async () => {
    const [one, other] = [await start(), await start()]
    await other.set('user_1', 5)
    await one.set('user_*', 5)
    await one.set('deleted', 5)
    const { namespaceId } = one
    await one.post('ratelimits.deleteOverride', { namespaceId, identifier: 'deleted' })
    for (const [query, named] of [
      [{ namespaceId, identifier: 'user_1' }, 'override user_1'],
      [{ namespaceId, identifier: 'deleted' }, 'override deleted'],
      [{ namespaceId: other.namespaceId, identifier: 'user_1' }, `namespace ${other.namespaceId}`],
    ] as const) {
      const { status, body } = await server.get('ratelimits.getOverride', query, one.rootKey)
      expect([status, body.error.message]).toEqual([404, `${named} not found`])
    }
  })
})

describe('ratelimits.listOverrides', () => {
  test('lists the overrides of the namespace by id without deleted ones, and ignores an identifier in the query', async () => {
    const { set, list, post, namespaceId, namespaceName, get } = await start()
    expect(await list()).toEqual({ overrides: [], total: 0 })
    const ids = [await set('user_1', 1), await set('user_2', 2)]
    const deleted = await set('user_3', 3)
    await post('ratelimits.deleteOverride', { namespaceId, identifier: 'user_3' })
    for (const answer of [
      await list(),
      await list({ identifier: 'user_1' }),
      await get('ratelimits.listOverrides', { namespaceName }),
    ]) {
      expect(answer.total).toBe(2)
      expect(answer.overrides.map(({ id }: { id: string }) => id)).toEqual(ids.toSorted())
    }
    expect(await set('user_3', 4)).toBe(deleted) // set again, it comes back
    expect((await list()).total).toBe(3)
  })

  test('pages follow each other, and only the last has no cursor', async () => {
    const { set, list } = await start()
    const ids: string[] = []
    for (let i = 0; i < 5; i++) ids.push(await set(`user_${i}`, i))
    const first = await list({ limit: 2 })
    const second = await list({ limit: 3, cursor: first.cursor })
    expect([...first.overrides, ...second.overrides].map(({ id }) => id)).toEqual(ids.toSorted())
    expect([first.total, second.total]).toEqual([5, 5])
    expect(second).not.toHaveProperty('cursor')
    const message = async (limit: number) =>
      (await server.get('ratelimits.listOverrides', { namespaceId: 'rlns_1', limit })).body.error.message
    expect(await message(0)).toBe('limit: Number must be greater than or equal to 1')
    expect(await message(100)).toBe('key required')
    expect(await message(101)).toBe('limit: Number must be less than or equal to 100')
  })

  test('a request without a namespace is a 400, before the root key is checked', async () => {
    const { status, body } = await server.get('ratelimits.listOverrides', { identifier: 'user_1' })
    expect([status, body.error.code]).toEqual([400, 'BAD_REQUEST'])
  })

  test('an unknown namespace is a 404 that names it', async () => {
    const { rootKey } = await start()
    const { status, body } = await server.get('ratelimits.listOverrides', { namespaceName: 'none' }, rootKey)
    expect([status, body.error.message]).toEqual([404, 'namespace none not found'])
  })

  test.each(['get', 'list'] as const)(
    '%s: the right may be general or for the namespace; without it the call is refused',
    async (verb) => {
      const { set, post, rootKeyWith, namespaceId } = await start()
      await set('user_1', 5)
      const attempt = async (rootKey: string) => {
        const query = { namespaceId, identifier: 'user_1' }
        const method = verb === 'get' ? 'ratelimits.getOverride' : 'ratelimits.listOverrides'
        const { status, body } = await server.get(method, query, rootKey)
        return status === 200 ? 'ok' : `${status} ${body.error.code}`
      }
      expect(await attempt(await rootKeyWith('ratelimit.*.read_override', 'another'))).toBe('ok')
      expect(await attempt(await rootKeyWith(`ratelimit.${namespaceId}.read_override`))).toBe('ok')
      for (const right of ['ratelimit.*.write_override', 'ratelimit.othernamespace.read_override', 'x'])
        expect(await attempt(await rootKeyWith(right))).toBe('403 INSUFFICIENT_PERMISSIONS')
      expect(await attempt(await rootKeyWith())).toBe('403 INSUFFICIENT_PERMISSIONS')
      expect(await attempt('unknown')).toBe('403 UNAUTHORIZED')
      const expired = await post('rootKeys.createRootKey', { permissions: ['*'], expires: 1000 })
      expect(await attempt(expired.rootKey)).toBe('403 EXPIRED')
    },
  )
})

describe('ratelimits.deleteOverride', () => {
  test('a deleted override is gone, and an unknown one is a 404 that names it', async () => {
    const { set, list, post, rootKey, namespaceId, namespaceName } = await start()
    await set('user_1', 5)
    await set('user_2', 5)
    expect(await post('ratelimits.deleteOverride', { namespaceId, identifier: 'user_1' })).toEqual({})
    expect(await post('ratelimits.deleteOverride', { namespaceName, identifier: 'user_2' })).toEqual({})
    expect((await list()).total).toBe(0)
    for (const [body, named] of [
      [{ namespaceId, identifier: 'user_1' }, 'override user_1'],
      [{ namespaceId, identifier: '' }, 'override '],
      [{ namespaceId: 'rlns_none', identifier: 'user_1' }, 'namespace rlns_none'],
    ] as const) {
      const answer = await server.post('ratelimits.deleteOverride', body, rootKey)
      expect([answer.status, answer.body.error.message]).toEqual([404, `${named} not found`])
    }
  })

  test('a request without a namespace is a 400, after the root key is checked', async () => {
    const { rootKey } = await server.workspace()
    const body = { identifier: 'user_1' }
    expect((await server.post('ratelimits.deleteOverride', body)).status).toBe(403)
    expect((await server.post('ratelimits.deleteOverride', body, rootKey)).status).toBe(400)
  })

  test('needs its own right', async () => {
    const { set, list, rootKeyWith, namespaceId } = await start()
    await set('user_1', 5)
    const answer = async (right: string) => {
      const body = { namespaceId, identifier: 'user_1' }
      const { body: reply } = await server.post('ratelimits.deleteOverride', body, await rootKeyWith(right))
      return reply.error?.code ?? 'ok'
    }
    expect(await answer('ratelimit.*.create_override')).toBe('INSUFFICIENT_PERMISSIONS')
    expect(await answer('ratelimit.*.set_override')).toBe('INSUFFICIENT_PERMISSIONS')
    expect((await list()).total).toBe(1)
    expect(await answer('ratelimit.*.delete_override')).toBe('ok')
    await set('user_1', 5)
    expect(await answer(`ratelimit.${namespaceId}.delete_override`)).toBe('ok')
    expect((await list()).total).toBe(0)
  })

  test('setting and deleting are audited', async () => {
    const { set, post, namespaceId, workspaceId } = await start()
    const id = await set('user_1', 5)
    await post('ratelimits.deleteOverride', { namespaceId, identifier: 'user_1' })
    const rows = await server.server.deps.sql`
      select event, resources from audit_events
       where workspace_id = ${workspaceId} and event like '%override' order by event`
    const resources = [
      { type: 'ratelimitNamespace', id: namespaceId },
      { type: 'ratelimitOverride', id },
    ]
    expect([...rows]).toMatchObject([
      { event: 'ratelimit.delete_override', resources },
      { event: 'ratelimit.set_override', resources },
    ])
  })
})
