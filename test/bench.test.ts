import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { TEST_DATABASE_URL } from './support/database.ts'
import { outcomeOf } from './support/outcome.ts'
import { SLOW_MS } from './support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/**
 * Where each runs: those that start servers again and again, on Postgres, where that takes a tenth of the time and where
 * some of them look at more; the others on the embedded database.
 */
const EMBEDDED = ['import-keys.bench.ts', 'window-table.bench.ts']
const isOnPostgres = TEST_DATABASE_URL !== null

/** Each benchmark checks its own answers and fails when one is wrong; tiny, so that none can rot unnoticed. */
describe('the benchmark runs, and its answers are right:', () => {
  const folder = `${import.meta.dir}/../bench`
  const files = readdirSync(folder).filter((name) => name.endsWith('.bench.ts'))
  for (const file of files)
    test.skipIf(EMBEDDED.includes(file) === isOnPostgres)(file.replace('.bench.ts', ''), async () => {
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
