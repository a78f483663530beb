import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientWith,
  errors,
  expectRefusal,
  expectUntyped,
  MISSING,
  pagesOf,
  type Setting,
  settingOf,
} from './support.ts'

/** `unkey.apis` of `@unkey/api` 2.x: the keys of an API. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

test('apis.listKeys, page by page', async () => {
  const { unkey, workspace } = setting
  const apiId = await makeApi(workspace)
  const made: string[] = []
  for (const name of ['a', 'b', 'c', 'd', 'e'])
    made.push((await makeKey(workspace, apiId, { name, externalId: `of_${name}` })).keyId)
  const pages = await pagesOf(unkey.apis.listKeys({ apiId, limit: 2 }))
  expect(pages.map(({ length }) => length)).toEqual([2, 2, 1])
  expect(pages.flat().map(({ keyId }) => keyId)).toEqual(made.toSorted())
  const first = pages.flat().find(({ name }) => name === 'a')
  expect(first).toMatchObject({ enabled: true, identity: { externalId: 'of_a' } })
  expect(await pagesOf(unkey.apis.listKeys({ apiId, externalId: 'of_c' }))).toMatchObject([[{ name: 'c' }]])
  expect(await pagesOf(unkey.apis.listKeys({ apiId, externalId: 'nobody' }))).toEqual([[]])
})

test('apis.listKeys: the texts of recoverable keys', async () => {
  const { unkey, workspace } = setting
  const apiId = await makeApi(workspace)
  const { key } = await makeKey(workspace, apiId, { recoverable: true })
  expect(await pagesOf(unkey.apis.listKeys({ apiId, decrypt: true }))).toMatchObject([[{ plaintext: key }]])
  const reader = await clientWith(setting, 'api.*.read_key', 'api.*.read_api')
  await expectRefusal(
    reader.apis.listKeys({ apiId, decrypt: true }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})

test('apis.listKeys of an API that is not there, or not for this root key', async () => {
  const { unkey, workspace } = setting
  const stranger = await clientWith(setting, 'api.*.read_api')
  const calls = [[unkey, MISSING] as const, [stranger, await makeApi(workspace)] as const]
  for (const [client, apiId] of calls)
    await expectRefusal(
      client.apis.listKeys({ apiId }),
      errors.NotFoundErrorResponse,
      'unkey/data/api_not_found',
    )
  await expectUntyped(
    unkey.apis.listKeys({ apiId: await closedApi(), decrypt: true }),
    412,
    'unkey/application/precondition_failed',
  )
})

/** An API whose keys cannot be recovered. */
const closedApi = () => makeApi(setting.workspace, { storeEncryptedKeys: false })
