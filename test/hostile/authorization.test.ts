import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import fc from 'fast-check'
import { hashKey } from '../../src/verify/secret.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
/** A customer's key and the id of the root key: both must be refused. */
let others: string[]
beforeAll(async () => {
  server = await startTestServer()
  workspace = await server.workspace()
  const { key, keyId } = await makeKey(workspace, await makeApi(workspace))
  const { rootKey, rootKeyId } = workspace
  others = [key, keyId, rootKeyId, hashKey(rootKey), rootKey.slice(0, 13)]
})
afterAll(async () => await server[Symbol.asyncDispose]())

const ask = async (authorization: string) => {
  const response = await fetch(`${server.url}/v1/apis.listApis`, { headers: { authorization } })
  return { status: response.status, body: (await response.json()) as Json } // asserted by the tests
}

/** A header's value as HTTP delivers it: without blanks and tabs around it. */
const arrived = (value: string) => value.replace(/^[ \t]+|[ \t]+$/g, '')

/** Text that a header may contain. */
const headerText = (options: { maxLength: number }) =>
  fc.string({
    unit: fc.oneof(
      { arbitrary: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)), weight: 6 },
      { arbitrary: fc.constant('\t'), weight: 1 },
      { arbitrary: fc.integer({ min: 0xa0, max: 0xff }).map((code) => String.fromCharCode(code)), weight: 1 },
    ),
    ...options,
  })

/** The right value with a small change: case, blanks, schemes, a character more or less, repeated, or cut. */
function nearMisses(rootKey: string): fc.Arbitrary<string> {
  const scheme = fc.constantFrom(
    ...[
      'Bearer ',
      'bearer ',
      'BEARER ',
      'Bearer',
      'Bearer  ',
      'Bearer\t',
      'Basic ',
      'Token ',
      'Bearer Bearer ',
      '',
    ],
    ...['"', 'Bearer "', 'Bearer=', 'Bearer: ', ' Bearer ', 'Digest username=', 'Bearer %20'],
  )
  const key = fc.oneof(
    fc.constantFrom(rootKey, ...others),
    fc.nat(rootKey.length - 1).map((at) => rootKey.slice(0, at) + rootKey.slice(at + 1)),
    fc
      .tuple(fc.nat(rootKey.length), headerText({ maxLength: 3 }))
      .map(([at, text]) => rootKey.slice(0, at) + text + rootKey.slice(at)),
    fc.nat(rootKey.length - 1).map((at) => {
      const letter = rootKey.charAt(at)
      const other = letter === letter.toUpperCase() ? letter.toLowerCase() : letter.toUpperCase()
      return rootKey.slice(0, at) + other + rootKey.slice(at + 1)
    }),
    fc.constantFrom(
      rootKey.toUpperCase(),
      [...rootKey].reverse().join(''),
      encodeURIComponent(`${rootKey} `),
      btoa(rootKey),
    ),
  )
  const tail = fc.constantFrom(
    '',
    '',
    '',
    ' ',
    '\t',
    '"',
    ',',
    ';',
    `, Bearer ${rootKey}`,
    ` ${rootKey}`,
    '\u00a0',
    '%00',
    '=',
  )
  return fc.tuple(scheme, key, tail).map((parts) => parts.join(''))
}

/** As in the v1 API: `Bearer ` in any case is removed if it is there, and the whole rest is the key. */
test('of all values of Authorization only the root key is accepted, alone or after `Bearer `', async () => {
  const { rootKey } = workspace
  const values = fc.oneof(
    { arbitrary: nearMisses(rootKey), weight: 6 },
    // Accepted ones between the others: what one request leaves behind opens nothing to the next.
    { arbitrary: fc.constantFrom(rootKey, `Bearer ${rootKey}`, `bearer ${rootKey} `), weight: 1 },
    { arbitrary: headerText({ maxLength: 64 }), weight: 2 },
    { arbitrary: headerText({ maxLength: 64 }).map((text) => `Bearer ${text}`), weight: 2 },
    { arbitrary: fc.integer({ min: 1, max: 6000 }).map((size) => `Bearer ${'a'.repeat(size)}`), weight: 1 },
  )
  let opened = 0
  const wrong: string[] = []
  const check = async (value: string) => {
    const { status, body } = await ask(value)
    const isRight = arrived(value).replace(/^bearer /i, '') === rootKey
    if (isRight) opened++
    const isAsItShould = isRight ? status === 200 : status === 403 && REFUSALS.includes(body.error.code)
    if (!isAsItShould) wrong.push(`${status} for ${JSON.stringify(value)}`)
  }
  const drawn = fc.sample(values, { seed: 1, numRuns: IS_NIGHTLY ? 6000 : 2000 })
  let next = 0
  const lane = async () => {
    for (let at = next++; at < drawn.length; at = next++) await check(drawn[at] ?? '')
  }
  await Promise.all(Array.from({ length: 16 }, lane))
  expect(wrong).toEqual([])
  expect(opened).toBeGreaterThan(20)
})

/** Refusals of a customer's key; see authorize.ts. */
const REFUSALS = ['UNAUTHORIZED', 'INSUFFICIENT_PERMISSIONS']
