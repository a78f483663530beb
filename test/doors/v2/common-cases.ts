import { expect, test } from 'bun:test'
import { type Answer, type Json, OPERATOR_KEY, type TestServer } from '../../support/server.ts'

/** What the common cases need of an operation of the v2 API. */
export type Operation = {
  server: TestServer
  /** Such as `apis.createApi`. */
  name: string
  /** Of the workspace that everything in `body` belongs to. Holds `*`. */
  rootKey: string
  /** Permissions that together are enough. */
  permissions: string[]
  /** A body that succeeds; called for each request. The operation itself is made once. */
  body(): Json | Promise<Json>
  /** Status and type of the refusal without the permission. Absent = 403 insufficient_permissions. */
  hiddenAs?: { status: number; type: string | null }
}

export const TYPES = 'https://unkey.com/docs/errors/'

/** Calls an operation of the v2 API. */
export const callV2 = (
  server: Pick<TestServer, 'post'>,
  name: string,
  body: Json,
  rootKey: string | null,
  headers: Record<string, string> = {},
): Promise<Answer> => server.post(`/v2/${name}`, body, rootKey, headers)

/** `data` of a success. */
export async function dataOf(answer: Answer | Promise<Answer>): Promise<Json> {
  const { status, body } = await answer
  expect({ status, error: body.error }).toEqual({ status: 200, error: undefined })
  expect(body.meta.requestId).toStartWith('req_')
  return body.data
}

/** Status, and type without its base, of a refusal. */
export async function refusalOf(answer: Answer | Promise<Answer>): Promise<[number, string]> {
  const { status, body } = await answer
  expect(body.meta?.requestId).toStartWith('req_')
  const { error } = body
  expect([typeof error?.title, typeof error?.detail, error?.status]).toEqual(['string', 'string', status])
  if ([400, 408, 413, 499].includes(status)) expect(error.errors).toBeArray()
  return [status, String(error.type).replace(TYPES, '')]
}

/** The cases that every operation has in common (root key, permission, body). Registers tests. */
export function commonCases(make: () => Operation | Promise<Operation>): void {
  let made: Operation | Promise<Operation> | null = null
  const operation = () => {
    made ??= make()
    return made
  }
  const request = async (rootKey: string | null, headers: Record<string, string> = {}) => {
    const { server, name, body } = await operation()
    return callV2(server, name, await body(), rootKey, headers)
  }
  const rootKeyWith = async (permissions: string[], more: Json = {}) => {
    const { server, rootKey } = await operation()
    const { status, body } = await server.post('rootKeys.createRootKey', { permissions, ...more }, rootKey)
    expect(status).toBe(200)
    return body
  }

  test('without an Authorization header, or with one that is no bearer token: 400', async () => {
    const invalid = [400, 'unkey/application/invalid_input'] as const
    const malformed = [400, 'unkey/authentication/malformed'] as const
    expect(await refusalOf(request(null))).toEqual([...invalid])
    expect(await refusalOf(request(null, { authorization: '' }))).toEqual([...invalid])
    expect(await refusalOf(request(null, { authorization: 'InvalidFormat' }))).toEqual([...malformed])
    expect(await refusalOf(request(null, { authorization: 'Bearer' }))).toEqual([...malformed])
  })

  test('an unknown root key and an ordinary key: 401', async () => {
    const { server, rootKey } = await operation()
    const { apiId } = await dataOf(callV2(server, 'apis.createApi', { name: 'of the key' }, rootKey))
    const { key } = (await server.post('keys.createKey', { apiId }, rootKey)).body
    for (const unknown of ['invalid_token', key]) {
      const answer = await request(unknown)
      expect(await refusalOf(answer)).toEqual([401, 'unkey/authentication/key_not_found'])
      expect(answer.body.error.title).toBe('Unauthorized')
    }
  })

  test('a disabled root key: 403', async () => {
    const { server, rootKey, permissions } = await operation()
    const disabled = await rootKeyWith(permissions)
    await server.post('rootKeys.updateRootKey', { rootKeyId: disabled.rootKeyId, enabled: false }, rootKey)
    expect(await refusalOf(request(disabled.rootKey))).toEqual([403, 'unkey/authorization/key_disabled'])
  })

  test('with exactly its permissions it succeeds, without them it is refused', async () => {
    const { permissions, hiddenAs = { status: 403, type: 'unkey/authorization/insufficient_permissions' } } =
      await operation()
    const enough = await rootKeyWith(permissions)
    expect((await request(enough.rootKey)).status).toBe(200)
    const other = await rootKeyWith(['rbac.*.something_else'])
    const answer = await request(other.rootKey)
    if (hiddenAs.type === null) expect(answer.status).toBe(hiddenAs.status)
    else expect(await refusalOf(answer)).toEqual([hiddenAs.status, hiddenAs.type])
  })

  test('a root key of a disabled workspace: 403', async () => {
    const { server } = await operation()
    const workspace = await server.workspace()
    const { workspaceId } = workspace
    await server.post('workspaces.updateWorkspace', { workspaceId, enabled: false }, OPERATOR_KEY)
    expect(await refusalOf(request(workspace.rootKey))).toEqual([
      403,
      'unkey/authorization/workspace_disabled',
    ])
  })

  test('malformed JSON, an empty body and another content type: 400', async () => {
    const { server, name, rootKey, body } = await operation()
    const invalid: [number, string] = [400, 'unkey/application/invalid_input']
    expect(await refusalOf(callV2(server, name, '{', rootKey))).toEqual(invalid)
    expect(await refusalOf(callV2(server, name, '', rootKey))).toEqual(invalid)
    const text = JSON.stringify(await body())
    expect(await refusalOf(callV2(server, name, text, rootKey, { 'content-type': 'text/plain' }))).toEqual(
      invalid,
    )
  })
}
