import { readdirSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { load } from './load.ts'

/**
 * `bun run bench` runs all benchmarks, `bun run bench <name>` those named: `bench/<name>.bench.ts`. `bun run bench load`
 * drives a server that runs already, see load.ts. `--full` adds what takes long, `--minutes` says how long a soak lasts.
 */
if (process.argv[2] === 'load') process.exit(await load(process.argv.slice(3)))
const known = readdirSync(import.meta.dir)
  .filter((file) => file.endsWith('.bench.ts'))
  .map((file) => file.replace('.bench.ts', ''))
const { values, positionals: asked } = parseArgs({
  args: process.argv.slice(2),
  allowPositionals: true,
  options: {
    tiny: { type: 'boolean', default: false },
    full: { type: 'boolean', default: false },
    minutes: { type: 'string' },
  },
})
const minutes = Number(values.minutes ?? 5)
if (!(minutes > 0)) {
  console.error(`--minutes wants a number above 0, got ${values.minutes}`)
  process.exit(2)
}
const unknown = asked.filter((name) => !known.includes(name))
if (unknown.length > 0) {
  console.error(`no benchmark named ${unknown.join(', ')}; there are ${known.join(', ')}`)
  process.exit(2)
}
for (const name of asked.length > 0 ? asked : known) {
  const { run } = (await import(`./${name}.bench.ts`)) as {
    run: (options: { tiny: boolean; full: boolean; minutes: number }) => Promise<void>
  } // what each exports
  await run({ tiny: values.tiny, full: values.full, minutes })
  console.log()
}
process.exit(0)
