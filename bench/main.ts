import { readdirSync } from 'node:fs'
import { load } from './load.ts'

/**
 * `bun run bench` runs all benchmarks, `bun run bench <name>` those named: `bench/<name>.bench.ts`. `bun run bench load`
 * drives a server that runs already, see load.ts.
 */
if (process.argv[2] === 'load') process.exit(await load(process.argv.slice(3)))
const known = readdirSync(import.meta.dir)
  .filter((file) => file.endsWith('.bench.ts'))
  .map((file) => file.replace('.bench.ts', ''))
const asked = process.argv.slice(2).filter((argument) => !argument.startsWith('-'))
const unknown = asked.filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`no benchmark named ${unknown.join(', ')}; there are ${known.join(', ')}`)
  process.exit(2)
}
for (const name of asked.length > 0 ? asked : known) {
  const { run } = (await import(`./${name}.bench.ts`)) as {
    run: (options: { tiny?: boolean }) => Promise<void>
  } // what each exports
  await run({ tiny: process.argv.includes('--tiny') })
  console.log()
}
process.exit(0)
