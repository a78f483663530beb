import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { BODY_BYTES_MAX } from '../../../src/doors/http/body.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { callV2, dataOf, refusalOf } from './common-cases.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

test('liveness needs no root key', async () => {
  const answer = await server.get('/v2/liveness')
  expect(await dataOf(answer)).toEqual({ message: 'serving' })
  expect(answer.headers.get('unkey-request-id')).toBe(answer.body.meta.requestId)
})

test('an unknown path and a wrong method answer in the same envelope', async () => {
  const unknown = await callV2(server, 'projects.createProject', {}, OPERATOR_KEY)
  expect(await refusalOf(unknown)).toEqual([404, 'about:blank'])
  const wrong = await server.get('/v2/apis.createApi', {}, OPERATOR_KEY)
  expect(await refusalOf(wrong)).toEqual([405, 'about:blank'])
  expect(wrong.headers.get('allow')).toBe('POST, OPTIONS')
})

test('a base URL that ends in a slash works', async () => {
  const answer = await server.post('//v2/apis.createApi', { name: 'my-api' }, OPERATOR_KEY)
  expect((await dataOf(answer)).apiId).toStartWith('api_')
})

test('errors are application/problem+json for clients that accept it, except those of the schema', async () => {
  const typeFor = async (accept: string, rootKey: string, name = 'my-api') => {
    const { headers } = await callV2(server, 'apis.createApi', { name }, rootKey, { accept })
    return headers.get('content-type')
  }
  for (const accept of ['*/*', 'application/*', 'text/html, application/problem+json;q=0.9'])
    expect(await typeFor(accept, 'unknown')).toBe('application/problem+json')
  expect(await typeFor('application/json', 'unknown')).toBe('application/json')
  expect(await typeFor('*/*', 'unknown', 'ab')).toBe('application/json')
  expect(await typeFor('*/*', OPERATOR_KEY)).toBe('application/json')
})

test('a body over the bound is a 413 that names the bound', async () => {
  const answer = await callV2(server, 'apis.createApi', { name: 'x'.repeat(BODY_BYTES_MAX) }, OPERATOR_KEY)
  expect(await refusalOf(answer)).toEqual([413, 'user/bad_request/request_body_too_large'])
  expect(answer.body.error.detail).toContain(String(BODY_BYTES_MAX))
})

test('a body with half a million problems lists the first of them', async () => {
  const body = `{"name":"my-api",${Array.from({ length: 50_000 }, (_, i) => `"f${i}":1`).join(',')}}`
  const { body: answer } = await callV2(server, 'apis.createApi', body, OPERATOR_KEY)
  expect(JSON.stringify(answer).length).toBeLessThan(2_000)
  expect(answer.error.errors[0].message).toStartWith("additional properties 'f0', 'f1'")
})

test('text that cannot be stored is refused as a bad body', async () => {
  const answer = await callV2(server, 'apis.createApi', '{"name":"a\\u0000b c"}', OPERATOR_KEY)
  expect(await refusalOf(answer)).toEqual([400, 'unkey/application/invalid_input'])
  expect(answer.body.error.errors[0].location).toBe('requestBody')
})
