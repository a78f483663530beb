import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { type TSchema, Type } from '@sinclair/typebox'
import fc from 'fast-check'
import { knownFieldsOf } from '../../../src/doors/http/known-fields.ts'
import { endpoints } from '../../../src/server/app.ts'
import { hashKey } from '../../../src/verify/secret.ts'
import { arbitraryOf } from '../../hostile/requests.ts'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

/**
 * Bug: `duration`, a field of every other rate limit, was stored unchecked here, and each verification of the key failed.
 */
test.each([0, 'abc', 0.5, 5000, null])(
  'migrations.createKeys ignores ratelimit.duration: %p beside refillInterval changes nothing',
  async (duration) => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const key = `imported_${crypto.randomUUID()}`
    const ratelimit = { limit: 10, refillRate: 1, refillInterval: 60_000, duration }
    const hash = { value: hashKey(key), variant: 'sha256_base64' }
    const { keyIds } = await workspace.post('migrations.createKeys', [{ apiId, hash, ratelimit }])
    const shown = await workspace.get('keys.getKey', { keyId: keyIds[0] })
    expect(shown.ratelimit).toMatchObject({ limit: 10, duration: 60_000 })
    const { body } = await server.post('keys.verifyKey', { key })
    expect(body).toMatchObject({ valid: true, ratelimit: { remaining: 9 } })
  },
)

/** Bug: `slug`, a field of permissions, was read for roles too, unchecked, and won over the name. */
describe.each(['addRoles', 'setRoles', 'removeRoles', 'updateKey'])(
  'keys.%s ignores the slug of a role:',
  (method) => {
    const prepare = async () => {
      const workspace = await server.workspace()
      await workspace.post('permissions.createRole', { name: 'Admin' })
      const held = method === 'removeRoles' ? ['Admin'] : []
      const { keyId } = await makeKey(workspace, await makeApi(workspace), { roles: held })
      const send = (roles: object[]) => server.post(`keys.${method}`, { keyId, roles }, workspace.rootKey)
      return { workspace, keyId, send }
    }

    test('a role with only a slug is refused as unnamed, and none is created', async () => {
      const { workspace, send } = await prepare()
      for (const role of [{ slug: true }, { slug: ['a', 'b'], create: true }, { slug: '', create: true }])
        expect(refusalOf(await send([role]))).toMatchObject({
          status: 400,
          message: 'roles.0: an id or a name is required',
        })
      const roles = await workspace.get('permissions.listRoles')
      expect(roles.map(({ name }: { name: string }) => name)).toEqual(['Admin'])
    })

    test('a role is found by its name, whatever its slug', async () => {
      const { workspace, keyId, send } = await prepare()
      expect((await send([{ name: 'Admin', slug: 'admin' }])).status).toBe(200)
      const { roles } = await workspace.get('keys.getKey', { keyId })
      expect(roles).toEqual(method === 'removeRoles' ? [] : ['Admin'])
    })
  },
)

test('permissions.setRolePermissions ignores the name of a permission', async () => {
  const workspace = await server.workspace()
  const { roleId } = await workspace.post('permissions.createRole', { name: 'Admin' })
  const set = (permissions: object[]) =>
    server.post('permissions.setRolePermissions', { roleId, permissions }, workspace.rootKey)
  for (const name of [null, 7, 'docs.write'])
    expect(refusalOf(await set([{ name, create: true }]))).toMatchObject({
      status: 400,
      message: 'permissions.0: an id or a name is required',
    })
  const { status, body } = await set([{ slug: 'docs.read', name: null, create: true }])
  expect([status, body]).toEqual([200, [{ id: expect.any(String), name: 'docs.read' }]])
})

test('the audit log has the changed fields but not unknown ones, and known fields of a resource only', async () => {
  const workspace = await server.workspace()
  const { keyId } = await makeKey(workspace, await makeApi(workspace))
  await workspace.post('keys.updateKey', { keyId, colour: 'red', name: 'my key' })
  const resource = { type: 'document', id: 'doc_1', name: 'a document', meta: { colour: 'red' } }
  const resources = [{ ...resource, colour: 'red' }]
  await workspace.post('ratelimits.limit', { identifier: 'user_1', limit: 10, duration: 60_000, resources })
  const { events } = await workspace.get('audit.listEvents')
  const find = (event: string) => events.find((each: { event: string }) => each.event === event)
  expect(find('key.update').description).toBe(`updated key ${keyId}: name`)
  expect(find('ratelimit.success').resources).toEqual([expect.any(Object), resource])
})

describe('exactly the fields that the schema knows are kept of a body:', () => {
  /** Adds fields to every object that is not free-form. */
  const withMore = (schema: TSchema, value: unknown): unknown => {
    const options: TSchema[] = schema.anyOf ?? [schema]
    const items: TSchema | undefined = options.find(({ type }) => type === 'array')?.items
    if (Array.isArray(value)) return items === undefined ? value : value.map((each) => withMore(items, each))
    const fields: Record<string, TSchema> | undefined = options.find(
      ({ properties }) => properties,
    )?.properties
    if (typeof value !== 'object' || value === null || fields === undefined) return value
    const inner = Object.entries(value).map(([name, each]) => [
      name,
      withMore(fields[name] ?? Type.Unknown(), each),
    ])
    return Object.fromEntries([
      ['unknown', 1],
      ...inner,
      ['__proto__', { isAdmin: true }],
      ['constructor', 1],
    ])
  }

  for (const { path, input } of endpoints.filter(({ method }) => method === 'POST'))
    test(path, () => {
      const read = knownFieldsOf(input)
      fc.assert(
        fc.property(arbitraryOf(input, { pool: {}, strangers: () => [] }, ''), (value) => {
          const before = JSON.stringify(value)
          expect(JSON.stringify(read(withMore(input, value)))).toBe(before)
          expect(JSON.stringify(read(value))).toBe(before)
        }),
        { numRuns: 100, seed: 1 },
      )
    })

  test('a schema with a union of objects is refused at start, as its known fields depend on the value', () => {
    const [one, other] = [Type.Object({ a: Type.String() }), Type.Object({ b: Type.String() })]
    expect(() => knownFieldsOf(Type.Union([one, other]))).toThrow('cannot be said')
    expect(knownFieldsOf(Type.Union([one, Type.Null()]))({ a: 'x', b: 'y' })).toEqual({ a: 'x' })
    expect(knownFieldsOf(Type.Union([one, Type.Null()]))(null)).toBeNull()
  })
})
