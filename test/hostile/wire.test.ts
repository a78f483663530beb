import { expect, setDefaultTimeout, test } from 'bun:test'
import { SLOW_MS } from '../support/timeout.ts'
import { NODE, runWireCampaign } from './wire/campaign.ts'

setDefaultTimeout(SLOW_MS)

if (NODE === null) console.warn('no node is installed: the reader of HTTP is not compared with another')

/** `bun run hostile wire` sends two hundred thousand. */
test.if(NODE !== null)(
  'two thousand generated connections are read as by Node’s strict parser, except for the explained differences',
  async () => {
    const report = await runWireCampaign({ cases: 2000, seed: 1, concurrency: 16 })
    expect(report.differences.filter(({ why }) => why === null)).toEqual([])
    // If nothing were read at all, nothing would differ.
    expect(report.same).toBeGreaterThan(1500)
    expect(report.differences.length).toBeGreaterThan(5)
  },
)
