import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientWith,
  errors,
  expectRefusal,
  expectUntyped,
  MINUTE,
  MISSING,
  pagesOf,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.identities` of `@unkey/api` 2.x. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const LIMIT = { name: 'requests', limit: 10, duration: MINUTE, autoApply: true }
const notFound = (call: Promise<unknown>) =>
  expectRefusal(call, errors.NotFoundErrorResponse, 'unkey/data/identity_not_found')

test('identities.createIdentity', async () => {
  const { unkey } = setting
  const request = { externalId: 'user_created', meta: { plan: 'pro' }, ratelimits: [LIMIT] }
  const { data } = await unkey.identities.createIdentity(request)
  expect(data).toEqual({ identityId: expect.stringMatching(/^id_/) })
  const taken = await expectRefusal(
    unkey.identities.createIdentity(request),
    errors.ConflictErrorResponse,
    'unkey/data/identity_already_exists',
  )
  expect(taken.error.detail).toContain('user_created')
  await expectRefusal(
    unkey.identities.createIdentity({ externalId: '' }),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
})

test('identities.getIdentity, by id and by external id', async () => {
  const { unkey } = setting
  const { data } = await unkey.identities.createIdentity({
    externalId: 'user_got',
    meta: { plan: 'pro' },
    ratelimits: [LIMIT],
  })
  const expected = {
    id: data.identityId,
    externalId: 'user_got',
    meta: { plan: 'pro' },
    ratelimits: [{ id: expect.stringMatching(/^rl_/), ...LIMIT }],
  }
  for (const identity of [data.identityId, 'user_got'])
    expect((await unkey.identities.getIdentity({ identity })).data).toEqual(expected)
  await notFound(unkey.identities.getIdentity({ identity: MISSING }))
  const other = await clientWith(setting, 'identity.*.create_identity')
  await expectRefusal(
    other.identities.getIdentity({ identity: 'user_got' }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})

test('identities.listIdentities, page by page, and by a search', async () => {
  const own = await settingOf(setting.server)
  const { unkey } = own
  for (const name of ['ada', 'bob', 'cyd', 'dan', 'eve'])
    await unkey.identities.createIdentity({ externalId: `list_${name}`, meta: { name }, ratelimits: [LIMIT] })
  const pages = await pagesOf(unkey.identities.listIdentities({ limit: 2 }))
  expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
  const ada = pages.flat().find(({ externalId }) => externalId === 'list_ada')
  expect(ada).toMatchObject({ meta: { name: 'ada' }, ratelimits: [LIMIT] })
  expect(await pagesOf(unkey.identities.listIdentities({ search: 'T_CYD' }))).toMatchObject([
    [{ externalId: 'list_cyd' }],
  ])
  const other = await clientWith(own, 'api.*.read_key')
  await expectRefusal(
    other.identities.listIdentities({}),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})

test('identities.updateIdentity', async () => {
  const { unkey } = setting
  await unkey.identities.createIdentity({ externalId: 'user_updated', ratelimits: [LIMIT] })
  const { data } = await unkey.identities.updateIdentity({
    identity: 'user_updated',
    meta: { plan: 'free' },
    ratelimits: [{ ...LIMIT, limit: 20 }],
  })
  expect(data).toEqual({
    id: data.id,
    externalId: 'user_updated',
    meta: { plan: 'free' },
    ratelimits: [{ id: expect.any(String), ...LIMIT, limit: 20 }],
  })
  const emptied = await unkey.identities.updateIdentity({ identity: data.id, meta: {}, ratelimits: [] })
  expect(emptied.data).toEqual({ id: data.id, externalId: 'user_updated' })
  await notFound(unkey.identities.updateIdentity({ identity: MISSING, meta: {} }))
  await expectRefusal(
    unkey.identities.updateIdentity({ identity: 'user_updated', ratelimits: [LIMIT, LIMIT] }),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
})

/** Version 2.5.1 asks for plain JSON, and then has its own classes only for errors that come as problem details. */
test('identities.deleteIdentity', async () => {
  const { unkey } = setting
  await unkey.identities.createIdentity({ externalId: 'user_deleted' })
  const { meta } = await unkey.identities.deleteIdentity({ identity: 'user_deleted' })
  expect(meta.requestId).toStartWith('req_')
  await expectUntyped(
    unkey.identities.deleteIdentity({ identity: 'user_deleted' }),
    404,
    'unkey/data/identity_not_found',
  )
})
