import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { Overrides, Ratelimit, type RatelimitConfig } from '@unkey/ratelimit'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { HOUR, MISSING, type Setting, settingOf } from './support.ts'

/** `@unkey/ratelimit` 2.x. Only its `baseUrl` has to change. It brings its own version of `@unkey/api`. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const limiterOf = (options: Partial<RatelimitConfig> = {}) =>
  new Ratelimit({
    baseUrl: setting.server.url,
    rootKey: setting.workspace.rootKey,
    namespace: 'package',
    limit: 2,
    duration: '1h',
    timeout: false,
    ...options,
  })
const overridesOf = () => new Overrides({ baseUrl: setting.server.url, rootKey: setting.workspace.rootKey })

test('limit: what passes, what costs more, and what is refused', async () => {
  const limiter = limiterOf({ limit: 5 })
  const first = await limiter.limit('user_1')
  expect(first).toEqual({ success: true, limit: 5, remaining: 4, reset: expect.any(Number) })
  expect(await limiter.limit('user_1', { cost: 3 })).toMatchObject({ success: true, remaining: 1 })
  expect(await limiter.limit('user_1', { cost: 2 })).toMatchObject({ success: false, limit: 5, remaining: 1 })
  const other = { limit: 1, duration: '2h' as const }
  expect(await limiter.limit('user_1', { limit: other })).toMatchObject({ success: true, limit: 1 })
})

/** It answers later calls itself until `reset`, which must therefore be a time that its own clock reaches. */
test('limit: a refusal is remembered until the window ends', async () => {
  const cache = new Map()
  const limiter = limiterOf({ limit: 1, cache })
  await limiter.limit('user_2')
  const refused = await limiter.limit('user_2')
  expect(refused.success).toBe(false)
  expect([...cache.values()]).toEqual([refused])
  expect(await limiter.limit('user_2')).toBe(refused)
  expect(refused.reset % HOUR).toBe(0)
  expect(refused.reset - Date.now()).toBeWithin(0, HOUR + 1)
})

test('limit: without the right, `onError` decides; without `onError` it throws', async () => {
  const rootKey = await setting.workspace.rootKeyWith('ratelimit.*.read_override')
  const fallback = { success: true, limit: 0, remaining: 0, reset: 0 }
  const seen: [string, string][] = []
  const forgiving = limiterOf({
    rootKey,
    onError: ({ message }, identifier) => {
      seen.push([message, identifier])
      return fallback
    },
  })
  expect(await forgiving.limit('user_3')).toEqual(fallback)
  expect(seen).toEqual([[expect.stringContaining('permission'), 'user_3']])
  await expect(limiterOf({ rootKey }).limit('user_3')).rejects.toMatchObject({
    name: 'ForbiddenErrorResponse',
    statusCode: 403,
  })
})

test('limit: while there is no answer, the fallback is given after its time', async () => {
  await using stand = new AsyncDisposableStack()
  const silent = Bun.serve({ port: 0, fetch: () => new Promise<Response>(() => {}) })
  stand.defer(() => silent.stop(true))
  const fallback = { success: true, limit: 0, remaining: 0, reset: 0 }
  const baseUrl = silent.url.origin
  const limiter = limiterOf({ baseUrl, timeout: { ms: 50, fallback: () => fallback } })
  expect(await limiter.limit('user_4')).toEqual(fallback)
})

test('overrides: set, get, list, delete; the limit follows at once', async () => {
  const overrides = overridesOf()
  const limiter = limiterOf()
  const [namespace, identifier] = ['package', 'user_5']
  await limiter.limit(identifier)
  const set = await overrides.setOverride({ namespace, identifier, limit: 9, duration: HOUR })
  const { overrideId } = set.data
  expect(await limiter.limit(identifier)).toMatchObject({ success: true, limit: 9, overrideId })
  const override = { overrideId, identifier, limit: 9, duration: HOUR }
  expect((await overrides.getOverride({ namespace, identifier })).data).toEqual(override)
  expect((await overrides.listOverrides({ namespace })).data).toEqual([override])
  expect((await overrides.deleteOverride({ namespace, identifier })).data).toEqual({})
  expect(await limiter.limit('user_6')).toMatchObject({ limit: 2 })
})

test('overrides: what is refused is thrown', async () => {
  const overrides = overridesOf()
  const request = { namespace: MISSING, identifier: 'user_7' }
  const notFound = { name: 'NotFoundErrorResponse', statusCode: 404 }
  for (const call of [
    () => overrides.setOverride({ ...request, limit: 1, duration: HOUR }),
    () => overrides.getOverride(request),
    () => overrides.listOverrides(request),
    () => overrides.deleteOverride(request),
  ])
    await expect(call()).rejects.toMatchObject(notFound)
})
