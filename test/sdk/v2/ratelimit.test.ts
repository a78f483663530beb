import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientWith,
  errors,
  expectRefusal,
  HOUR,
  MISSING,
  pagesOf,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.ratelimit` of `@unkey/api` 2.x. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  await setting.workspace.post('ratelimits.createNamespace', { name: 'sdk' })
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const limit = (identifier: string, fields: { limit?: number; cost?: number; namespace?: string } = {}) => ({
  namespace: 'sdk',
  identifier,
  limit: 2,
  duration: HOUR,
  ...fields,
})
const override = (identifier: string, fields: { namespace?: string } = {}) => ({
  namespace: 'sdk',
  identifier,
  limit: 7,
  duration: HOUR,
  ...fields,
})

test('ratelimit.limit', async () => {
  const { unkey } = setting
  const passed = (await unkey.ratelimit.limit(limit('limited'))).data
  expect(passed).toEqual({ success: true, limit: 2, remaining: 1, reset: expect.any(Number) })
  expect(passed.reset).toBeGreaterThan(Date.now())
  expect((await unkey.ratelimit.limit(limit('limited', { cost: 2 }))).data).toMatchObject({
    success: false,
    remaining: 1,
  })
  await expectRefusal(
    unkey.ratelimit.limit(limit('limited', { limit: 0 })),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
  const limiter = await clientWith(setting, 'ratelimit.*.limit')
  const refused = await expectRefusal(
    limiter.ratelimit.limit(limit('limited', { namespace: 'not yet' })),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
  expect(refused.error.detail).toContain('create_namespace')
})

test('ratelimit.limit, in a namespace that was deleted', async () => {
  const { unkey, workspace } = setting
  const { namespaceId } = await workspace.post('ratelimits.createNamespace', { name: 'gone' })
  await workspace.post('ratelimits.deleteNamespace', { namespaceId })
  for (const call of [
    () => unkey.ratelimit.limit(limit('any', { namespace: 'gone' })),
    () => unkey.ratelimit.multiLimit([limit('any', { namespace: 'gone' })]),
  ])
    await expectRefusal(call(), errors.GoneErrorResponse, 'unkey/data/ratelimit_namespace_gone')
})

test('ratelimit.multiLimit: all or nothing', async () => {
  const { unkey } = setting
  const all = [limit('first'), limit('second', { limit: 1 }), limit('third')]
  expect((await unkey.ratelimit.multiLimit(all)).data).toMatchObject({
    passed: true,
    limits: [
      { namespace: 'sdk', identifier: 'first', passed: true, remaining: 1 },
      { identifier: 'second', passed: true, remaining: 0 },
      { identifier: 'third', passed: true, remaining: 1 },
    ],
  })
  expect((await unkey.ratelimit.multiLimit(all)).data).toMatchObject({
    passed: false,
    limits: [
      { passed: true, remaining: 1 },
      { passed: false, remaining: 0 },
      { passed: true, remaining: 1 },
    ],
  })
  await expectRefusal(
    unkey.ratelimit.multiLimit([]),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
})

test('ratelimit.setOverride, ratelimit.getOverride, ratelimit.deleteOverride', async () => {
  const { unkey } = setting
  const { overrideId } = (await unkey.ratelimit.setOverride(override('*@example.com'))).data
  expect(overrideId).toStartWith('rlor_')
  const found = await unkey.ratelimit.getOverride({ namespace: 'sdk', identifier: 'ada@example.com' })
  expect(found.data).toEqual({ overrideId, identifier: '*@example.com', limit: 7, duration: HOUR })
  expect((await unkey.ratelimit.limit(limit('ada@example.com'))).data).toMatchObject({ limit: 7, overrideId })
  const request = { namespace: 'sdk', identifier: '*@example.com' }
  expect((await unkey.ratelimit.deleteOverride(request)).data).toEqual({})
  for (const call of ['getOverride', 'deleteOverride'] as const)
    await expectRefusal(
      unkey.ratelimit[call](request),
      errors.NotFoundErrorResponse,
      'unkey/data/ratelimit_override_not_found',
    )
  for (const call of [
    () => unkey.ratelimit.setOverride(override('any', { namespace: MISSING })),
    () => unkey.ratelimit.getOverride({ ...request, namespace: MISSING }),
    () => unkey.ratelimit.deleteOverride({ ...request, namespace: MISSING }),
  ])
    await expectRefusal(call(), errors.NotFoundErrorResponse, 'unkey/data/ratelimit_namespace_not_found')
})

test('ratelimit.listOverrides, page by page', async () => {
  const { unkey, workspace } = setting
  await workspace.post('ratelimits.createNamespace', { name: 'listed' })
  const none = await pagesOf(unkey.ratelimit.listOverrides({ namespace: 'listed' }))
  expect(none).toEqual([[]])
  for (const name of ['a', 'b', 'c', 'd', 'e'])
    await unkey.ratelimit.setOverride(override(`user_${name}`, { namespace: 'listed' }))
  const pages = await pagesOf(unkey.ratelimit.listOverrides({ namespace: 'listed', limit: 2 }))
  expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
  expect(
    pages
      .flat()
      .map(({ identifier }) => identifier)
      .toSorted(),
  ).toEqual(['user_a', 'user_b', 'user_c', 'user_d', 'user_e'])
  expect(pages[0]?.[0]).toMatchObject({ limit: 7, duration: HOUR })
  await expectRefusal(
    unkey.ratelimit.listOverrides({ namespace: MISSING }),
    errors.NotFoundErrorResponse,
    'unkey/data/ratelimit_namespace_not_found',
  )
})
