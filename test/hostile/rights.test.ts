import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Endpoint, HttpCall } from '../../src/doors/http/endpoint.ts'
import { readQuery } from '../../src/doors/v1/query.ts'
import { ApiError } from '../../src/errors.ts'
import { type IdPrefix, newId } from '../../src/lib/ids.ts'
import { endpoints } from '../../src/server/app.ts'
import type { Deps } from '../../src/server/deps.ts'
import type { KeyRecord } from '../../src/verify/key-record.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import {
  type Fixture,
  makeFixture,
  permissionFor,
  ROWS,
  type Row,
  type Texts,
  titleOf,
} from './permission-table.ts'

/**
 * For each row of the table and every subset of a pool of permissions, the server must allow what the table allows. The
 * pool has the row's permissions, `*`, and similar texts. Endpoints run against the real database with a root key that
 * holds exactly the subset. Their writes are rolled back, so that one fixture serves all subsets.
 */

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let own: Fixture
let foreign: Fixture
/** A real root key of the workspace, and an operator root key. */
let rootKey: KeyRecord
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: '60000' } })
  own = await makeFixture(server)
  foreign = await makeFixture(server)
  const record = await server.server.deps.keys.find(own.workspace.rootKey)
  if (record === null) throw new Error('the root key is not there')
  rootKey = record
})
afterAll(async () => await server[Symbol.asyncDispose]())

const protectedRoutes = endpoints.filter(({ access }) => access === 'root-key')

test('every route that needs a root key has a row, and every row has a route', () => {
  const named = [...new Set(ROWS.map(({ route }) => route))].sort()
  expect(named).toEqual(protectedRoutes.map(({ path }) => path.slice('/v1/'.length)).sort())
})

class Undone extends Error {
  override name = 'Undone'
}

/** The server's services, with the root key that the test wants, and without lasting writes. */
function depsFor(permissions: readonly string[], isOperator = false): Deps {
  const { deps } = server.server
  const record = { ...rootKey, permissions: new Set(permissions), isOperator }
  const findByHash: Deps['keys']['findByHash'] = (...given) => deps.keys.findByHash(...given)
  const keys = { findRoot: () => record, findByHash } as unknown as Deps['keys'] // all that endpoints use
  const write: Deps['database']['write'] = (work, options) =>
    deps.database.write(async (tx) => {
      await work(tx, () => {})
      throw new Undone('as if it had never been')
    }, options)
  const database = { write, sql: deps.sql } as unknown as Deps['database'] // all that endpoints use
  return { ...deps, keys, database }
}

const call: HttpCall = {
  requestId: 'req_test',
  authorization: 'Bearer anything',
  userAgent: null,
  header: () => null,
  clientAddress: () => null,
  headers: {},
}

/** The answer to the row's request: allowed, or the error code. */
async function answerTo(row: Row, fixture: Fixture, deps: Deps): Promise<string> {
  const endpoint = protectedRoutes.find(({ path }) => path === `/v1/${row.route}`)
  if (endpoint === undefined) throw new Error(`no route ${row.route}`)
  try {
    await endpoint.run(deps, call, inputOf(endpoint, row.input(fixture)))
    return 'allowed'
  } catch (cause) {
    if (cause instanceof Undone) return 'allowed'
    if (cause instanceof ApiError) return cause.code
    throw cause
  }
}

/** The input as it arrives: values of a query string were texts. */
function inputOf({ method, input: schema }: Endpoint, input: unknown): unknown {
  if (method !== 'GET') return input
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(Object(input))) search.append(name, String(value))
  return readQuery(schema, search)
}

function allows({ needs }: Row, held: ReadonlySet<string>): boolean {
  if (held.has('*')) return true
  return needs.every((any) => any.some((permission) => held.has(permissionFor(permission, own.texts))))
}

/** The row's permissions, `*`, and similar ones: of another API, of the other workspace, in another case, a pattern. */
function poolOf({ needs }: Row): string[] {
  const named = [...new Set(needs.flat())].map((permission) => permissionFor(permission, own.texts))
  const [resource = 'api', , action = 'read_api'] = (named[0] ?? 'api.*.read_api').split('.')
  const lookalikes = [
    `${resource}.${resource === 'api' ? own.texts.otherApiId : newId('rlns')}.${action}`,
    `${resource}.${foreign.texts.apiId}.${action}`,
    `${resource}.*.*`,
    `${resource}.*.${action.toUpperCase()}`,
    `*.*.${action}`,
  ].filter((permission) => !named.includes(permission))
  const room = Math.max(1, POOL_SIZE - named.length - 1)
  return [...named, '*', ...lookalikes.slice(0, room)]
}

/** Up to 2 to this power subsets; rows with more permissions have more. */
const POOL_SIZE = IS_NIGHTLY ? 5 : 4

const subsetsOf = (pool: readonly string[]): string[][] =>
  Array.from({ length: 2 ** pool.length }, (_, bits) => pool.filter((_, i) => (bits >> i) & 1))

const REFUSALS = ['INSUFFICIENT_PERMISSIONS', 'UNAUTHORIZED']

