import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { HttpCall } from '../../../src/doors/http/endpoint.ts'
import { verifyKey } from '../../../src/doors/v1/keys/verify-key.ts'
import { limitEndpoint } from '../../../src/doors/v1/ratelimits/limit.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let workspace: TestWorkspace
/** The server's time: minutes of load are sent in seconds. */
let now = Math.ceil(Date.parse('2026-06-01T12:00:00Z') / 1000) * 1000
beforeAll(async () => {
  server = await startTestServer({ clock: () => now })
  workspace = await server.workspace()
})
afterAll(() => server[Symbol.asyncDispose]())

/** Limit, window (s), requests a second, seconds: the loads of the v1 API's own suite. */
const LOADS: [number, number, number, number][] = [
  [50, 1, 200, 15],
  [100, 5, 300, 65],
  [200, 30, 50, 420],
  [5, 10, 20, 140],
  [1000, 15, 200, 180],
]

/**
 * Sends a constant load and counts the passed calls. The v1 suite accepts 0.95 to 1.5 times the exact count, because its
 * load starts anywhere in a window. Here it starts with a window, so the count must be exactly the limit in each window.
 */
async function passedUnderLoad(
  [limitValue, windowSeconds, perSecond, seconds]: [number, number, number, number],
  send: (limit: number, durationMs: number) => Promise<boolean>,
): Promise<number> {
  const windowMs = windowSeconds * 1000
  now = Math.ceil(now / windowMs) * windowMs
  const start = now
  let passed = 0
  for (let second = 0; second < seconds; second++) {
    for (let at = 0; at < perSecond; at += BURST) {
      now = start + second * 1000 + Math.floor((at * 1000) / perSecond)
      const burst = Array.from({ length: Math.min(BURST, perSecond - at) }, () => send(limitValue, windowMs))
      for (const isPassed of await Promise.all(burst)) passed += isPassed ? 1 : 0
    }
  }
  return passed
}

/** Calls that arrive in the same millisecond. */
const BURST = 10

const callWith = (rootKey: string | null): HttpCall => ({
  requestId: 'req_test',
  authorization: rootKey === null ? null : `Bearer ${rootKey}`,
  userAgent: null,
  header: () => null,
  clientAddress: () => null,
  headers: {},
})

describe('under constant load exactly the calls that the windows allow pass', () => {
  for (const load of LOADS) {
    const [limitValue, windowSeconds, perSecond, seconds] = load
    const what = `${limitValue} per ${windowSeconds} s, ${perSecond}/s for ${seconds} s`
    const exact = limitValue * Math.ceil(seconds / windowSeconds)

    test(`ratelimits.limit: ${what}`, async () => {
      const call = callWith(workspace.rootKey)
      const identifier = `load ${what}`
      const passed = await passedUnderLoad(load, async (value, duration) => {
        const answer = await limitEndpoint(server.server.deps, call, { identifier, limit: value, duration })
        return answer.success
      })
      expect(passed).toBe(exact)
    })

    test(`keys.verifyKey with a named limit: ${what}`, async () => {
      const { apiId } = await workspace.post('apis.createApi', { name: 'load' })
      const { key } = await workspace.post('keys.createKey', { apiId })
      const passed = await passedUnderLoad(load, async (value, duration) => {
        const ratelimits = [{ name: 'load', limit: value, duration }]
        return (await verifyKey(server.server.deps, callWith(null), { key, ratelimits })).valid
      })
      expect(passed).toBe(exact)
    })
  }
})
