import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
let apiId: string
beforeAll(async () => {
  server = await startTestServer()
  workspace = await server.workspace()
  apiId = await makeApi(workspace)
})
afterAll(() => server[Symbol.asyncDispose]())

const SECONDS = 1_893_456_000
const SAYS = `Expected Unix milliseconds, received what looks like seconds; in milliseconds it is ${SECONDS}000 (2030-01-01T00:00:00.000Z)`

/** Findings 5.5: the key had expired in 1970, and no message said why. */
test('an expiry in seconds is a 400 that says milliseconds, in every method that takes one', async () => {
  const { keyId } = await workspace.post('keys.createKey', { apiId })
  const { rootKeyId } = await workspace.post('rootKeys.createRootKey', { permissions: [] })
  const imported = (value: string) => ({
    hash: { value: `${value.padEnd(43, 'A')}=`, variant: 'sha256_base64' },
  })
  const calls: [string, (expires: number) => unknown, string][] = [
    ['keys.createKey', (expires) => ({ apiId, expires }), 'expires'],
    ['keys.updateKey', (expires) => ({ keyId, expires }), 'expires'],
    ['rootKeys.createRootKey', (expires) => ({ permissions: [], expires }), 'expires'],
    ['rootKeys.updateRootKey', (expires) => ({ rootKeyId, expires }), 'expires'],
    [
      'migrations.createKeys',
      (expires) => [
        { apiId, ...imported(`a${expires}`) },
        { apiId, ...imported(`b${expires}`), expires },
      ],
      '1.expires',
    ],
    [
      'migrations.enqueueKeys',
      (expires) => ({ migrationId: 'm', apiId, keys: [{ ...imported(`c${expires}`), expires }] }),
      'keys.0.expires',
    ],
  ]
  for (const [method, bodyOf, path] of calls) {
    const send = (expires: number) => server.post(method, bodyOf(expires), workspace.rootKey)
    for (const seconds of [SECONDS, 1_000_000_000, 99_999_999_999]) {
      const { status, body } = await send(seconds)
      expect([method, status, body.error.code]).toEqual([method, 400, 'BAD_REQUEST'])
      expect(body.error.message).toStartWith(
        `${path}: Expected Unix milliseconds, received what looks like seconds`,
      )
    }
    expect((await send(SECONDS)).body.error.message).toBe(`${path}: ${SAYS}`)
    // Times that are meant to be in the past, and in the future, are accepted.
    for (const ms of [1, 999_999_999, 1e11, SECONDS * 1000])
      expect([method, ms, (await send(ms)).status]).toEqual([
        method,
        ms,
        method === 'migrations.enqueueKeys' ? 202 : 200,
      ])
  }
})

test('the start or end of a range in seconds is refused too', async () => {
  const ranges: [string, Record<string, unknown>][] = [
    ['analytics.getVerifications', { apiId }],
    ['keys.getVerifications', { ownerId: 'nobody' }],
    ['audit.listEvents', {}],
  ]
  for (const [method, query] of ranges)
    for (const field of ['start', 'end']) {
      const { status, body } = await server.get(method, { ...query, [field]: SECONDS }, workspace.rootKey)
      expect([method, status, body.error?.message]).toEqual([method, 400, `${field}: ${SAYS}`])
    }
})

test('other bounds of a time keep their messages', async () => {
  const messageOf = async (expires: unknown) =>
    (await server.post('keys.createKey', { apiId, expires }, workspace.rootKey)).body.error?.message
  expect(await messageOf(1.5)).toBe('expires: Expected integer, received float')
  expect(await messageOf('1893456000000')).toBe('expires: Expected number, received string')
  expect(await messageOf(null)).toBe('expires: Expected number, received null')
  expect(await messageOf(8_640_000_000_000_001)).toBe(
    'expires: Number must be less than or equal to 8640000000000000',
  )
  expect(await messageOf(-8_640_000_000_000_001)).toBe(
    'expires: Number must be greater than or equal to -8640000000000000',
  )
  expect(await messageOf(0)).toBeUndefined()
})
