import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Deps } from '../../src/deps.ts'
import { ApiError } from '../../src/errors.ts'
import { endpoints } from '../../src/http/app.ts'
import type { Call, Endpoint } from '../../src/http/endpoint.ts'
import { readQuery } from '../../src/http/query.ts'
import { newId } from '../../src/lib/ids.ts'
import type { KeyRecord } from '../../src/verify/key-record.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { type Fixture, makeFixture, permissionFor, ROWS, type Row, titleOf } from './permission-table.ts'

/**
 * For each row of the table and every subset of a pool of permissions: the server allows what the table allows. The
 * pool has all that the row names, `*`, and what only looks like it. The verbs run against the real database with a root
 * key that holds exactly the subset; what they would write is undone, so that one fixture serves all subsets.
 */

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let own: Fixture
let foreign: Fixture
/** A real root key of the own workspace, and an operator's. */
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

test('every route that needs a root key has a row, and every row a route', () => {
  const named = [...new Set(ROWS.map(({ route }) => route))].sort()
  expect(named).toEqual(protectedRoutes.map(({ path }) => path.slice('/v1/'.length)).sort())
})

class Undone extends Error {
  override name = 'Undone'
}

/** The server's parts, with a root key as the test wants it, and no write that lasts. */
function depsFor(permissions: readonly string[], isOperator = false): Deps {
  const { deps } = server.server
  const record = { ...rootKey, permissions: new Set(permissions), isOperator }
  const keys = { findRoot: () => record } as unknown as Deps['keys'] // authenticate asks for nothing else
  const write: Deps['database']['write'] = (work, options) =>
    deps.database.write(async (tx) => {
      await work(tx, () => {})
      throw new Undone('as if it had never been')
    }, options)
  const database = { write, sql: deps.sql } as unknown as Deps['database'] // verbs ask for nothing else
  return { ...deps, keys, database }
}

const call: Call = {
  requestId: 'req_test',
  authorization: 'Bearer anything',
  userAgent: null,
  header: () => null,
  clientAddress: () => null,
  headers: {},
}

/** What the server says to the row's request: allowed, or the code of the error. */
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

/** As it arrives: what a query string says has been texts. */
function inputOf({ method, input: schema }: Endpoint, input: unknown): unknown {
  if (method !== 'GET') return input
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(Object(input))) search.append(name, String(value))
  return readQuery(schema, search)
}

function allows({ needs, isStrict }: Row, held: ReadonlySet<string>): boolean {
  if (held.has('*') && isStrict === undefined) return true
  return needs.every((any) => any.some((permission) => held.has(permissionFor(permission, own.texts))))
}

/** What the row names, `*`, and what looks like it: of another API, of the other workspace, of another case, a pattern. */
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

/** So many subsets are 2 to this power; rows that name more have more. */
const POOL_SIZE = 5

const subsetsOf = (pool: readonly string[]): string[][] =>
  Array.from({ length: 2 ** pool.length }, (_, bits) => pool.filter((_, i) => (bits >> i) & 1))

const REFUSALS = ['INSUFFICIENT_PERMISSIONS', 'UNAUTHORIZED']

describe('what is allowed is what the table says, for every subset:', () => {
  for (const row of ROWS) {
    test(titleOf(row), async () => {
      const wrong: string[] = []
      const answers = new Set<string>()
      for (const held of subsetsOf(poolOf(row))) {
        const expected = row.isForOperator === undefined && allows(row, new Set(held))
        const answer = await answerTo(row, own, depsFor(held))
        answers.add(answer)
        // What a namespace is that may not be made: not there.
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

/** Rows that name what the other workspace has; names of things that anyone may use are their own in each. */
const REUSED_NAMES = ['ratelimits.limit', 'ratelimits.multiLimit']
/** A migration says of roles that do not exist, before anything else, that they are missing. */
const absenceOf = ({ route, what }: Row) =>
  route === 'migrations.createKeys' && what === 'with what exists' ? 'PRECONDITION_FAILED' : 'NOT_FOUND'
/** Rows that filter: what is not there leaves nothing, and a cursor is a place in an order. */
const isFilter = ({ what = '' }: Row) => /^(from a cursor|of a resource|of an actor)$/.test(what)

describe('of another workspace nothing is allowed, whatever is held:', () => {
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
      // With every right it is as if it did not exist.
      expect(await answerTo(row, foreign, depsFor([...pool, ...theirs]))).toBe(absenceOf(row))
    })
  }
})

/** A fixture of made-up texts, to see whether a row names any. */
function placeholders(): Fixture {
  const texts = new Proxy({} as Fixture['texts'], { get: (_, name) => `the fixture's ${String(name)}` }) // read by name only
  const workspace = new Proxy({} as Fixture['workspace'], { get: () => 'anybody' }) // see above
  return { texts, workspace }
}
