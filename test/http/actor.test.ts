import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import type { Deps } from '../../src/deps.ts'
import { ApiError } from '../../src/errors.ts'
import { endpoints } from '../../src/http/app.ts'
import type { Call } from '../../src/http/endpoint.ts'

/** Answer without a root key on purpose. Adding one here is a decision, not a formality. */
const PUBLIC: string[] = ['/v1/keys.verifyKey', '/v1/liveness']

test('only these endpoints answer without a root key', () => {
  const open = endpoints.filter(({ access }) => access === 'public').map(({ path }) => String(path))
  expect(open.toSorted()).toEqual(PUBLIC)
})

test('no two endpoints share a path', () => {
  expect(new Set(endpoints.map(({ path }) => path)).size).toBe(endpoints.length)
})

/**
 * Every part of deps fails when touched, so a verb that looks at anything before it has an actor is found out, whatever
 * it would have answered.
 */
describe('without a root key, nothing of the data is touched by', () => {
  const untouchable: Deps = new Proxy({} as Deps, {
    get: (_, part) => {
      throw new Error(`deps.${String(part)} was touched without an actor`)
    },
  })
  const call: Call = {
    requestId: 'req_test',
    authorization: null,
    userAgent: null,
    clientAddress: () => null,
    headers: {},
  }
  for (const { path, input, access, run } of endpoints) {
    if (access === 'public') continue
    test(path, async () => {
      const failure: unknown = await (async () => run(untouchable, call, Value.Create(input)))().catch(
        (cause: unknown) => cause,
      )
      expect(failure).toBeInstanceOf(ApiError)
      // Some parameter checks come before authentication; they look at nothing but the input.
      expect((failure as ApiError).code).toBeOneOf(['UNAUTHORIZED', 'BAD_REQUEST']) // checked above
    })
  }
})
