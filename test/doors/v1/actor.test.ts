import { describe, expect, test } from 'bun:test'
import type { TSchema } from '@sinclair/typebox'
import type { HttpCall } from '../../../src/doors/http/endpoint.ts'
import { ApiError } from '../../../src/errors.ts'
import { endpoints } from '../../../src/server/app.ts'
import type { Deps } from '../../../src/server/deps.ts'

/** Answer without a root key on purpose. Adding one is a decision. */
const PUBLIC: string[] = ['/v1/auth.forward', '/v1/keys.verifyKey', '/v1/liveness', '/v1/readiness']

test('only these endpoints answer without a root key', () => {
  const open = endpoints.filter(({ access }) => access !== 'root-key').map(({ path }) => String(path))
  expect(open.toSorted()).toEqual(PUBLIC)
})

test('no two endpoints share a path', () => {
  expect(new Set(endpoints.map(({ path }) => path)).size).toBe(endpoints.length)
})

/**
 * Every service fails when it is touched, so an endpoint that reads anything before it has an actor is found, whatever its
 * answer.
 */
describe('without a root key no data is read or changed by', () => {
  const nothing = {} as Deps // the proxy answers for every service
  const untouchable = new Proxy(nothing, {
    get: (_, part) => {
      if (part === 'clock') return () => 0 // the time is not data
      throw new Error(`deps.${String(part)} was touched without an actor`)
    },
  })
  const call: HttpCall = {
    requestId: 'req_test',
    authorization: null,
    userAgent: null,
    header: () => null,
    clientAddress: () => null,
    headers: {},
  }
  for (const { path, input, access, run } of endpoints) {
    if (access !== 'root-key') continue
    test(path, async () => {
      const failure: unknown = await (async () => run(untouchable, call, sample(input)))().catch(
        (cause: unknown) => cause,
      )
      expect(failure).toBeInstanceOf(ApiError)
      // Some parameters are checked before authentication, which reads only the input.
      expect((failure as ApiError).code).toBeOneOf(['UNAUTHORIZED', 'BAD_REQUEST']) // checked above
    })
  }
})

/** The smallest value of a schema, so that no check of the input hides a later step. */
function sample(schema: TSchema): unknown {
  if (schema.const !== undefined) return schema.const
  if (schema.anyOf !== undefined) return sample(schema.anyOf[0])
  switch (schema.type) {
    case 'object':
      return Object.fromEntries(
        (schema.required ?? []).map((name: string) => [name, sample(schema.properties[name])]),
      )
    case 'array':
      return Array.from({ length: schema.minItems ?? 0 }, () => sample(schema.items))
    case 'string':
      return 'x'.repeat(Math.max(3, schema.minLength ?? 0))
    case 'integer':
    case 'number':
      return schema.minimum ?? (schema.exclusiveMinimum ?? 0) + 1
    default:
      return false
  }
}
