import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { Unkey } from '@unkey/api'
import { HTTPClient } from '@unkey/api/lib/http.js'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { failBehindCommits } from '../../support/lost-answers.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import {
  clientOf,
  errors,
  expectRefusal,
  expectUntyped,
  HOUR,
  limitedRootKey,
  type Setting,
  settingOf,
} from './support.ts'

/** Errors that every call of `@unkey/api` 2.x can meet, and what the client does after them by itself. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
let apiId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  apiId = await makeApi(setting.workspace)
})
afterAll(() => setting.server[Symbol.asyncDispose]())

const rootKey = async (fields: Record<string, unknown>): Promise<string> =>
  (await setting.workspace.post('rootKeys.createRootKey', { permissions: ['*'], ...fields })).rootKey
const getApi = (rootKey: string) => clientOf(setting.server, rootKey).apis.getApi({ apiId })

test('no root key, an unknown one, and an ordinary key', async () => {
  const { server, workspace } = setting
  const { key } = await makeKey(workspace, apiId)
  const without = new Unkey({ serverURL: server.url })
  await expectRefusal(
    without.apis.getApi({ apiId }),
    errors.BadRequestErrorResponse,
    'unkey/application/invalid_input',
  )
  for (const each of ['unknown', key])
    await expectRefusal(getApi(each), errors.UnauthorizedErrorResponse, 'unkey/authentication/key_not_found')
})

test('a root key that is disabled, expired, out of credits, or of a disabled workspace', async () => {
  const { server, workspace } = setting
  const disabled = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
  await workspace.post('rootKeys.updateRootKey', { rootKeyId: disabled.rootKeyId, enabled: false })
  await expectRefusal(
    getApi(disabled.rootKey),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/key_disabled',
  )
  const expired = await rootKey({ expires: Date.now() - HOUR })
  await expectRefusal(getApi(expired), errors.ForbiddenErrorResponse, 'unkey/authorization/forbidden')
  const other = await server.workspace()
  await server.server.deps.sql`update workspaces set enabled = false where id = ${other.workspaceId}`
  await expectRefusal(
    getApi(other.rootKey),
    errors.ForbiddenErrorResponse,
    'unkey/authorization/workspace_disabled',
  )
})

/** Version 2.5.1 asks for plain JSON, and then has a class of its own only for a 429 that comes as problem details. */
test('a root key that is rate limited: the call is not repeated', async () => {
  const { unkey, statuses } = watched(await limitedRootKey(setting))
  await unkey.apis.getApi({ apiId })
  await expectUntyped(unkey.apis.getApi({ apiId }), 429, 'user/too_many_requests/workspace_rate_limited')
  expect(statuses).toEqual([200, 429])
})

/** Programs written for the whole of Unkey call them, and must not take them for a broken server. */
test('operations that this server does not have are not found', async () => {
  const { unkey } = setting
  for (const call of [
    () => unkey.projects.getProject({ project: 'proj_12345678' }),
    () => unkey.portal.createSession({ portal: 'portal', externalId: 'user_1', scopes: ['keys:read'] }),
  ])
    await expectRefusal(call(), errors.NotFoundErrorResponse, 'about:blank')
})

test('a base URL with a slash at its end works', async () => {
  const { server, workspace } = setting
  const slash = new Unkey({ rootKey: workspace.rootKey, serverURL: `${server.url}/` })
  expect((await slash.apis.getApi({ apiId })).data.id).toBe(apiId)
})

test('a failure of the server is repeated by the client until the server is well again', async () => {
  const { server, workspace } = setting
  const { sql } = server.server.deps
  const { unkey, statuses, afterEach } = watched(workspace.rootKey)
  await sql`alter table apis rename to apis_away`
  afterEach(async (status) => {
    if (status === 500) await sql`alter table apis_away rename to apis`
  })
  const { data } = await unkey.apis.createApi({ name: 'made once' })
  expect(statuses).toEqual([500, 200])
  const rows = await sql`select id from apis where name = 'made once'`
  expect(rows.map(({ id }) => id)).toEqual([data.apiId])
})

test('a create that was carried out and then failed is made once, and the repetition gets its answer', async () => {
  const { server, workspace } = setting
  const { unkey, statuses, afterEach } = watched(workspace.rootKey)
  const stop = failBehindCommits(server)
  afterEach(async () => stop())
  const { data } = await unkey.keys.createKey({ apiId, name: 'carried out once' })
  expect(statuses).toEqual([500, 200])
  const rows = await server.server.deps.sql`select id from keys where name = 'carried out once'`
  expect(rows.map(({ id }) => id)).toEqual([data.keyId])
  expect((await unkey.keys.verifyKey({ key: data.key })).data.valid).toBe(true)
})

test('a failure that lasts is an error of its own class', async () => {
  const { server, unkey } = setting
  const { sql } = server.server.deps
  await sql`alter table apis rename to apis_away`
  try {
    await expectRefusal(
      unkey.apis.createApi({ name: 'never made' }),
      errors.InternalServerErrorResponse,
      'unkey/application/unexpected_error',
    )
  } finally {
    await sql`alter table apis_away rename to apis`
  }
})

/** A client that repeats calls as it does by default, with the statuses of its attempts. */
function watched(rootKey: string) {
  const statuses: number[] = []
  let listener: (status: number) => Promise<void> = async () => {}
  const httpClient = new HTTPClient()
  httpClient.addHook('response', async ({ status }) => {
    statuses.push(status)
    await listener(status)
  })
  const unkey = new Unkey({ rootKey, serverURL: setting.server.url, httpClient })
  return {
    unkey,
    statuses,
    /** Runs after each attempt, before the client sees its answer. */
    afterEach: (work: typeof listener) => {
      listener = work
    },
  }
}
