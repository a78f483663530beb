import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

test('any root key learns what it is and may, and nothing of its text', async () => {
  const workspace = await server.workspace()
  const expires = Date.now() + 3_600_000
  const permissions = ['api.*.read_api', 'ratelimit.*.limit']
  const { rootKey, rootKeyId } = await workspace.post('rootKeys.createRootKey', {
    name: 'billing',
    permissions,
    expires,
  })
  const { status, body } = await server.get('rootKeys.whoami', {}, rootKey)
  expect(status).toBe(200)
  const { workspaceId } = workspace
  expect(body).toEqual({
    rootKeyId,
    name: 'billing',
    workspaceId,
    workspaceName: expect.stringMatching(/^test /),
    permissions,
    isOperator: false,
    expires,
  })
  const nameless = await workspace.rootKeyWith()
  const answer = await server.get('rootKeys.whoami', {}, nameless)
  expect(answer.body).not.toHaveProperty('name')
  expect(answer.body).toMatchObject({ permissions: [] })
})

test('the operator’s says that it is one, in the workspace default', async () => {
  const { body } = await server.get('rootKeys.whoami', {}, OPERATOR_KEY)
  expect(body).toMatchObject({ workspaceName: 'default', isOperator: true, permissions: ['*'] })
  expect(body).not.toHaveProperty('expires')
})

test('a change is seen by the next call', async () => {
  const workspace = await server.workspace()
  const rootKey = await workspace.rootKeyWith('*')
  const { body } = await server.get('rootKeys.whoami', {}, rootKey)
  await workspace.post('rootKeys.updateRootKey', { rootKeyId: body.rootKeyId, name: 'renamed' })
  expect((await server.get('rootKeys.whoami', {}, rootKey)).body.name).toBe('renamed')
  await workspace.post('rootKeys.deleteRootKey', { rootKeyId: body.rootKeyId })
  expect((await server.get('rootKeys.whoami', {}, rootKey)).status).toBe(403)
})
