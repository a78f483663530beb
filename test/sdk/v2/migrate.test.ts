import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { clientWith, errors, expectRefusal, MINUTE, type Setting, settingOf } from './support.ts'

/** `unkey.keys` of `@unkey/api` 2.x: keys come from another system. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
let apiId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  apiId = await makeApi(setting.workspace)
})
afterAll(() => setting.server[Symbol.asyncDispose]())

test('keys.migrateKeys: hashes that are new become keys, the others are listed', async () => {
  const { unkey } = setting
  const text = `old_${crypto.randomUUID()}`
  const hash = Bun.SHA256.hash(text, 'base64')
  const key = {
    hash,
    externalId: 'user_old',
    roles: ['from the old system'],
    ratelimits: [{ name: 'requests', limit: 10, duration: MINUTE, autoApply: true }],
  }
  const request = { migrationId: 'from-the-old-system', apiId, keys: [key] }
  const { data } = await unkey.keys.migrateKeys(request)
  expect(data).toEqual({ migrated: [{ hash, keyId: expect.stringMatching(/^key_/) }], failed: [] })
  expect((await unkey.keys.verifyKey({ key: text })).data).toMatchObject({
    code: 'VALID',
    roles: ['from the old system'],
    identity: { externalId: 'user_old' },
  })
  expect((await unkey.keys.migrateKeys(request)).data).toEqual({ migrated: [], failed: [hash] })

  const reader = await clientWith(setting, 'api.*.read_key')
  await expectRefusal(
    reader.keys.migrateKeys(request),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})
