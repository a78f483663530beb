import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { SLOW_MS } from './support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

/** Each benchmark checks its own answers and fails when one is wrong; tiny, so that none can rot unnoticed. */
describe('the benchmark runs, and its answers are right:', () => {
  const folder = `${import.meta.dir}/../bench`
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.bench.ts')))
    test(file.replace('.bench.ts', ''), async () => {
      const child = Bun.spawn([process.execPath, 'bench/main.ts', file.replace('.bench.ts', ''), '--tiny'], {
        cwd: `${folder}/..`,
        stdout: 'pipe',
        stderr: 'pipe',
      })
      const [output, errors, code] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
        child.exited,
      ])
      expect(code, `${output}${errors}`).toBe(0)
      expect(output.length).toBeGreaterThan(0)
    })
})
