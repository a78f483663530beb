import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { type PacedLoad, sendPaced } from '../bench/support/paced.ts'
import { startTarget, Turns } from '../bench/support/target.ts'
import { TEST_DATABASE_URL } from './support/database.ts'
import { IS_NIGHTLY } from './support/nightly.ts'
import { outcomeOf } from './support/outcome.ts'
import { SLOW_MS } from './support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/**
 * Benchmarks that also run on the embedded database. The others start servers repeatedly, which takes ten times as long
 * there.
 */
const EMBEDDED = ['import-keys.bench.ts', 'overrides.bench.ts', 'together.bench.ts', 'window-table.bench.ts']

/** These start servers and fill databases, for up to half a minute each: `bun run nightly` has them. */
const AT_NIGHT = [
  'capacity',
  'fleet',
  'growth',
  'http',
  'import-keys',
  'latency',
  'recent',
  'soak',
  'threads',
  'usage',
].map((name) => `${name}.bench.ts`)

/** Each benchmark checks its own answers and fails on a wrong one. The tiny runs show that all still work. */
describe('the benchmark runs, and its results are checked:', () => {
  const folder = `${import.meta.dir}/../bench`
  const files = readdirSync(folder).filter((name) => name.endsWith('.bench.ts'))
  for (const file of files)
    test.skipIf(
      (TEST_DATABASE_URL === null && !EMBEDDED.includes(file)) || (!IS_NIGHTLY && AT_NIGHT.includes(file)),
    )(file.replace('.bench.ts', ''), async () => {
      const child = Bun.spawn([process.execPath, 'bench/main.ts', file.replace('.bench.ts', ''), '--tiny'], {
        cwd: `${folder}/..`,
        stdout: 'pipe',
        stderr: 'pipe',
      })
      const { out, err, code } = await outcomeOf(child)
      expect(code, `${out}${err}`).toBe(0)
      expect(out.length).toBeGreaterThan(0)
    })
})

describe('the paced load', () => {
  const callsTo = (server: Bun.Server<undefined>, rate: number, seconds: number): PacedLoad => ({
    url: server.url.href,
    socketPath: null,
    headers: {},
    calls: [{ path: '/', body: '{}', expected: 'yes' }],
    connections: 8,
    seconds,
    rate,
  })

  test('counts answers of a slow server as late, and calls that were due while it stood still', async () => {
    let calls = 0
    await using server = Bun.serve({
      port: 0,
      fetch: async () => {
        if (++calls === 50) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
        return new Response('yes')
      },
    })
    const { latencies, answered, failed } = await sendPaced(callsTo(server, 1000, 1))
    expect({ answered, failed }).toEqual({ answered: 1000, failed: 0 })
    expect(latencies.percentile(1)).toBeGreaterThan(190)
    // Not only the call that met the pause: all calls that were due in those 200 ms.
    expect(latencies.percentile(0.9)).toBeGreaterThan(50)
  })
})

describe('taking turns in a measurement', () => {
  test('lets one server answer while the others stand still, and all of them afterwards', async () => {
    const script = [`${import.meta.dir}/../bench/baselines/bun-serve.ts`]
    await using one = await startTarget('one', script)
    await using other = await startTarget('other', script)
    const isAnswering = async ({ url }: { url: string }, withinMs: number) => {
      const signal = AbortSignal.timeout(withinMs)
      return await fetch(url, { method: 'POST', body: '{}', signal }).then(
        () => true,
        () => false,
      )
    }
    const turns = new Turns([one, other])
    await turns.give(one)
    expect(await isAnswering(one, SLOW_MS)).toBe(true)
    expect(await isAnswering(other, 300)).toBe(false)
    await turns.give(other)
    expect(await isAnswering(other, SLOW_MS)).toBe(true)
    expect(await isAnswering(one, 300)).toBe(false)
    turns[Symbol.dispose]()
    expect(await isAnswering(one, SLOW_MS)).toBe(true)
    expect(await isAnswering(other, SLOW_MS)).toBe(true)
  })
})