describe('a call is allowed exactly when the table says so, for every subset of rights:', () => {
  for (const row of ROWS) {
    test(titleOf(row), async () => {
      const wrong: string[] = []
      const answers = new Set<string>()
      for (const held of subsetsOf(poolOf(row))) {
        const expected = row.isForOperator === undefined && allows(row, new Set(held))
        const answer = await answerTo(row, own, depsFor(held))
        answers.add(answer)
        // A namespace that may not be created is answered as not found.
        const isRefusal =
          REFUSALS.includes(answer) || (answer === 'NOT_FOUND' && row.what === 'in a new namespace')
        if (expected ? answer !== 'allowed' : !isRefusal)
          wrong.push(`${answer} for ${held.join(' ') || 'nothing'}`)
      }
      expect(wrong).toEqual([])
      if (row.isForOperator === true) expect(await answerTo(row, own, depsFor(['*'], true))).toBe('allowed')
      else expect(answers).toContain('allowed')
    })
  }
})

/** Rows with names that another workspace may use as well, for a thing of its own. */
const REUSED_NAMES = ['ratelimits.limit', 'ratelimits.multiLimit']
/** A migration first reports missing roles. */
const absenceOf = ({ route, what }: Row) =>
  route === 'migrations.createKeys' && what === 'with what exists' ? 'PRECONDITION_FAILED' : 'NOT_FOUND'
/** Rows that answer 200 of what is missing: an empty list, a place in an order, or word of each key alone. */
const isFilter = ({ route, what = '' }: Row) =>
  ['keys.getLastUsed', 'migrations.checkKeys'].includes(route) ||
  /^(from a cursor|of a resource|of an actor)$/.test(what)

describe('with any rights, nothing of another workspace is allowed:', () => {
  for (const row of ROWS) {
    const namesSomething = JSON.stringify(row.input(placeholders())).includes("the fixture's")
    if (!namesSomething || row.isForOperator === true) continue
    if (REUSED_NAMES.includes(row.route) || (isFilter(row) && !row.route.startsWith('apis.listKeys')))
      continue
    test(titleOf(row), async () => {
      const pool = poolOf(row)
      const theirs = [...new Set(row.needs.flat())].map((permission) =>
        permissionFor(permission, foreign.texts),
      )
      const wrong: string[] = []
      for (const held of [[], ...pool.map((each) => [each]), pool, theirs, [...pool, ...theirs]]) {
        const answer = await answerTo(row, foreign, depsFor(held))
        if (![...REFUSALS, absenceOf(row)].includes(answer))
          wrong.push(`${answer} for ${held.join(' ') || 'nothing'}`)
      }
      expect(wrong).toEqual([])
      // With every right it is treated as missing.
      expect(await answerTo(row, foreign, depsFor([...pool, ...theirs]))).toBe(absenceOf(row))
    })
  }
})

/** A fixture of placeholders, to see whether a row uses any of its texts. */
function placeholders(): Fixture {
  const texts = new Proxy({} as Fixture['texts'], { get: (_, name) => `the fixture's ${String(name)}` }) // read by name only
  const workspace = new Proxy({} as Fixture['workspace'], { get: () => 'anybody' }) // see above
  return { texts, workspace }
}

/** A text of the same kind that does not exist. */
const absent = (text: string): string => {
  const prefix = /^(api|key|perm|role|id|rlns|rlor|log)_/.exec(text)?.[1]
  return prefix === undefined ? `absent-${crypto.randomUUID()}` : newId(prefix as IdPrefix) // one of those listed
}

/** The whole answer of a refusal, without its request id. */
async function refusalOver(row: Row, input: unknown, rootKeyText: string): Promise<string> {
  const isRead = protectedRoutes.some(({ path, method }) => path === `/v1/${row.route}` && method === 'GET')
  const { status, body } = isRead
    ? await server.get(row.route, Object(input), rootKeyText)
    : await server.post(row.route, input, rootKeyText)
  return JSON.stringify({ status, ...body.error, requestId: null })
}

/**
 * Bug: a caller without the right got 404 or 403 for a name, and the 403 contained the id. Each text of a request is
 * replaced by one that does not exist, and by the other workspace's.
 */
