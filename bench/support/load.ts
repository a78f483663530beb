import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Requests to send in turn, over and over: one path, many bodies. */
export type Load = {
  url: string
  path: string
  headers: Record<string, string>
  bodies: string[]
  connections: number
  seconds: number
}

/** Latencies in milliseconds. `answered` counts every answer, `failed` those that are no 200. */
export type LoadResult = {
  answered: number
  failed: number
  requestsPerSecond: number
  p50: number
  p99: number
  p999: number
}

/** `wrk` where it is installed: it costs the least. Else `autocannon`, which the install brings. */
export const generator: 'wrk' | 'autocannon' = Bun.which('wrk') === null ? 'autocannon' : 'wrk'

/** Where there are two cores or more: the server on the first, the load on the second. */
export const pin = (core: 0 | 1): string[] =>
  Bun.which('taskset') === null || navigator.hardwareConcurrency < 2 ? [] : ['taskset', '-c', String(core)]

/** Moves a process of this machine, with all its threads, to the core of the load. @returns whether that was done. */
const moveToLoad = (pid: number): boolean => pin(1).length > 0 && allow(pid, '1')

/** The server's core without others' work, as far as that may be had, until disposed of. */
export type FreeCore = Disposable & {
  /** Who was moved, for the heading of what was measured. */
  text: string
  /** Whether there is a Postgres on this machine that was moved. */
  isWithoutPostgres: boolean
}

/**
 * Keeps this process, which may send some calls itself, on the core of the load, and the kernel's own threads that may be
 * moved. One of those that look for memory to take back, as on machines that are lent out, ran there twice a second for 2.2 to
 * 4.5 ms; those that take what Postgres writes to the disk, for up to 4.3 ms at a time.
 * @param options.ofPostgres Whether a Postgres on this machine moves too, with all its processes. What it starts meanwhile, for
 *   a connection or to vacuum, begins on the core of the one that starts it.
 */
