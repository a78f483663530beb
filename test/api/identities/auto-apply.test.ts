import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import type { WantedLimit } from '../../../src/api/identities/new-limits.ts'
import { updateIdentity } from '../../../src/api/identities/update-identity.ts'
import { authenticate } from '../../../src/api/root-keys/authorize.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  // Time stands still: no window ends between two verifications.
  server = await startTestServer({ clock: () => Date.parse('2026-06-01T12:00:00.000Z') })
})
afterAll(async () => await server[Symbol.asyncDispose]())

const requests = { name: 'requests', limit: 2, durationMs: 60_000 }
const tokens = { name: 'tokens', limit: 100, durationMs: 60_000 }

/** A workspace with an identity that has a key. `set` is a caller that knows `autoApply`. */
async function start() {
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'my api' })
  const { identityId } = await workspace.post('identities.createIdentity', { externalId: 'user_1' })
  const { key } = await workspace.post('keys.createKey', { apiId, externalId: 'user_1' })
  const { deps } = server.server
  const actor = await authenticate(deps, {
    requestId: 'req_1',
    authorization: `Bearer ${workspace.rootKey}`,
    userAgent: null,
    clientAddress: () => null,
  })
  return {
    ...workspace,
    identityId,
    set: (limits: WantedLimit[]) =>
      updateIdentity(deps, actor, { id: identityId }, { meta: null, limits }).then((after) => after.limits),
    verify: async () => (await server.post('keys.verifyKey', { key })).body,
    changes: async () => {
      const { events } = await workspace.get('audit.listEvents', { event: 'ratelimit.update' })
      return events.map(({ resources }: { resources: Record<string, unknown>[] }) => {
        const { before, after } = resources[1] ?? {}
        return { before, after }
      })
    },
  }
}

test('an auto-applied limit of an identity counts in verifications that do not name it, another one does not', async () => {
  const { set, verify } = await start()
  await set([{ ...requests, autoApply: false }])
  for (let i = 0; i < 3; i++) expect((await verify()).code).toBe('VALID')
  await set([{ ...requests, autoApply: true }])
  expect([(await verify()).code, (await verify()).code, (await verify()).code]).toEqual([
    'VALID',
    'VALID',
    'RATE_LIMITED',
  ])
  await set([{ ...requests, autoApply: false }])
  expect((await verify()).code).toBe('VALID')
})

test('a change of autoApply alone keeps the id of the limit and is audited', async () => {
  const { set, changes } = await start()
  const [before] = await set([{ ...requests, autoApply: true }])
  const [after] = await set([{ ...requests, autoApply: false }])
  expect(before).toEqual({ ...requests, autoApply: true, id: expect.stringMatching(/^rl_/) })
  expect(after).toEqual({ ...requests, autoApply: false, id: before?.id ?? '' })
  expect(await changes()).toEqual([{ before: { autoApply: true }, after: { autoApply: false } }])
})

/** v1 has no word for it: a v1 client that raises a limit must not switch it off for everybody. */
test('v1 leaves autoApply on limits that it keeps, shows none of it, and makes limits without it', async () => {
  const { set, post, get, verify, identityId } = await start()
  const [own] = await set([{ ...requests, autoApply: true }])
  const { ratelimits } = await post('identities.updateIdentity', {
    identityId,
    ratelimits: [
      { name: 'requests', limit: 1, duration: 60_000 },
      { name: 'tokens', limit: 100, duration: 60_000 },
    ],
  })
  expect(ratelimits).toEqual([
    { name: 'requests', limit: 1, duration: 60_000 },
    { name: 'tokens', limit: 100, duration: 60_000 },
  ])
  // Ids made in one second are in no order.
  const shown = (await get('identities.getIdentity', { identityId })).ratelimits
  expect(shown.toSorted((a: { limit: number }, b: { limit: number }) => a.limit - b.limit)).toEqual(
    ratelimits,
  )
  const kept = await set([
    { ...requests, autoApply: null },
    { ...tokens, autoApply: null },
  ])
  expect(kept.toSorted((a, b) => a.limit - b.limit)).toMatchObject([
    { id: own?.id ?? '', name: 'requests', autoApply: true },
    { name: 'tokens', autoApply: false },
  ])
  expect([(await verify()).code, (await verify()).code, (await verify()).code]).toEqual([
    'VALID',
    'VALID',
    'RATE_LIMITED',
  ])
})
