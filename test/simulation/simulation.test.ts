import { expect, setDefaultTimeout, test } from 'bun:test'
import { fileURLToPath } from 'node:url'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { SLOW_MS } from '../support/timeout.ts'
import type { Report } from './main.ts'

setDefaultTimeout(IS_NIGHTLY ? 5 * SLOW_MS : SLOW_MS)

const MAIN = fileURLToPath(new URL('./main.ts', import.meta.url))

/** In its own process, because it replaces promises, logs and, for planted bugs, the program's classes. */
async function simulate(...options: string[]): Promise<Report> {
  const child = Bun.spawn([process.execPath, MAIN, '--json', ...options], { stdout: 'pipe', stderr: 'pipe' })
  const { out, err } = await outcomeOf(child)
  if (out === '') throw new Error(err)
  return JSON.parse(out) as Report // what --json prints
}

test('limits, credits, caches and usage keep their guarantees, whatever fails in whatever order', async () => {
  // At night other seeds than in the daytime.
  const [seconds, seed] = IS_NIGHTLY ? ['120', '100000'] : ['10', '1']
  const report = await simulate('--seconds', seconds, '--seeds', '1000000', '--seed', seed)
  expect(report.failed, 'bun run simulate --seeds 1 --seed … shows the steps').toBeNull()
  expect(report.decisions).toBeGreaterThan(10_000)
  expect(report.faults).toBeGreaterThan(100)
})

/** Planted bugs: name, a seed shortly before the one that finds it, and the expected message. */
type Plant = [name: string, first: string, message: RegExp]
const PLANTS: Plant[] = [
  ['window-edge', '1', /expected .* used until .*, got/],
  ['stale-cache', '1', /had to see version/],
  ['credits-for-free', '1', /credits were answered/],
  ['undo-unsent', '1', /passed together until .*, and .* are counted/],
]
const PLANTS_OF_THE_NIGHT: Plant[] = [
  ['flush-forgets', '1', /stopped cleanly: .* used until|the database has/],
  ['rewrite-skips', '1', /the database has|has stopped cleanly/],
  ['overflow-forgets', '850', /the database has|has stopped cleanly/],
  ['restore-doubles', '1', /expected .* used until .*, got/],
  ['failed-goes-on', '60', /more than its limit|answers that nobody asked for|expected .* used until/],
  ['refusal-charges', '1', /expected .* used until .*, got/],
  ['no-undo', '1', /expected .* used until .*, got/],
  ['undo-anyone', '80', /told to undo/],
  ['locked-charges', '150', /credits are spent, .* were answered/],
]

/** A simulation that finds nothing might check nothing. */
test.each([...PLANTS, ...(IS_NIGHTLY ? PLANTS_OF_THE_NIGHT : [])])(
  'it finds a planted bug, and without the bug nothing with the same seed: %s',
  async (plant, first, message) => {
    const { failed } = await simulate('--plant', plant, '--seed', first, '--seeds', '2000')
    expect(failed?.message ?? 'nothing').toMatch(message)
    const seed = String(failed?.seed)
    console.log(`${plant} is caught by seed ${seed}: ${failed?.message}`)
    expect((await simulate('--plant', plant, '--seed', seed, '--seeds', '1')).failed).toEqual(failed)
    expect(await simulate('--seed', seed, '--seeds', '1')).toMatchObject({ seeds: 1, failed: null })
  },
)
