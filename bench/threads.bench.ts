import { sendLoad } from './support/load.ts'
import { machine, median, printTable } from './support/table.ts'
import type { Target } from './support/target.ts'
import {
  call,
  countedByLimits,
  DURATION_MS,
  HEADERS,
  LIMIT_PATH,
  limitsOf,
  ROOT_KEY,
  startTollgate,
  VERIFY_PATH,
} from './support/tollgate.ts'

/**
 * Two HTTP threads on one port against the same shard. Claims: a limit is exact over both, a key deleted through one is
 * refused by both on the next verification, and a request costs within 15 % of the CPU it costs with one thread, in rounds right
 * after each other, each server first in turn.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const rounds = isTiny ? 1 : 9
  const seconds = isTiny ? 1 : 2
  const connections = isTiny ? 8 : 128
  console.log(`threads: ${machine()}, ${connections} connections, ${rounds} rounds of ${seconds} s, medians`)
  await using one = await startTollgate('1 HTTP thread', { TOLLGATE_SHARDS: '1' })
  await using two = await startTollgate('2 HTTP threads', {
    TOLLGATE_SHARDS: '1',
    TOLLGATE_HTTP_THREADS: '2',
  })
  const results = new Map<Target, { requestsPerSecond: number; p50: number; p99: number; cpu: number }[]>()
  for (const target of [one, two]) {
    await exactly(target)
    await revoked(target)
    if (isTiny) await drivenByHand(target)
    results.set(target, [])
  }
  const bodies = LIMITS.map((body) => JSON.stringify(body))
  for (let round = 0; round < rounds; round++) {
    for (const target of round % 2 === 0 ? [one, two] : [two, one]) {
      const countedBefore = await countedByLimits(target.url, LIMITS)
      const cpuBefore = target.cpuMicroseconds()
      const load = { url: target.url, path: LIMIT_PATH, headers: HEADERS, bodies, connections, seconds }
      const result = await sendLoad(load)
      const cpu = (target.cpuMicroseconds() - cpuBefore) / result.answered
      const surplus = (await countedByLimits(target.url, LIMITS)) - countedBefore - result.answered
      if (result.failed > 0 || surplus < 0 || surplus > connections)
        throw new Error(`${target.name}: ${result.failed} failed, ${surplus} counted beyond the answered`)
      results.get(target)?.push({ ...result, cpu })
    }
  }
  type Field = 'requestsPerSecond' | 'p50' | 'p99' | 'cpu'
  const each = (target: Target, field: Field) => (results.get(target) ?? []).map((result) => result[field])
  const of = (target: Target, field: Field) => median(each(target, field))
  const ofOne = each(one, 'cpu')
  const timesOne = (target: Target) =>
    median(each(target, 'cpu').map((cpu, round) => cpu / (ofOne[round] as number))) // as many rounds
  printTable(
    ['', 'requests/s', 'p50 ms', 'p99 ms', 'CPU µs/request', '× one thread'],
    [one, two].map((target) => [
      target.name,
      of(target, 'requestsPerSecond'),
      of(target, 'p50'),
      of(target, 'p99'),
      of(target, 'cpu'),
      timesOne(target),
    ]),
  )
}

const LIMITS = limitsOf(100)

/** 600 calls at once over as many connections: exactly 250 pass. */
async function exactly(target: Target): Promise<void> {
  const body = { namespace: 'bench', identifier: crypto.randomUUID(), limit: 250, duration: DURATION_MS }
  await call(target.url, LIMIT_PATH, { ...body, cost: 0 }) // the namespace is there
  const answers = await Promise.all(Array.from({ length: 600 }, () => call(target.url, LIMIT_PATH, body)))
  const passed = answers.filter(({ success }) => success).length
  if (passed !== 250) throw new Error(`${target.name}: ${passed} calls passed a limit of 250`)
  console.log(`  ${target.name}: of 600 calls at once ${passed} passed a limit of 250`)
}

/** Warm on every thread, deleted through one of them, refused by all. */
async function revoked(target: Target): Promise<void> {
  const { apiId } = await call(target.url, '/v1/apis.createApi', { name: 'bench' })
  const { key, keyId } = await call(target.url, '/v1/keys.createKey', { apiId })
  const codes = async () => {
    const answers = await Promise.all(
      Array.from({ length: 64 }, () => call(target.url, VERIFY_PATH, { key })),
    )
    return [...new Set(answers.map(({ code }) => code))].join()
  }
  const before = await codes()
  await call(target.url, '/v1/keys.deleteKey', { keyId })
  const after = await codes()
  if (before !== 'VALID' || after !== 'NOT_FOUND') throw new Error(`${target.name}: ${before}, then ${after}`)
  console.log(
    `  ${target.name}: a key deleted through one thread is ${after} on the next verification of all`,
  )
}

/** `bun run bench load` against it: tiny runs only, so that the command cannot rot. */
async function drivenByHand(target: Target): Promise<void> {
  const script = `${import.meta.dir}/main.ts`
  const options = ['--url', target.url, '--root-key-file', '-', '--rate', '200', '--duration', '1']
  const child = Bun.spawn([process.execPath, script, 'load', ...options], {
    stdin: Buffer.from(ROOT_KEY),
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [output, code] = await Promise.all([new Response(child.stdout).text(), child.exited])
  if (code !== 0 || !output.startsWith('200 of 200 requests answered') || !output.includes('p99.9'))
    throw new Error(`load ended with ${code}: ${output}`)
}
