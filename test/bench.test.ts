import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type PacedLoad, sendPaced } from '../bench/support/paced.ts'
import { startTarget, Turns } from '../bench/support/target.ts'
import { TEST_DATABASE_URL } from './support/database.ts'
import { outcomeOf } from './support/outcome.ts'
import { SLOW_MS } from './support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/** What runs on the embedded database too: the others start servers again and again, which takes ten times as long there. */
const EMBEDDED = ['import-keys.bench.ts', 'window-table.bench.ts']

/** Each benchmark checks its own answers and fails when one is wrong; tiny, so that none can rot unnoticed. */
describe('the benchmark runs, and its answers are right:', () => {
  const folder = `${import.meta.dir}/../bench`
  const files = readdirSync(folder).filter((name) => name.endsWith('.bench.ts'))
  for (const file of files)
    test.skipIf(TEST_DATABASE_URL === null && !EMBEDDED.includes(file))(
      file.replace('.bench.ts', ''),
      async () => {
        const child = Bun.spawn(
          [process.execPath, 'bench/main.ts', file.replace('.bench.ts', ''), '--tiny'],
          {
            cwd: `${folder}/..`,
            stdout: 'pipe',
            stderr: 'pipe',
          },
        )
        const { out, err, code } = await outcomeOf(child)
        expect(code, `${out}${err}`).toBe(0)
        expect(out.length).toBeGreaterThan(0)
      },
    )
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

  test('tells what a slow server did, and does not take it for its own pause', async () => {
    let calls = 0
    await using server = Bun.serve({
      port: 0,
      fetch: async () => {
        if (++calls % 10 === 0) await Bun.sleep(10)
        return new Response('yes')
      },
    })
    const { latencies, undisturbed, answered, failed } = await sendPaced(callsTo(server, 200, 2))
    expect({ answered, failed }).toEqual({ answered: 400, failed: 0 })
    expect(latencies.percentile(1)).toBeGreaterThan(9)
    expect(undisturbed.percentile(1)).toBeGreaterThan(9)
  })

  test('counts what was due while it stood still itself, and tells the rest once more without it', async () => {
    await using server = Bun.serve({ port: 0, fetch: () => new Response('yes') })
    const standStill = () => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
    const { latencies, undisturbed, answered } = await sendPaced(callsTo(server, 1000, 1.5), standStill)
    expect(answered).toBe(1500)
    expect(latencies.percentile(1)).toBeGreaterThan(190)
    expect(undisturbed.count).toBeLessThanOrEqual(1300)
    expect(undisturbed.percentile(1)).toBeLessThan(190)
  })

  test('sends every second call to another socket, and tells those by themselves', async () => {
    const paths = { first: 0, second: 0 }
    using stack = new DisposableStack()
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'))
    stack.defer(() => rmSync(folder, { recursive: true }))
    await using first = Bun.serve({
      port: 0,
      fetch: () => {
        paths.first++
        return new Response('yes')
      },
    })
    await using _ = Bun.serve({
      unix: join(folder, 'second.sock'),
      fetch: async () => {
        paths.second++
        await Bun.sleep(20)
        return new Response('yes')
      },
    })
    const load = { ...callsTo(first, 100, 2), secondSocketPath: join(folder, 'second.sock') }
    const { latencies, second, answered, failed } = await sendPaced(load)
    expect({ answered, failed, ...paths }).toEqual({ answered: 200, failed: 0, first: 100, second: 100 })
    expect({ first: latencies.count, second: second?.latencies.count }).toEqual({ first: 100, second: 100 })
    expect(second?.latencies.percentile(0)).toBeGreaterThan(19)
    expect(latencies.percentile(0.1)).toBeLessThan(19)
  })
})

describe('the turns of those that are measured', () => {
  test('let one answer while the others stand still, and all of them afterwards', async () => {
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
