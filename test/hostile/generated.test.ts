import { expect, setDefaultTimeout, test } from 'bun:test'
import { allEndpoints } from '../../src/server/app.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { type CampaignReport, runCampaign, startHostileServer } from './campaign.ts'

setDefaultTimeout(IS_NIGHTLY ? 1_200_000 : 240_000) // at night tens of thousands of requests, on either database

/** The same requests in each run; at night more than 100 000. `bun run hostile` sends millions. */
const [WATCHED, UNWATCHED] = IS_NIGHTLY ? [8_000, 86_000] : [6_000, 6_000]
const SEED = 1

/** Room for caches that fill up to their bounds. A leak of a few bytes a request would exceed it. */
const GROWTH_MIB_MAX = 48

/** All but those that accept nothing. */
const ANSWERING = allEndpoints.filter(({ path }) => !path.startsWith('/v2/analytics.'))

function expectSound({ drawn, accepted, byStatus, heapMib }: CampaignReport, requests: number): void {
  expect(drawn).toBe(requests)
  const [first = 0, ...later] = heapMib
  expect(Math.max(...later) - first).toBeLessThan(GROWTH_MIB_MAX)
  for (const status of [200, 400, 403, 404, 409, 412]) expect(byStatus[status]).toBeGreaterThan(10)
  // An endpoint without accepted requests would not have been tested beyond its checks.
  const reached = ANSWERING.filter(({ path }) => (accepted[path] ?? 0) > 0)
  expect(reached.length).toBeGreaterThan(0.8 * ANSWERING.length)
}

test('any input gets a well-formed answer, and a refused request has written nothing', async () => {
  await using server = await startHostileServer()
  const options = { requests: WATCHED, batch: 2000, seed: SEED, concurrency: 16, watches: true }
  const report = await runCampaign(server, options)
  expectSound(report, WATCHED)
  expect(report.refusedWatched).toBeGreaterThan(WATCHED / 3)
  expect(report.writesSeen).toBeGreaterThan(100)
})

test('no input causes an error of the server, a hanging request, or growing memory', async () => {
  await using server = await startHostileServer()
  const options = { requests: UNWATCHED, batch: 2000, seed: SEED + 1000, concurrency: 16, watches: false }
  expectSound(await runCampaign(server, options), UNWATCHED)
})
