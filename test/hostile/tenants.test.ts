import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { newId } from '../../src/lib/ids.ts'
import { endpoints } from '../../src/server/app.ts'
import { type Answer, startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { type Fixture, makeFixture, ROWS, type Row, type Texts, titleOf } from './permission-table.ts'
import { rowsOfWorkspace } from './workspace-rows.ts'

/**
 * Two workspaces with the same things. A root key with all rights makes every request, with each id, name, cursor and
 * secret in turn replaced by the other workspace's. The answer must be the same as for a missing thing, without anything of
 * the other; at the end every row of the other workspace is unchanged.
 */

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let own: Fixture
let foreign: Fixture
let rootKey: string
let before: Record<string, string[]>
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: '60000' } })
  own = await makeFixture(server)
  foreign = await makeFixture(server)
  rootKey = own.workspace.rootKey
  before = await foreignRows()
})
afterAll(async () => await server[Symbol.asyncDispose]())

async function foreignRows(): Promise<Record<string, string[]>> {
  await server.server.deps.usage.flush()
  return await rowsOfWorkspace(server.server.deps.sql, foreign.workspace.workspaceId, { withoutUse: false })
}

/** Texts of the other workspace that no answer may contain. */
const marks = () => [
  ...Object.values(foreign.texts),
  ...[foreign.workspace.workspaceId, foreign.workspace.rootKeyId, foreign.workspace.rootKey],
]

async function ask(route: string, input: unknown): Promise<Answer> {
  const isRead = endpoints.some(({ path, method }) => path === `/v1/${route}` && method === 'GET')
  return isRead ? await server.get(route, Object(input), rootKey) : await server.post(route, input, rootKey)
}

/** A text of the same kind that does not exist. */
function absent(text: string): string {
  const prefix = /^(api|key|perm|role|id|rlns|rlor|log)_/.exec(text)?.[1]
  return prefix === undefined ? `absent ${crypto.randomUUID()}` : newId(prefix as 'api') // one of those listed
}

const exchange = (input: unknown, from: string, to: string): unknown =>
  JSON.parse(JSON.stringify(input).replaceAll(JSON.stringify(from), JSON.stringify(to)))

/** The comparable part of an answer: the refusal and its reason, or the names of the fields. */
function shapeOf({ status, body }: Answer, exchanged: string) {
  if (status >= 400)
    return { status, code: body.error.code, message: body.error.message.replaceAll(exchanged, '@') }
  return { status, fields: Array.isArray(body) ? body.map((each) => Object.keys(each)) : Object.keys(body) }
}

describe('things of another workspace are treated as missing, and nothing of them is shown:', () => {
  for (const row of ROWS) {
    if (row.isForOperator !== undefined) continue
    test(titleOf(row), async () => {
      const names = Object.keys(own.texts) as (keyof Texts)[] // its own
      const input = () => row.input(own)
      const isUsed = (name: keyof Texts) => JSON.stringify(input()).includes(JSON.stringify(own.texts[name]))
      const used = names.filter((name) => isUsed(name) && !isMadeOnUse(row, name))
      const notShown = (answer: Answer, sent: string) => {
        const text = JSON.stringify(answer.body)
        expect(marks().filter((mark) => !sent.includes(mark) && text.includes(mark))).toEqual([])
      }
      if (used.length === 0) notShown(await ask(row.route, input()), '')
      for (const name of used) {
        const [theirs, nowhere] = [foreign.texts[name], absent(foreign.texts[name])]
        const asked = await ask(row.route, exchange(input(), own.texts[name], theirs))
        const reference = await ask(row.route, exchange(input(), own.texts[name], nowhere))
        expect(shapeOf(asked, theirs)).toEqual(shapeOf(reference, nowhere))
        notShown(asked, theirs)
      }
    })
  }
})

/** The first use creates one in the own workspace, which later requests would find. */
const isMadeOnUse = ({ route }: Row, name: keyof Texts) =>
  (/^(keys\.(create|update)Key|migrations\.)/.test(route) && (name === 'externalId' || name === 'ownerId')) ||
  (/^ratelimits\.(limit|multiLimit)$/.test(route) && name === 'namespace') ||
  (route === 'ratelimits.setOverride' && name === 'identifier')

/** A page continues after any id, also another workspace's; its items are the caller's own. */
test('a cursor from another workspace, or any text as a cursor, leads only to the caller’s own items', async () => {
  const lists = [
    'apis.listApis',
    'identities.listIdentities',
    'ratelimits.listNamespaces',
    'rootKeys.listRootKeys',
    'audit.listEvents',
  ]
  const cursors = [...marks(), '', '0', 'zzzz', '%', "' or true --", 'api_', 'key_', `key_${'z'.repeat(16)}`]
  for (const list of lists)
    for (const cursor of cursors) {
      const answer = await ask(list, { cursor, limit: 100 })
      expect(answer.status).toBe(200)
      const text = JSON.stringify(answer.body)
      expect(marks().filter((mark) => text.includes(mark))).toEqual([])
    }
})

test('a name that another workspace uses too is a separate thing, with nothing of the other', async () => {
  const { externalId, namespace, identifier, role, permission } = foreign.texts
  const { apiId } = own.texts
  const { body } = await ask('keys.createKey', { apiId, externalId })
  const shown = await ask('keys.getKey', { keyId: body.keyId })
  expect(shown.body.identity).toMatchObject({ externalId, meta: {} })
  expect(shown.body.identity.id).not.toBe(foreign.texts.identityId)
  // The other workspace's override of 3 does not apply here.
  const limit = { namespace, identifier, limit: 10, duration: 60_000 }
  expect((await ask('ratelimits.limit', limit)).body).toMatchObject({ limit: 10, remaining: 9 })
  expect((await ask('ratelimits.getOverride', { namespaceName: namespace, identifier })).status).toBe(404)
  expect((await ask('permissions.createRole', { name: role })).status).toBe(200)
  expect((await ask('permissions.createPermission', { name: permission })).status).toBe(200)
})

test('after all this, every row of the other workspace is unchanged, and it works', async () => {
  expect(await foreignRows()).toEqual(before)
  const { workspace, texts } = foreign
  expect((await server.post('keys.verifyKey', { key: texts.key })).body).toMatchObject({
    valid: true,
    remaining: 98,
  })
  const limit = { namespace: texts.namespace, identifier: 'x', limit: 10, duration: 60_000 }
  // Nothing of it was used up, although the same names were requested.
  expect(await workspace.post('ratelimits.limit', limit)).toMatchObject({ success: true, remaining: 9 })
})
