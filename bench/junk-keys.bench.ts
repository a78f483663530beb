import { sendPacedLoad } from './support/paced.ts'
import { machine, median, printTable } from './support/table.ts'
import { call, startTollgate, VERIFY_PATH } from './support/tollgate.ts'

/**
 * Claim: keys that do not exist, presented over and over or always new, slow the verification of known keys by no more
 * than 20 % against as many verifications of known keys. Known keys are verified at a steady rate beside each kind of other
 * traffic in turn; the ratio is of medians over the rounds. Every answer is checked: a known key is VALID, junk NOT_FOUND.
 */
export async function run(options: { tiny?: boolean } = {}): Promise<void> {
  const isTiny = options.tiny ?? false
  const [rounds, seconds, rate, known] = isTiny ? [1, 1, 200, 50] : [5, 4, 20_000, 500]
  console.log(`junk keys: ${machine()}, ${rate} others a second`)
  await using target = await startTollgate('tollgate')
  const { apiId } = await call(target.url, '/v1/apis.createApi', { name: 'bench' })
  const { key = '' } = await call(target.url, '/v1/keys.createKey', { apiId })
  const bodyOf = (text: string) => JSON.stringify({ key: text })
  const junk = () => bodyOf(`junk_${crypto.randomUUID()}`)
  const repeated = Array.from({ length: 1000 }, junk)
  const kinds = [
    { name: 'known keys', bodies: () => [bodyOf(key)], expected: '"code":"VALID"' },
    { name: 'junk, the same 1 000', bodies: () => repeated, expected: '"code":"NOT_FOUND"' },
    {
      name: 'junk, always new',
      bodies: () => Array.from({ length: rate * seconds }, junk),
      expected: '"code":"NOT_FOUND"',
    },
  ]
  const figures: { p50: number[]; p99: number[]; cpu: number[] }[] = kinds.map(() => ({
    p50: [],
    p99: [],
    cpu: [],
  }))
  const load = {
    url: target.url,
    socketPath: null,
    headers: { 'Content-Type': 'application/json' },
    seconds,
  }
  const callsOf = (bodies: string[], expected: string) =>
    bodies.map((body) => ({ path: VERIFY_PATH, body, expected }))
  for (let round = 0; round < rounds; round++)
    for (const [index, { bodies, expected }] of kinds.entries()) {
      const cpuBefore = target.cpuMicroseconds()
      const [mine, others] = await Promise.all([
        sendPacedLoad({
          ...load,
          calls: callsOf([bodyOf(key)], '"code":"VALID"'),
          connections: 8,
          rate: known,
        }),
        sendPacedLoad({ ...load, calls: callsOf(bodies(), expected), connections: 64, rate }),
      ])
      if (mine.answered === 0) throw new Error('no known key was verified')
      if (mine.failed > 0 && isTiny)
        throw new Error(`${mine.failed} known keys were answered wrongly or not at all`)
      const figure = figures[index]
      figure?.p50.push(mine.p50)
      figure?.p99.push(mine.p99)
      figure?.cpu.push((target.cpuMicroseconds() - cpuBefore) / (mine.answered + others.answered))
    }
  const base = median(figures[0]?.p50 ?? [])
  printTable(
    ['known keys beside', 'p50 ms', 'p99 ms', 'p50, ratio', 'CPU µs a request'],
    kinds.map(({ name }, index) => {
      const { p50 = [], p99 = [], cpu = [] } = figures[index] ?? {}
      return [name, median(p50), median(p99), median(p50) / base, median(cpu)]
    }),
  )
}
