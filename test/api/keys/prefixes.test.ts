import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const REASON = 'Only visible ASCII characters are allowed, without blanks, quotes, < and >'
const BAD = [
  'a\r\nX: y',
  'a b',
  ' a',
  'a ',
  'a\tb',
  'a\n',
  '\n',
  '<script>',
  '"',
  "'",
  '`',
  '\u0001',
  '\u007f',
  'clé',
  '鍵',
  '\u00a0',
  '😀',
]

test('a prefix, given or default, may contain only characters that a header can carry', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace, { defaultPrefix: 'usual' })
  for (const prefix of BAD) {
    const made = await server.post('keys.createKey', { apiId, prefix }, workspace.rootKey)
    expect(refusalOf(made)).toMatchObject({ status: 400, message: `prefix: ${REASON}` })
    const byDefault = await server.post('apis.updateApi', { apiId, defaultPrefix: prefix }, workspace.rootKey)
    expect(refusalOf(byDefault)).toMatchObject({ status: 400, message: `defaultPrefix: ${REASON}` })
  }
  expect((await workspace.get('apis.listKeys', { apiId })).total).toBe(0)
  const { key } = await workspace.post('keys.createKey', { apiId })
  expect(key).toStartWith('usual_')
})

test('a key with any prefix is recognised in a header and in a body', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  for (const prefix of ['sk_live', 'Bearer', '!#$%&()*+,-./', ':;=?@[\\]^_', '{|}~']) {
    const { key } = await workspace.post('keys.createKey', { apiId, prefix })
    expect(key).toStartWith(`${prefix}_`)
    expect((await server.post('keys.verifyKey', { key })).body.valid).toBe(true)
    for (const headers of [{ authorization: `Bearer ${key}` }, { 'x-api-key': key }])
      expect((await server.get('auth.forward', {}, null, headers)).status).toBe(200)
  }
})

/** They are in other people's hands already. */
test('imported keys stay unchanged, including their prefix', async () => {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const plaintext = 'a clé_4xKqpT2mVnZr'
  const { keyIds } = await workspace.post('migrations.createKeys', [{ apiId, plaintext, prefix: 'a clé' }])
  expect((await workspace.get('keys.getKey', { keyId: keyIds[0] })).start).toBe('a clé_4xKq')
  expect((await server.post('keys.verifyKey', { key: plaintext })).body.valid).toBe(true)
})
