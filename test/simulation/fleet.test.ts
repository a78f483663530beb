import { expect, setDefaultTimeout, test } from 'bun:test'
import { fileURLToPath } from 'node:url'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { SLOW_MS } from '../support/timeout.ts'
import type { Report } from './main.ts'

setDefaultTimeout(IS_NIGHTLY ? 10 * SLOW_MS : SLOW_MS)

const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url))

/** In its own process, because planted bugs replace the program's classes. */
async function simulate(...options: string[]): Promise<Report> {
  const args = [process.execPath, MAIN, 'fleet', '--json', ...options]
  const { out, err } = await outcomeOf(Bun.spawn(args, { stdout: 'pipe', stderr: 'pipe' }))
  if (out === '') throw new Error(err)
  return JSON.parse(out) as Report // what --json prints
}

test('servers that share a limit never let through more than it, whatever fails in whatever order', async () => {
  // At night other seeds than in the daytime.
  const [seconds, seed] = IS_NIGHTLY ? ['300', '100000'] : ['4', '1']
  const report = await simulate('--seconds', seconds, '--seeds', '100000', '--seed', seed)
  console.log(`${report.seeds} seeds, ${report.decisions} decisions, ${report.faults} faults`)
  expect(report.failed, 'bun run simulate fleet --seeds 1 --seed … shows the steps').toBeNull()
  expect(report.decisions).toBeGreaterThan(5_000)
  expect(report.faults).toBeGreaterThan(20)
})

/** Each found a bug once. They show something as long as nothing changes what a seed does. */
test.each(['300331', '300380', '308348', '323075'])(
  'nor with a seed that was over before: %s',
  async (seed) => {
    expect(await simulate('--seed', seed, '--seeds', '1')).toMatchObject({ seeds: 1, failed: null })
  },
)

/** A simulation that finds nothing might check nothing. One bug for each rule, and a seed that finds it; when that changes,
 * one of the next does. */
test.each([
  ['tell-first', '5'],
  ['own-window', '3'],
  ['additions', '9'],
  ['no-epoch', '18'],
  ['no-learning', '3'],
  ['absolute-expiry', '98'],
])('it finds a planted bug, and without the bug nothing with the same seed: %s', async (plant, first) => {
  const { failed } = await simulate('--plant', plant, '--seed', first, '--seeds', '400')
  expect(failed?.message ?? 'nothing').toMatch(/^\d+ passed of .*: the limit is \d+, /)
  const seed = String(failed?.seed)
  console.log(`${plant} is caught by seed ${seed}: ${failed?.message}`)
  expect(await simulate('--seed', seed, '--seeds', '1')).toMatchObject({ seeds: 1, failed: null })
})
