import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientOf,
  clientWith,
  errors,
  expectRefusal,
  expectUntyped,
  HOUR,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.keys.verifyKey` of `@unkey/api` 2.x. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
let apiId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  apiId = await makeApi(setting.workspace)
})
afterAll(() => setting.server[Symbol.asyncDispose]())

test('keys.verifyKey: everything that is said of a valid key', async () => {
  const { unkey, workspace } = setting
  await workspace.post('identities.createIdentity', { externalId: 'user_verified', meta: { plan: 'pro' } })
  const expires = Date.now() + HOUR
  const { key, keyId } = await makeKey(workspace, apiId, {
    name: 'production',
    meta: { a: 1 },
    expires,
    externalId: 'user_verified',
    remaining: 10,
    ratelimit: { limit: 5, duration: HOUR },
    permissions: await permissionsOf('sdk.read'),
  })
  const { data, meta } = await unkey.keys.verifyKey({
    key,
    tags: ['path=/documents'],
    permissions: 'sdk.read AND (sdk.read OR sdk.write)',
    credits: { cost: 3 },
    ratelimits: [{ name: 'adhoc', limit: 100, duration: HOUR, cost: 4 }],
  })
  expect(meta.requestId).toStartWith('req_')
  expect(data).toMatchObject({
    valid: true,
    code: 'VALID',
    keyId,
    name: 'production',
    meta: { a: 1 },
    expires,
    credits: 7,
    enabled: true,
    permissions: ['sdk.read'],
    identity: { id: expect.any(String), externalId: 'user_verified', meta: { plan: 'pro' } },
  })
  expect(data.ratelimits?.toSorted((one, other) => one.name.localeCompare(other.name))).toMatchObject([
    { id: '', name: 'adhoc', limit: 100, remaining: 96, exceeded: false, autoApply: false, duration: HOUR },
    { id: expect.stringMatching(/^rl_/), name: 'default', limit: 5, remaining: 4, autoApply: true },
  ])
})

/** The client refuses a `null`, so what a key does not have must be absent. */
test('keys.verifyKey: a key without anything', async () => {
  const { unkey, workspace } = setting
  const { key, keyId } = await makeKey(workspace, apiId)
  expect((await unkey.keys.verifyKey({ key })).data).toEqual({
    valid: true,
    code: 'VALID',
    keyId,
    enabled: true,
  })
})

test('keys.verifyKey: each refusal is an answer, not an error', async () => {
  const { unkey, workspace } = setting
  const codeOf = async (
    fields: Record<string, unknown>,
    request: Omit<Parameters<typeof unkey.keys.verifyKey>[0], 'key'> = {},
  ) => {
    const { key } = await makeKey(workspace, apiId, fields)
    const { data } = await unkey.keys.verifyKey({ key, ...request })
    expect(data.valid).toBe(false)
    return data.code
  }
  expect(await codeOf({ enabled: false })).toBe('DISABLED')
  expect(await codeOf({ expires: Date.now() - HOUR })).toBe('EXPIRED')
  expect(await codeOf({}, { permissions: 'sdk.none' })).toBe('INSUFFICIENT_PERMISSIONS')
  expect(await codeOf({ remaining: 1 }, { credits: { cost: 2 } })).toBe('USAGE_EXCEEDED')
  expect(
    await codeOf({ ratelimit: { limit: 1, duration: HOUR } }, { ratelimits: [{ name: 'default', cost: 2 }] }),
  ).toBe('RATE_LIMITED')
  const unknown = await unkey.keys.verifyKey({ key: 'unknown' })
  expect(unknown.data).toEqual({ valid: false, code: 'NOT_FOUND' })
})

/** Whether a key exists is not told to those who may not verify it. */
test('keys.verifyKey: a root key without the right, and one of another workspace, find nothing', async () => {
  const { server, workspace } = setting
  const { key } = await makeKey(workspace, apiId)
  const reader = await clientWith(setting, 'api.*.read_key')
  expect((await reader.keys.verifyKey({ key })).data).toEqual({ valid: false, code: 'NOT_FOUND' })
  const { rootKey } = await server.workspace()
  expect((await clientOf(server, rootKey).keys.verifyKey({ key })).data.code).toBe('NOT_FOUND')
  const verifier = await clientWith(setting, `api.${apiId}.verify_key`)
  expect((await verifier.keys.verifyKey({ key })).data.code).toBe('VALID')
})

test('keys.verifyKey: errors', async () => {
  const { unkey, workspace } = setting
  const { key } = await makeKey(workspace, apiId)
  await expectRefusal(
    unkey.keys.verifyKey({ key: '' }),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
  await expectRefusal(
    unkey.keys.verifyKey({ key, permissions: 'a AND' }),
    errors.BadRequestErrorResponse,
    'user/bad_request/permissions_query_syntax_error',
  )
  await expectUntyped(
    unkey.keys.verifyKey({ key, ratelimits: [{ name: 'no such limit' }] }),
    412,
    'unkey/application/precondition_failed',
  )
})

/** Ids of the permissions are v1's; a key made through v1 names them by slug. */
async function permissionsOf(...all: string[]) {
  for (const slug of all) await setting.workspace.post('permissions.createPermission', { name: slug, slug })
  return all
}
