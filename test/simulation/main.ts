import { parseArgs } from 'node:util'
import { configureLog } from '../../src/log.ts'
import { simulateFleet } from './fleet.ts'
import { FLEET_PLANTS } from './fleet-plants.ts'
import { PLANTS } from './plants.ts'
import { simulate } from './simulation.ts'

/** `bun run simulate`: runs seeds one after the other, and shows the first failing one step by step. */

const USAGE = `usage: bun run simulate [fleet] [options]
  fleet          servers that share limits, and the engine that they ask
  --seeds N      how many seeds to run (default 1000)
  --seed S       the first of them (default 1)
  --seconds T    stop after so many seconds
  --jobs J       on so many processes (default 1)
  --plant NAME   with a bug planted: ${Object.keys(PLANTS).join(', ')};
                 of a fleet: ${Object.keys(FLEET_PLANTS).join(', ')}
  --steps N      how many of the last steps of a failure to show (default 60)
  --json         one line for programs instead`

export type Report = {
  seeds: number
  decisions: number
  faults: number
  virtualHours: number
  tookMs: number
  failed: { seed: number; message: string } | null
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: 'string', default: '1000' },
    seed: { type: 'string', default: '1' },
    seconds: { type: 'string' },
    jobs: { type: 'string', default: '1' },
    plant: { type: 'string' },
    steps: { type: 'string', default: '60' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const first = Number(values.seed)
const count = Number(values.seeds)
const jobs = Number(values.jobs)
const steps = Number(values.steps)
const isFleet = positionals[0] === 'fleet'
const [run, plants] = isFleet ? [simulateFleet, FLEET_PLANTS] : [simulate, PLANTS]
const plant = values.plant === undefined ? undefined : plants[values.plant]
const isWrong =
  positionals.length > (isFleet ? 1 : 0) ||
  ![first, count, jobs, steps].every((number) => Number.isSafeInteger(number) && number >= 0) ||
  (values.plant !== undefined && plant === undefined)
if (values.help || isWrong) {
  console.log(USAGE)
  process.exit(isWrong ? 2 : 0)
}

/** Rejections that nothing handled. They belong to the seed that ran last. */
const unheard: unknown[] = []
process.on('unhandledRejection', (cause) => unheard.push(cause))

const report = jobs > 1 ? await runJobs() : await runSeeds()
if (values.json) console.log(JSON.stringify(report))
else if (report.failed === null) console.log(summary(report))
else explain(report, report.failed.seed)
process.exit(report.failed === null ? 0 : 1)

async function runSeeds(): Promise<Report> {
  const began = performance.now()
  const untilMs =
    values.seconds === undefined ? Number.POSITIVE_INFINITY : began + 1_000 * Number(values.seconds)
  configureLog({ level: 'error', isPretty: false })
  Error.stackTraceLimit = 0 // most errors are simulated faults, by the thousand, whose stacks nobody reads
  plant?.plant()
  const report: Report = { seeds: 0, decisions: 0, faults: 0, virtualHours: 0, tookMs: 0, failed: null }
  let toldAt = began
  for (
    let seed = first;
    seed < first + count && performance.now() < untilMs && report.failed === null;
    seed++
  ) {
    const { decisions, faults, virtualMs, failure } = run(seed, { isTraced: false })
    report.seeds++
    report.decisions += decisions
    report.faults += faults
    report.virtualHours += virtualMs / 3_600_000
    report.tookMs = performance.now() - began
    if (failure !== null) report.failed = { seed, message: failure.message }
    await new Promise((resolve) => setImmediate(resolve)) // lets the runtime report unhandled rejections
    if (unheard.length > 0) report.failed ??= { seed, message: `nobody awaited: ${unheard[0]}` }
    if (performance.now() - toldAt < 60_000) continue
    toldAt = performance.now()
    console.error(summary(report))
  }
  return report
}

/** Each process takes its share of the seeds. */
async function runJobs(): Promise<Report> {
  const began = performance.now()
  const share = Math.ceil(count / jobs)
  const reports = await Promise.all(
    Array.from({ length: jobs }, async (_, job) => {
      const from = first + job * share
      const options = {
        seed: from,
        seeds: Math.min(share, first + count - from),
        seconds: values.seconds,
        plant: values.plant,
      }
      const given = Object.entries(options).flatMap(([name, value]) =>
        value === undefined ? [] : [`--${name}`, String(value)],
      )
      const child = Bun.spawn([process.execPath, import.meta.path, ...positionals, '--json', ...given], {
        stdout: 'pipe',
        stderr: 'inherit',
      })
      const text = await new Response(child.stdout).text()
      return JSON.parse(text) as Report // as printed above
    }),
  )
  const sum = (of: (report: Report) => number) => reports.reduce((total, report) => total + of(report), 0)
  return {
    seeds: sum(({ seeds }) => seeds),
    decisions: sum(({ decisions }) => decisions),
    faults: sum(({ faults }) => faults),
    virtualHours: sum(({ virtualHours }) => virtualHours),
    tookMs: performance.now() - began,
    failed: reports.find(({ failed }) => failed !== null)?.failed ?? null,
  }
}

function summary({ seeds, decisions, faults, virtualHours, tookMs }: Report): string {
  const perSecond = (what: number) => Math.round(what / (tookMs / 1_000)).toLocaleString('en')
  return (
    `${seeds.toLocaleString('en')} seeds, ${decisions.toLocaleString('en')} decisions, ` +
    `${faults.toLocaleString('en')} faults, ${virtualHours.toFixed(1)} virtual hours in ${(tookMs / 1_000).toFixed(1)} s: ` +
    `${perSecond(seeds)} seeds/s, ${perSecond(decisions)} decisions/s`
  )
}

/** Runs the same seed again, with a trace. */
function explain(report: Report, seed: number): void {
  if (jobs > 1) plant?.plant()
  Error.stackTraceLimit = 10
  configureLog({ level: 'info', isPretty: false })
  const { failure, trace } = run(seed, { isTraced: true })
  configureLog({ level: 'error', isPretty: false })
  console.log(
    `   virtual ms  the last ${Math.min(steps, trace.length)} of ${trace.length} steps of seed ${seed}`,
  )
  for (const line of trace.slice(-steps)) console.log(line)
  console.log(`\n${failure?.stack ?? 'It did not fail again.'}`)
  if (failure?.cause !== undefined) console.log('because of', failure.cause)
  const planted = values.plant === undefined ? '' : ` --plant ${values.plant}`
  console.log(
    `\nafter ${summary(report)}\nagain: bun run simulate ${positionals.map((each) => `${each} `).join('')}--seeds 1 --seed ${seed}${planted}`,
  )
}
