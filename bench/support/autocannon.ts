import autocannon from 'autocannon'
import type { Load, LoadResult } from './load.ts'

// Run by load.ts: one load given as JSON on standard input, its result printed as JSON.
const { url, path, headers, bodies, connections, seconds } = JSON.parse(await Bun.stdin.text()) as Load // from load.ts

const result = await autocannon({
  url,
  connections,
  duration: seconds,
  requests: bodies.map((body) => ({ method: 'POST', path, headers, body })),
})
const { latency, requests, non2xx, errors, timeouts } = result
console.log(
  `RESULT ${JSON.stringify({
    answered: requests.total,
    failed: non2xx + errors + timeouts,
    requestsPerSecond: requests.average,
    p50: latency.p50,
    p99: latency.p99,
    p999: latency.p99_9,
  } satisfies LoadResult)}`,
)
