import { type Charge, type Decision, LimiterRouter } from '../src/limiter/threads/router.ts'
import { randomNumbers } from '../test/support/random.ts'
import { machine, median, printTable } from './support/table.ts'

/**
 * What it costs to charge the counters of a call together instead of each by itself: CPU of the process, two shard threads, 64
 * callers. In turn within a round; read the ratios. Some calls ask for a counter that has nothing left, so that the others
 * are undone or not touched. Checked: in the end every counter has used what passed, and nothing of what was refused.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const rounds = options.tiny ? 1 : 5
  const calls = options.tiny ? 1_000 : 10_000
  console.log(
    `together: ${machine()}, ${SHARDS} shard threads, ${CALLERS} callers, ${rounds} rounds of ${calls} calls, medians`,
  )
  await using shards = await startShards()
  const ways: Way[] = [
    { name: 'each by itself', counters: 3, isTogether: false, hopeless: 0 },
    { name: 'together', counters: 3, isTogether: true, hopeless: 0 },
    { name: 'together, 11 % refused by one counter', counters: 3, isTogether: true, hopeless: 0.11 },
    { name: 'each by itself', counters: 5, isTogether: false, hopeless: 0 },
    { name: 'together', counters: 5, isTogether: true, hopeless: 0 },
    { name: 'alone', counters: 1, isTogether: false, hopeless: 0 },
    { name: 'alone, as together', counters: 1, isTogether: true, hopeless: 0 },
  ]
  const results = new Map<Way, number[]>(ways.map((way) => [way, []]))
  for (let round = 0; round <= rounds; round++)
    for (let i = 0; i < ways.length; i++) {
      const way = ways[(i + round) % ways.length] as Way // in range
      const cpu = await measure(shards.router, way, { calls, seed: 1_000 * round + i })
      if (round > 0) results.get(way)?.push(cpu) // the first warms up
    }
  let first = 0
  const rows = ways.map((way) => {
    const cpu = median(results.get(way) ?? [])
    if (!way.isTogether) first = cpu
    return [`${way.counters} ${way.name}`, cpu, cpu / first]
  })
  printTable(['counters', 'CPU µs a call', 'ratio'], rows)
}

const SHARDS = 2
const CALLERS = 64
const COUNTERS = 5_000
const HOUR = 3_600_000

type Way = { name: string; counters: number; isTogether: boolean; hopeless: number }

/** @returns CPU of all threads, µs a call. */
async function measure(
  router: LimiterRouter,
  way: Way,
  { calls, seed }: { calls: number; seed: number },
): Promise<number> {
  const random = randomNumbers(seed)
  const prefix = `${crypto.randomUUID()}\n`
  const counters = Array.from({ length: COUNTERS }, (_, i) => `counter ${i}`)
  const chargeOf = (counter: string, limit = 1_000_000): Charge => ({
    prefix,
    counter,
    workspaceId: 'ws',
    limit,
    durationMs: HOUR,
    cost: 1,
  })
  const planned = Array.from({ length: calls }, () => {
    const charges = Array.from({ length: way.counters }, () =>
      chargeOf(counters[Math.floor(random() * COUNTERS)] ?? ''),
    )
    if (random() < way.hopeless) charges[0] = chargeOf('used up', 0)
    return charges
  })
  const ledger = new Map<string, number>()
  const decide = (charges: readonly Charge[]): Promise<Decision[]> =>
    way.isTogether ? router.chargeTogether(charges) : router.submitAll(charges)
  let next = 0
  const caller = async () => {
    while (next < planned.length) {
      const charges = planned[next++] as Charge[] // in range
      const decisions = await decide(charges)
      if (way.isTogether && !decisions.every(({ passed }) => passed)) continue
      for (const { counter } of charges) ledger.set(counter, (ledger.get(counter) ?? 0) + 1)
    }
  }
  const began = process.cpuUsage()
  await Promise.all(Array.from({ length: CALLERS }, caller))
  const { user, system } = process.cpuUsage(began)
  const looks = await router.submitAll(counters.map((counter) => ({ ...chargeOf(counter), cost: 0 })))
  for (const [i, { used }] of looks.entries()) {
    const counter = counters[i] as string // one for each
    if (used !== (ledger.get(counter) ?? 0))
      throw new Error(`${way.name}: ${counter} has ${used} used, and ${ledger.get(counter) ?? 0} passed`)
  }
  return (user + system) / calls
}

async function startShards() {
  const workers: Worker[] = []
  const ends: MessagePort[] = []
  for (let i = 0; i < SHARDS; i++) {
    const { port1, port2 } = new MessageChannel()
    const worker = new Worker(new URL('./together.worker.ts', import.meta.url))
    worker.postMessage({ shards: SHARDS, port: port2 }, [port2])
    workers.push(worker)
    ends.push(port1)
  }
  const control = new MessageChannel()
  const router = new LimiterRouter({
    ends: { shards: ends, control: control.port1 },
    hashSecret: 'secret',
    clock: () => HOUR / 2,
    replyTimeoutMs: 30_000,
  })
  return {
    router,
    async [Symbol.asyncDispose]() {
      await router.stop()
      control.port2.close()
      for (const worker of workers) worker.terminate()
    },
  }
}