describe('a root key without the right is refused in the same words, whatever exists:', () => {
  const rows = ROWS.filter(({ needs, isForOperator }) => needs.length > 0 || isForOperator === true)
  for (const row of rows) {
    test(titleOf(row), async () => {
      const powerless = await own.workspace.rootKeyWith('another.one')
      const input = row.input(own)
      const sent = JSON.stringify(input)
      const asItIs = await refusalOver(row, input, powerless)
      expect(asItIs).toInclude('"status":403')
      const names = Object.keys(own.texts) as (keyof Texts)[] // its own
      for (const name of names) {
        const text = own.texts[name]
        if (!sent.includes(JSON.stringify(text))) continue
        for (const other of [absent(text), foreign.texts[name]]) {
          const exchanged = JSON.parse(sent.replaceAll(JSON.stringify(text), JSON.stringify(other)))
          expect(await refusalOver(row, exchanged, powerless)).toBe(asItIs)
        }
      }
      // No existing text is named, nor one of the request.
      for (const text of Object.values(own.texts)) expect(asItIs).not.toInclude(text)
    })
  }

  const elsewhere = { ratelimit: 'rlns_elsewhere', identity: 'id_elsewhere' }
  const byName = rows.filter(
    ({ route, what = '' }) => /by name|by externalId/.test(what) && route !== 'identities.updateIdentity',
  )
  for (const row of byName) {
    test(`${titleOf(row)}, with the right on something else`, async () => {
      const held = row.needs
        .flat()
        .map((permission) =>
          permission.replace(
            /^(ratelimit|identity)\.(?:\*|\{.\})\./,
            (_, resource: keyof typeof elsewhere) => `${resource}.${elsewhere[resource]}.`,
          ),
        )
      const rootKeyText = await own.workspace.rootKeyWith(...held)
      const sent = JSON.stringify(row.input(own))
      const asItIs = await refusalOver(row, row.input(own), rootKeyText)
      expect(asItIs).toInclude('"status":403')
      for (const text of [own.texts.namespace, own.texts.externalId])
        expect(await refusalOver(row, JSON.parse(sent.replaceAll(text, absent(text))), rootKeyText)).toBe(
          asItIs,
        )
      for (const id of [own.texts.namespaceId, own.texts.identityId]) expect(asItIs).not.toInclude(id)
    })
  }
})

/**
 * Without a right on keys, the v1 API revealed whether a key exists. With the right on some API it still does, as its tests
 * require.
 */
test('a method about a key gives the same refusal for an existing and a missing key', async () => {
  const powerless = await own.workspace.rootKeyWith('api.*.read_api')
  for (const [method, input] of [
    ['keys.setPermissions', { permissions: [{ slug: own.texts.otherPermission }] }],
    ['keys.setRoles', { roles: [{ name: own.texts.otherRole }] }],
  ] as const) {
    const wordsOf = async (keyId: string, exchanged: object = input) => {
      const { status, body } = await server.post(method, { keyId, ...exchanged }, powerless)
      return [status, body.error.code, body.error.message]
    }
    const refused = await wordsOf(own.texts.keyId)
    expect(refused[0]).toBe(403)
    expect(await wordsOf(newId('key'))).toEqual(refused)
    expect(await wordsOf(foreign.texts.keyId)).toEqual(refused)
    const nowhere = JSON.parse(JSON.stringify(input).replace(/other[ .](permission|role)[^"]*/, 'nowhere'))
    expect(await wordsOf(own.texts.keyId, nowhere)).toEqual(refused)
  }
})

/** Bug: a root key with the right elsewhere got 404 for a missing namespace. */
test('a root key that may not limit in a namespace does not learn whether it exists', async () => {
  const powers = [['ratelimit.rlns_elsewhere.limit'], ['ratelimit.*.create_namespace']]
  for (const held of [...powers, powers.flat()]) {
    const rootKeyText = await own.workspace.rootKeyWith(...held)
    const wordsOf = async (method: string, body: (namespace: string) => unknown, namespace: string) => {
      const answer = await server.post(method, body(namespace), rootKeyText)
      return [answer.status, answer.body.error.code, answer.body.error.message]
    }
    const limit = (namespace: string) => ({ namespace, identifier: 'someone', limit: 1, duration: 1000 })
    for (const [method, body] of [
      ['ratelimits.limit', limit],
      ['ratelimits.multiLimit', (namespace: string) => [limit(namespace)]],
    ] as const) {
      const refused = await wordsOf(method, body, own.texts.namespace)
      expect(refused[0]).toBe(403)
      expect(await wordsOf(method, body, 'nowhere')).toEqual(refused)
      expect(await wordsOf(method, body, foreign.texts.namespace)).toEqual(refused)
    }
  }
})

test('a root key that may change a key but attach nothing does not learn which roles and permissions exist', async () => {
  const rootKeyText = await own.workspace.rootKeyWith('api.*.update_key')
  const { keyId } = own.texts
  for (const [field, id] of [
    ['roles', own.texts.otherRoleId],
    ['permissions', own.texts.otherPermissionId],
  ] as const) {
    const { keyId: bare } = await own.workspace.post('keys.createKey', { apiId: own.texts.apiId })
    for (const each of [keyId, bare]) {
      const wordsOf = async (reference: object) => {
        const { status, body } = await server.post(
          'keys.updateKey',
          { keyId: each, [field]: [reference] },
          rootKeyText,
        )
        return [status, body.error.code, body.error.message]
      }
      const refused = await wordsOf({ id })
      expect(refused[0]).toBe(403)
      const prefix = field === 'roles' ? 'role' : 'perm'
      const theirs = field === 'roles' ? foreign.texts.otherRoleId : foreign.texts.otherPermissionId
      for (const other of [
        { id: newId(prefix) },
        { id: theirs },
        { name: 'nowhere' },
        { name: 'nowhere', create: true },
      ])
        expect(await wordsOf(other)).toEqual(refused)
    }
  }
})
