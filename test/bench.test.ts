import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { TEST_DATABASE_URL } from './support/database.ts'
import { SLOW_MS } from './support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/** Those that do more, or otherwise, on a Postgres; the others run on the embedded database alone. */
const ON_POSTGRES = ['http.bench.ts', 'latency.bench.ts', 'usage.bench.ts']

/** Each benchmark checks its own answers and fails when one is wrong; tiny, so that none can rot unnoticed. */
describe('the benchmark runs, and its answers are right:', () => {
  const folder = `${import.meta.dir}/../bench`
  const files = readdirSync(folder).filter((name) => name.endsWith('.bench.ts'))
  for (const file of files)
    test.skipIf(TEST_DATABASE_URL !== null && !ON_POSTGRES.includes(file))(
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
        const [output, errors, code] = await Promise.all([
          new Response(child.stdout).text(),
          new Response(child.stderr).text(),
          child.exited,
        ])
        expect(code, `${output}${errors}`).toBe(0)
        expect(output.length).toBeGreaterThan(0)
      },
    )
})
