import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
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
  /** On the second core alone. True unless said otherwise. */
  isPinned?: boolean
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

export const sendLoad = (load: Load): Promise<LoadResult> =>
  generator === 'wrk' ? viaWrk(load) : viaAutocannon(load)

async function viaWrk({
  url,
  path,
  headers,
  bodies,
  connections,
  seconds,
  isPinned = true,
}: Load): Promise<LoadResult> {
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
      ...(isPinned ? pin(1) : []),
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
  const command = [
    ...(load.isPinned === false ? [] : pin(1)),
    process.execPath,
    `${import.meta.dir}/autocannon.ts`,
  ]
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
