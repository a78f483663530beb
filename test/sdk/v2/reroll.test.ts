import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { clientWith, errors, expectRefusal, MINUTE, MISSING, type Setting, settingOf } from './support.ts'

/** `unkey.keys` of `@unkey/api` 2.x: a key gets a successor. */
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

test('keys.rerollKey: the new key is the old one with another text', async () => {
  const { unkey } = setting
  const { data: old } = await unkey.keys.createKey({
    apiId,
    prefix: 'my_app',
    name: 'rolled',
    externalId: 'user_rolled',
    credits: { remaining: 9 },
    permissions: ['sdk.rolled'],
    ratelimits: [{ name: 'requests', limit: 10, duration: MINUTE, autoApply: true }],
  })
  const { data: rolled } = await unkey.keys.rerollKey({ keyId: old.keyId, expiration: 0 })
  expect(rolled).toEqual({
    keyId: expect.stringMatching(/^key_/),
    key: expect.stringMatching(/^my_app_/),
  })
  expect(rolled.keyId).not.toBe(old.keyId)
  expect((await unkey.keys.verifyKey({ key: old.key })).data.code).toBe('EXPIRED')
  expect((await unkey.keys.verifyKey({ key: rolled.key })).data).toMatchObject({
    code: 'VALID',
    name: 'rolled',
    credits: 8,
    permissions: ['sdk.rolled'],
    identity: { externalId: 'user_rolled' },
    ratelimits: [{ name: 'requests', remaining: 9 }],
  })
  await keyNotFound(unkey.keys.rerollKey({ keyId: MISSING, expiration: 0 }))
  const reader = await clientWith(setting, 'api.*.read_key')
  await expectRefusal(
    reader.keys.rerollKey({ keyId: rolled.keyId, expiration: 0 }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})
