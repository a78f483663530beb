import type { Command } from './arguments.ts'
import { onInterrupt } from './interrupt.ts'
import { tableText } from './text.ts'

export const benchCommand: Command = {
  name: 'bench',
  about: 'measure how many rate limits per second a running server decides',
  options: {
    seconds: { value: '<n>', about: 'duration of the test in seconds; default 5' },
    connections: { value: '<n>', about: 'number of parallel calls; default 32' },
  },
  example: 'bench --seconds 1 --connections 4',
  async run(given) {
    const client = await given.client()
    const seconds = given.whole('seconds', 1) ?? 5
    const connections = given.whole('connections', 1) ?? 32
    const tookMs: number[] = []
    const began = performance.now()
    const endAt = began + seconds * 1000
    // Ctrl-C ends the measurement early; the results so far are printed.
    let status = 0
    using _ = onInterrupt((each) => {
      status = each
    })
    await Promise.all(
      Array.from({ length: connections }, async (_, user) => {
        while (status === 0 && performance.now() < endAt) {
          const start = performance.now()
          await client.post('ratelimits.limit', {
            namespace: 'tollgate.bench',
            identifier: `user_${user}`,
            limit: 1_000_000,
            duration: 60_000,
          })
          tookMs.push(performance.now() - start)
        }
      }),
    )
    const perSecond = Math.round((tookMs.length / (performance.now() - began)) * 1000)
    tookMs.sort((a, b) => a - b)
    const at = (share: number) =>
      Math.round((tookMs[Math.floor(share * (tookMs.length - 1))] ?? 0) * 100) / 100
    const result = { requests: tookMs.length, perSecond, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) }
    given.print(
      `${tableText(['requests', 'per second', 'p50 ms', 'p99 ms', 'max ms'], [Object.values(result)])}
This client uses more CPU than the server: the server alone could decide several times as many.`,
      result,
    )
    return status
  },
}
