import { readConfig } from '../../src/config.ts'
import { startServer } from '../../src/server.ts'

/**
 * The whole server, with a switch for the recording of verifications: asked at BENCH_SWITCH, a Unix socket, for a
 * {@link Span} of so many milliseconds with or without recording, it answers what was done in it. Otherwise it records
 * nothing. A span with recording ends when what was recorded is flushed, and a flush begins at no other time.
 */
export type Span = { isRecorded: boolean; ms: number }
/** `recorded`: verifications counted. `ms`: how long it took in the end. `cpu`: of the whole process, microseconds. */
export type SpanResult = { ms: number; answered: number; recorded: number; cpu: number }

if (import.meta.main) {
  const server = await startServer({ ...readConfig(), flushEveryMs: 3_600_000 })
  const { usage, measures } = server.deps
  const record = usage.recordVerification.bind(usage)
  let isRecorded = false
  let recorded = 0
  usage.recordVerification = (event) => {
    if (!isRecorded) return
    recorded++
    record(event)
  }
  const control = Bun.serve({
    unix: process.env.BENCH_SWITCH ?? '',
    fetch: async (request) => {
      const span = (await request.json()) as Span // from usage.bench.ts
      const before = { ms: performance.now(), answered: measures.answered, recorded, cpu: process.cpuUsage() }
      isRecorded = span.isRecorded
      await Bun.sleep(span.ms)
      if (isRecorded) await usage.flush()
      isRecorded = false
      const { user, system } = process.cpuUsage(before.cpu)
      const result: SpanResult = {
        ms: performance.now() - before.ms,
        answered: measures.answered - before.answered,
        recorded: recorded - before.recorded,
        cpu: user + system,
      }
      return Response.json(result)
    },
  })
  process.on('SIGTERM', async () => {
    await control.stop(true)
    await server.stop()
    process.exit(0)
  })
  console.log(`Tollgate listens on ${server.url}`)
}
