import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { clientWith, errors, expectRefusal, MISSING, type Setting, settingOf } from './support.ts'

/** `unkey.apis` of `@unkey/api` 2.x: APIs themselves. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

test('apis.createApi', async () => {
  const { unkey } = setting
  const { data } = await unkey.apis.createApi({ name: 'from the client' })
  expect(data).toEqual({ apiId: expect.stringMatching(/^api_/) })
  const refused = await expectRefusal(
    unkey.apis.createApi({ name: 'ab' }),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
  expect(refused.error.errors).toEqual([
    { location: '/properties/name/minLength', message: 'minLength: got 2, want 3' },
  ])
})

test('apis.getApi', async () => {
  const { unkey, workspace } = setting
  const apiId = await makeApi(workspace)
  expect((await unkey.apis.getApi({ apiId })).data).toEqual({ id: apiId, name: 'test api' })
  await expectRefusal(
    unkey.apis.getApi({ apiId: MISSING }),
    errors.NotFoundErrorResponse,
    'unkey/data/api_not_found',
  )
  const other = await clientWith(setting, 'api.*.create_api')
  await expectRefusal(
    other.apis.getApi({ apiId }),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/insufficient_permissions',
  )
})

test('apis.deleteApi', async () => {
  const { unkey, workspace } = setting
  const apiId = await makeApi(workspace)
  expect((await unkey.apis.deleteApi({ apiId })).data).toEqual({})
  await expectRefusal(
    unkey.apis.deleteApi({ apiId }),
    errors.NotFoundErrorResponse,
    'unkey/data/api_not_found',
  )
  await expectRefusal(
    unkey.apis.deleteApi({ apiId: await makeApi(workspace, { deleteProtection: true }) }),
    errors.PreconditionFailedErrorResponse,
    'unkey/application/protected_resource',
  )
})
