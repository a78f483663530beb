import { parseArgs } from 'node:util'
import { onInterrupt } from '../src/cli/interrupt.ts'
import { readRootKey } from '../src/cli/root-key-file.ts'
import { readClientConfig } from '../src/config.ts'
import { sendPaced } from './support/paced.ts'
import { DURATION_MS, LIMIT_PATH, VERIFY_PATH } from './support/tollgate.ts'

const USAGE = `usage: bun run bench load --url <http://host:port> [options]

  Sends ratelimits.limit to a running server at a steady rate, or keys.verifyKey when a key is given.

  The root key is that of TOLLGATE_ROOT_KEY, or of a file. Ctrl-C ends it early and tells what was measured.

  --root-key-file <path>  a file that holds it; - = stdin
  --root-key <key>    the same in sight of everyone who may list processes: better not
  --rate <n>          requests a second, 1 to 1000000 (default 1000)
  --duration <s>      seconds, 1 to 86400 (default 10)
  --connections <n>   1 to 10000 (default 32)
  --identifiers <n>   different identifiers, 1 to 1000000 (default 1000)
  --limit <n>         tokens in a window of each, 1 to 9007199254740991, which is the default
  --namespace <name>  made when it is not there (default bench)
  --key <key>         verify this key instead
  --socket <path>     connect to a Unix socket; the URL then only names the host`

/** Drives a running server: one line of progress, then the latencies as a histogram. @returns the exit code. */
export async function load(argv: string[]): Promise<number> {
  let options: Awaited<ReturnType<typeof readOptions>>
  try {
    options = await readOptions(argv)
  } catch (cause) {
    console.error(`${cause instanceof Error ? cause.message : cause}\n\n${USAGE}`)
    return 2
  }
  if (options === null) {
    console.log(USAGE)
    return 0
  }
  const { rate, seconds } = options
  const showProgress = ({
    seconds: at,
    answered,
    failed,
  }: {
    seconds: number
    answered: number
    failed: number
  }) => {
    const done = Math.min(1, at / seconds)
    const bar = '█'.repeat(Math.round(30 * done)).padEnd(30, '░')
    const line = `${bar} ${at.toFixed(0)} of ${seconds} s, ${answered} answered, ${failed} failed`
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${line}`)
    else process.stderr.write(`${line}\n`)
  }
  let result: Awaited<ReturnType<typeof sendPaced>>
  let status = 0
  using _ = onInterrupt((each) => {
    status = each
  })
  try {
    result = await sendPaced({ ...options, isOver: () => status !== 0 }, showProgress)
  } catch (cause) {
    console.error(
      `cannot connect to ${options.socketPath ?? options.url}: ${cause instanceof Error ? cause.message : cause}`,
    )
    return 1
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
  const { latencies, answered, failed } = result
  console.log(
    `${answered} of ${status === 0 ? Math.floor(rate * seconds) : answered + failed} requests answered in ${result.seconds.toFixed(1)} s, ${failed} failed`,
  )
  for (const line of latencies.draw()) console.log(line)
  const at = (share: number) => `${latencies.percentile(share).toFixed(2)} ms`
  console.log(
    `p50 ${at(0.5)}, p99 ${at(0.99)}, p99.9 ${at(0.999)}, longest ${at(1)}; counted from when each request was due`,
  )
  return status !== 0 ? status : failed === 0 ? 0 : 1
}

async function readOptions(argv: string[]) {
  const { values } = parseArgs({
    args: argv,
    options: {
      url: { type: 'string' },
      'root-key': { type: 'string' },
      'root-key-file': { type: 'string' },
      rate: { type: 'string', default: '1000' },
      duration: { type: 'string', default: '10' },
      connections: { type: 'string', default: '32' },
      identifiers: { type: 'string', default: '1000' },
      limit: { type: 'string', default: String(Number.MAX_SAFE_INTEGER) },
      namespace: { type: 'string', default: 'bench' },
      key: { type: 'string' },
      socket: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return null
  const { url, key, namespace } = values
  if (url === undefined || !URL.canParse(url) || new URL(url).protocol !== 'http:')
    throw new Error(`--url wants an http:// URL, got ${url ?? 'none'}`)
  const path = values['root-key-file']
  const rootKey =
    path !== undefined
      ? await readRootKey(path)
      : (values['root-key'] ?? readClientConfig().rootKey ?? undefined)
  if (rootKey === undefined && key === undefined)
    throw new Error('TOLLGATE_ROOT_KEY, --root-key-file or --key is needed')
  const limit = integer('--limit', values.limit, Number.MAX_SAFE_INTEGER)
  const identifiers = integer('--identifiers', values.identifiers, 1_000_000)
  // A refusal is a right answer too.
  const calls =
    key === undefined
      ? Array.from({ length: identifiers }, (_, i) => ({
          path: LIMIT_PATH,
          body: JSON.stringify({ namespace, identifier: `user_${i}`, limit, duration: DURATION_MS }),
          expected: '"remaining":',
        }))
      : [{ path: VERIFY_PATH, body: JSON.stringify({ key }), expected: '"valid":' }]
  const headers: Record<string, string> = { 'Content-Type': 'application/json' }
  if (rootKey !== undefined) headers.Authorization = `Bearer ${rootKey}`
  return {
    url,
    socketPath: values.socket ?? null,
    headers,
    calls,
    connections: integer('--connections', values.connections, 10_000),
    seconds: integer('--duration', values.duration, 86_400),
    rate: integer('--rate', values.rate, 1_000_000),
  }
}

/** @throws Error that names the option, what it got and what it wants. */
function integer(name: string, text: string, max: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (!(value >= 1 && value <= max))
    throw new Error(`${name} wants a whole number from 1 to ${max}, got ${text}`)
  return value
}
