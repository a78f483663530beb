import { afterAll, beforeAll, expect, mock, setDefaultTimeout, test } from 'bun:test'
import { createRequire } from 'node:module'
import { unkey as honoMiddleware, type UnkeyConfig, type UnkeyContext } from '@unkey/hono'
import { Hono } from 'hono'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { limitedRootKey, type Setting, settingOf } from './support.ts'

/**
 * `@unkey/hono` and `@unkey/nextjs` 2.x. Neither has an option for the server, so the list of servers in their copy of the
 * client is changed, as `docs/how-to/from-unkey.md` says.
 */
setDefaultTimeout(SLOW_MS)

// Both load the CommonJS build, which has a list of its own.
const { ServerList }: { ServerList: string[] } = createRequire(import.meta.url)('@unkey/api/lib/config.js')
const [publicServer = ''] = ServerList

let setting: Setting
let key: string
let keyId: string
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
  ServerList[0] = setting.server.url
  ;({ key, keyId } = await makeKey(setting.workspace, await makeApi(setting.workspace)))
})
afterAll(async () => {
  ServerList[0] = publicServer
  await setting.server[Symbol.asyncDispose]()
})

const asking = (key: string) =>
  new Request('http://localhost/', { headers: { authorization: `Bearer ${key}` } })

const honoApp = (config: Partial<UnkeyConfig> = {}) =>
  new Hono<{ Variables: { unkey: UnkeyContext } }>()
    .use('*', honoMiddleware({ rootKey: setting.workspace.rootKey, ...config }))
    .get('/', (c) => c.json(c.get('unkey').data))

test('hono: the verdict of a key is in the context, also that of a refused one', async () => {
  const app = honoApp()
  expect(await (await app.fetch(asking(key))).json()).toMatchObject({ valid: true, code: 'VALID', keyId })
  const refused = await app.fetch(asking('unknown'))
  expect([refused.status, await refused.json()]).toEqual([200, { valid: false, code: 'NOT_FOUND' }])
  expect((await app.fetch(new Request('http://localhost/'))).status).toBe(401)
})

test('hono: `handleInvalidKey` refuses, with permissions and tags too', async () => {
  const app = honoApp({
    permissions: 'sdk.none',
    tags: ['path=/'],
    handleInvalidKey: (c, { data }) => c.json({ code: data.code }, 403),
  })
  const refused = await app.fetch(asking(key))
  expect([refused.status, await refused.json()]).toEqual([403, { code: 'INSUFFICIENT_PERMISSIONS' }])
})

/** The errors with classes of their own do not reach `onError`: of those of this call, only 429 does. */
test('hono: `onError` gets the refusal of a rate limited root key; others are a 500', async () => {
  const rootKey = await limitedRootKey(setting)
  const app = honoApp({ rootKey, onError: (c, { statusCode }) => c.json({ statusCode }, 503) })
  expect((await app.fetch(asking(key))).status).toBe(200)
  const refused = await app.fetch(asking(key))
  expect([refused.status, await refused.json()]).toEqual([503, { statusCode: 429 }])
  expect((await honoApp({ rootKey: 'unknown' }).fetch(asking(key))).status).toBe(500)
})

/** Of Next.js it needs one class, and the package has 150 MB. */
async function nextHandler(rootKey = setting.workspace.rootKey) {
  mock.module('next/server', () => ({ NextResponse: Response }))
  const { withUnkey } = await import('@unkey/nextjs')
  const handler = withUnkey(({ unkey }) => Response.json(unkey.data), { rootKey })
  return (request: Request) => handler(request, { params: Promise.resolve({}) })
}

test('nextjs: a valid key passes, any other gets 401', async () => {
  const handler = await nextHandler()
  expect(await (await handler(asking(key))).json()).toMatchObject({ valid: true, code: 'VALID', keyId })
  expect((await handler(asking('unknown'))).status).toBe(401)
  expect((await handler(new Request('http://localhost/'))).status).toBe(401)
})

test('nextjs: an unknown root key is thrown', async () => {
  const handler = await nextHandler('unknown')
  await expect(handler(asking(key))).rejects.toMatchObject({ name: 'UnauthorizedErrorResponse' })
})
