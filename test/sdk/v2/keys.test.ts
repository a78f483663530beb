import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientWith,
  errors,
  expectRefusal,
  expectUntyped,
  HOUR,
  MINUTE,
  MISSING,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.keys` of `@unkey/api` 2.x: keys themselves. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
let apiId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  apiId = await makeApi(setting.workspace)
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const keyNotFound = (call: Promise<unknown>) =>
  expectRefusal(call, errors.NotFoundErrorResponse, 'unkey/data/key_not_found')
const invalid = (call: Promise<unknown>) =>
  expectRefusal(call, errors.BadRequestErrorResponse, 'unkey/application/invalid_input')

test('keys.createKey', async () => {
  const { unkey } = setting
  const { data } = await unkey.keys.createKey({ apiId, prefix: 'sk' })
  expect(data).toEqual({ keyId: expect.stringMatching(/^key_/), key: expect.stringMatching(/^sk_/) })
  await expectRefusal(
    unkey.keys.createKey({ apiId: MISSING }),
    errors.NotFoundErrorResponse,
    'unkey/data/api_not_found',
  )
  await expectRefusal(
    unkey.keys.createKey({ apiId, roles: ['no such role'] }),
    errors.NotFoundErrorResponse,
    'unkey/data/role_not_found',
  )
  expect((await invalid(unkey.keys.createKey({ apiId, byteLength: 15 }))).error.errors).toMatchObject([
    { location: '/properties/byteLength/minimum' },
  ])
})

test('keys.createKey, keys.getKey: every field that a key can have', async () => {
  const { unkey, workspace } = setting
  await workspace.post('permissions.createRole', { name: 'sdk editor' })
  const wanted = {
    name: 'production',
    meta: { plan: 'pro', nested: { deep: [1, 'two', true, null] } },
    expires: Date.now() + HOUR,
    credits: { remaining: 100, refill: { interval: 'monthly' as const, amount: 50, refillDay: 15 } },
    enabled: false,
  }
  const { data } = await unkey.keys.createKey({
    ...wanted,
    apiId,
    prefix: 'full',
    byteLength: 24,
    externalId: 'user_full',
    roles: ['sdk editor'],
    permissions: ['sdk.read', 'sdk.write'],
    ratelimits: [
      { name: 'requests', limit: 10, duration: MINUTE, autoApply: true },
      { name: 'tokens', limit: 1000, duration: HOUR, autoApply: false },
    ],
    recoverable: true,
  })
  const shown = (await unkey.keys.getKey({ keyId: data.keyId, decrypt: true })).data
  expect(shown).toMatchObject({
    ...wanted,
    keyId: data.keyId,
    plaintext: data.key,
    start: data.key.slice(0, shown.start.length),
    createdAt: expect.any(Number),
    roles: ['sdk editor'],
    identity: { id: expect.stringMatching(/^id_/), externalId: 'user_full' },
  })
  expect(shown.permissions?.toSorted()).toEqual(['sdk.read', 'sdk.write'])
  expect(shown.ratelimits?.toSorted((one, other) => one.name.localeCompare(other.name))).toEqual([
    {
      id: expect.stringMatching(/^rl_/),
      name: 'requests',
      limit: 10,
      duration: MINUTE,
      autoApply: true,
    },
    { id: expect.stringMatching(/^rl_/), name: 'tokens', limit: 1000, duration: HOUR, autoApply: false },
  ])
})

/** The client refuses a `null` where it expects an absent member. */
test('keys.getKey: a key without anything has no empty members', async () => {
  const { unkey, workspace } = setting
  const { keyId } = await makeKey(workspace, apiId)
  expect((await unkey.keys.getKey({ keyId })).data).toEqual({
    keyId,
    start: expect.any(String),
    enabled: true,
    createdAt: expect.any(Number),
  })
})

test('keys.getKey', async () => {
  const { unkey, workspace } = setting
  await keyNotFound(unkey.keys.getKey({ keyId: MISSING }))
  const { keyId } = await makeKey(workspace, apiId)
  const other = await clientWith(setting, 'api.*.update_key')
  await expectRefusal(
    other.keys.getKey({ keyId }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
  const closed = await makeApi(workspace, { storeEncryptedKeys: false })
  await expectUntyped(
    unkey.keys.getKey({ keyId: (await makeKey(workspace, closed)).keyId, decrypt: true }),
    412,
    'unkey/application/precondition_failed',
  )
})

test('keys.whoami', async () => {
  const { unkey, workspace } = setting
  const { key, keyId } = await makeKey(workspace, apiId, { name: 'me', remaining: 3 })
  expect((await unkey.keys.whoami({ key })).data).toMatchObject({
    keyId,
    name: 'me',
    credits: { remaining: 3 },
  })
  await keyNotFound(unkey.keys.whoami({ key: 'nobody' }))
  await invalid(unkey.keys.whoami({ key: '' }))
})

test('keys.updateKey sets, clears and keeps', async () => {
  const { unkey, workspace } = setting
  const { keyId } = await makeKey(workspace, apiId, { name: 'old', meta: { a: 1 }, externalId: 'user_old' })
  const update = async (changes: Omit<Parameters<typeof unkey.keys.updateKey>[0], 'keyId'>) => {
    expect((await unkey.keys.updateKey({ keyId, ...changes })).data).toEqual({})
    return (await unkey.keys.getKey({ keyId })).data
  }
  const set = await update({
    name: 'new',
    credits: { remaining: 5, refill: { interval: 'daily', amount: 7 } },
    ratelimits: [{ name: 'requests', limit: 1, duration: MINUTE, autoApply: true }],
    permissions: ['sdk.updated'],
  })
  expect(set).toMatchObject({
    name: 'new',
    meta: { a: 1 },
    identity: { externalId: 'user_old' },
    credits: { remaining: 5, refill: { interval: 'daily', amount: 7 } },
    ratelimits: [{ name: 'requests', limit: 1 }],
    permissions: ['sdk.updated'],
    updatedAt: expect.any(Number),
  })
  expect(set.credits?.refill).not.toHaveProperty('refillDay')
  const cleared = await update({
    name: null,
    meta: null,
    externalId: null,
    credits: null,
    ratelimits: [],
    permissions: [],
    enabled: false,
  })
  expect(cleared).toEqual({
    keyId,
    start: expect.any(String),
    enabled: false,
    createdAt: expect.any(Number),
    updatedAt: expect.any(Number),
  })
  await keyNotFound(unkey.keys.updateKey({ keyId: MISSING, name: 'new' }))
  await invalid(
    unkey.keys.updateKey({ keyId, credits: { remaining: 1, refill: { interval: 'monthly', amount: 1 } } }),
  )
})

test('keys.updateCredits', async () => {
  const { unkey, workspace } = setting
  const { keyId } = await makeKey(workspace, apiId)
  const change = async (operation: 'set' | 'increment' | 'decrement', value?: number | null) =>
    (await unkey.keys.updateCredits({ keyId, operation, value })).data
  await invalid(unkey.keys.updateCredits({ keyId, operation: 'increment', value: 1 }))
  expect(await change('set', 50)).toEqual({ remaining: 50 })
  expect(await change('increment', 10)).toEqual({ remaining: 60 })
  expect(await change('decrement', 100)).toEqual({ remaining: 0 })
  expect(await change('set', null)).toEqual({ remaining: null })
  await unkey.keys.updateKey({
    keyId,
    credits: { remaining: 1, refill: { interval: 'monthly', amount: 9, refillDay: 31 } },
  })
  expect(await change('set', 2)).toEqual({
    remaining: 2,
    refill: { interval: 'monthly', amount: 9, refillDay: 31 },
  })
  await keyNotFound(unkey.keys.updateCredits({ keyId: MISSING, operation: 'set', value: 1 }))
})

test('keys.deleteKey', async () => {
  const { unkey, workspace } = setting
  for (const permanent of [false, true]) {
    const { keyId } = await makeKey(workspace, apiId)
    expect((await unkey.keys.deleteKey({ keyId, permanent })).data).toEqual({})
    await keyNotFound(unkey.keys.deleteKey({ keyId, permanent }))
  }
})