export function clearServerCore({ ofPostgres = false } = {}): FreeCore {
  const before = new Map<number, string>()
  /** @returns whether one of them was moved. */
  const clear = (pids: number[]): boolean => {
    let isOne = false
    for (const pid of pin(1).length > 0 ? pids : []) {
      const cores = statusOf(pid, 'Cpus_allowed_list')
      const isMovable = cores !== null && /[-,]/.test(cores) // those that are of one core stay there
      if (!isMovable || !moveToLoad(pid)) continue
      before.set(pid, cores)
      isOne = true
    }
    return isOne
  }
  clear([process.pid])
  const areThreadsMoved = clear(pidsWith('PPid', KTHREADD))
  const postgres = ofPostgres ? pidsWith('Name', POSTGRES) : []
  const isWithoutPostgres = clear(postgres)
  const moved = [areThreadsMoved ? 'kernel threads' : [], isWithoutPostgres ? 'Postgres' : []].flat()
  // Such as begin later are of a queue, and run where its mask says.
  const masks = pin(1).length > 0 ? globSync('/sys/devices/virtual/workqueue/{,*/}cpumask') : []
  const masksBefore = masks.map((file) => [file, readFileSync(file, 'utf8')] as const)
  for (const file of masks) writeMask(file, '2') // the second core, a bit for each
  const putBack = () => {
    // What Postgres has begun meanwhile may be where the rest of it may.
    const cores = postgres.map((pid) => before.get(pid)).find((each) => each !== undefined)
    if (cores !== undefined)
      for (const pid of pidsWith('Name', POSTGRES)) if (!postgres.includes(pid)) allow(pid, cores)
    for (const [pid, cores] of before) allow(pid, cores)
    before.clear()
    for (const [file, mask] of masksBefore.splice(0)) writeMask(file, mask)
  }
  const interrupted = (signal: NodeJS.Signals) => {
    putBack()
    process.exit(signal === 'SIGINT' ? 130 : 143)
  }
  for (const signal of SIGNALS) process.once(signal, interrupted)
  return {
    text: moved.length === 0 ? 'kernel threads anywhere' : `${moved.join(' and ')} on the core of the load`,
    isWithoutPostgres,
    [Symbol.dispose]: () => {
      for (const signal of SIGNALS) process.off(signal, interrupted)
      putBack()
    },
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM'] as const

function writeMask(file: string, mask: string): void {
  try {
    writeFileSync(file, mask)
  } catch {
    // not root: they run where they like
  }
}

/** Processes of which the system tells that. */
const pidsWith = (field: string, value: string): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && statusOf(Number(name), field) === value)
    .map(Number)
const KTHREADD = '2'
const POSTGRES = 'postgres'

/** A line of what the system tells of a process; null = it is gone. */
function statusOf(pid: number, field: string): string | null {
  try {
    return (
      new RegExp(`^${field}:\\s*(\\S+)$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? null
    )
  } catch {
    return null
  }
}

const allow = (pid: number, cores: string): boolean =>
  Bun.spawnSync(['taskset', '-a', '-c', '-p', cores, String(pid)]).success

/** What has a program run whenever it has work, where that may be done. Options are those of `chrt`. */
export const firstInLine = (options: string[] = []): string[] =>
  Bun.which('chrt') !== null && Bun.spawnSync(['chrt', ...options, '-f', '1', 'true']).success
    ? ['chrt', ...options, '-f', '1']
    : []

/**
 * Postgres beside `wrk` would otherwise keep it from its core for milliseconds at a time, and that would be told as the
 * server's.
 */
const ahead = firstInLine()

export const sendLoad = (load: Load): Promise<LoadResult> =>
  generator === 'wrk' ? viaWrk(load) : viaAutocannon(load)

async function viaWrk({ url, path, headers, bodies, connections, seconds }: Load): Promise<LoadResult> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  const script = join(folder, 'load.lua')
  const text = (value: string) => `"${value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`
  writeFileSync(
    script,
    `local bodies = {}
${chunks(bodies, 10_000)
  .map(
    (chunk) =>
      `(function() for _, body in ipairs({${chunk.map(text).join(',')}}) do table.insert(bodies, body) end end)();`,
  )
  .join('\n')}
local headers = {${Object.entries(headers)
      .map(([name, value]) => `[${text(name)}]=${text(value)}`)
      .join(',')}}
local requests = {}
function init() for i = 1, #bodies do requests[i] = wrk.format("POST", ${text(path)}, headers, bodies[i]) end end
local at = 0
function request() at = at % #requests + 1; return requests[at] end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('RESULT {"answered":%d,"failed":%d,"us":%d,"p50":%f,"p99":%f,"p999":%f}\\n', summary.requests,
    e.status + e.connect + e.read + e.write + e.timeout, summary.duration,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency:percentile(99.9) / 1000))
end
`,
  )
  try {
    const output = await run([
      ...ahead,
      ...pin(1),
      'wrk',
      '-t1',
      `-c${connections}`,
      `-d${seconds}s`,
      '--timeout=10s',
      `--script=${script}`,
      url,
    ])
    const { us, ...result } = JSON.parse(/RESULT (.*)/.exec(output)?.[1] ?? 'null') as LoadResult & {
      us: number
    } // as written above
    return { ...result, requestsPerSecond: result.answered / (us / 1e6) }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** A function of a script may hold no more than 65 536 texts. */
const chunks = (bodies: string[], size: number): string[][] =>
  Array.from({ length: Math.ceil(bodies.length / size) }, (_, i) => bodies.slice(i * size, (i + 1) * size))

/** In a process of its own, so that what it costs is not counted as anything else. */
async function viaAutocannon(load: Load): Promise<LoadResult> {
  const command = [...pin(1), process.execPath, `${import.meta.dir}/autocannon.ts`]
  const output = await run(command, JSON.stringify(load))
  return JSON.parse(/RESULT (.*)/.exec(output)?.[1] ?? 'null') as LoadResult // as autocannon.ts writes it
}

async function run(command: string[], input = ''): Promise<string> {
  const child = Bun.spawn(command, { stdin: Buffer.from(input), stdout: 'pipe', stderr: 'pipe' })
  const [output, errors, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ])
  if (code !== 0 || !output.includes('RESULT'))
    throw new Error(`${command[0]} failed with ${code}: ${output}${errors}`)
  return output
}
