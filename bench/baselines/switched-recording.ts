import { readConfig } from '../../src/config.ts'
import { connect } from '../../src/db/connect.ts'
import { startServer } from '../../src/server/server.ts'
import { recorderInto } from '../support/recorder.ts'

/**
 * The whole server, with a switch for the recording of verifications: asked at BENCH_SWITCH, a Unix socket, for a
 * {@link Span} of so many milliseconds in one {@link Mode}, it answers what was done in it. Otherwise it records nothing.
 * A span with recording ends when what was recorded is flushed, and a flush begins at no other time.
 */
export type Span = { mode: Mode; ms: number }
/**
 * `sent`: all that the server does to record, but Postgres only adds up how much came and writes none of it. So the
 * difference to `recorded` is the work of Postgres, which takes part in what two cores of one machine have in common.
 */
export type Mode = 'none' | 'sent' | 'recorded'
/**
 * `recorded`: verifications counted, in either mode. `cameUnwritten`: how many of mode `sent` have come to Postgres, in all
 * spans so far. `ms`: how long it took in the end. `cpu`: of the whole process, microseconds.
 */
export type SpanResult = {
  ms: number
  answered: number
  recorded: number
  cameUnwritten: number
  cpu: number
}

if (import.meta.main) {
  const config = readConfig()
  const server = await startServer({ ...config, flushEveryMs: 3_600_000 })
  const { usage, measures } = server.deps
  const unwritten = config.databaseUrl === null ? null : await openUnwritten(config.databaseUrl)
  let mode: Mode = 'none'
  let recorded = 0
  const recorders = { none: null, sent: unwritten?.recorder ?? null, recorded: usage }
  const record = {
    recorded: usage.recordVerification.bind(usage),
    sent: unwritten?.recorder.recordVerification.bind(unwritten.recorder),
  }
  usage.recordVerification = (event) => {
    if (mode === 'none') return
    recorded++
    record[mode]?.(event)
  }
  const control = Bun.serve({
    unix: process.env.BENCH_SWITCH ?? '',
    fetch: async (request) => {
      const span = (await request.json()) as Span // from usage.bench.ts
      const before = { ms: performance.now(), answered: measures.answered, recorded, cpu: process.cpuUsage() }
      mode = span.mode
      await Bun.sleep(span.ms)
      await recorders[mode]?.flush()
      mode = 'none'
      const { user, system } = process.cpuUsage(before.cpu)
      const result: SpanResult = {
        ms: performance.now() - before.ms,
        answered: measures.answered - before.answered,
        recorded: recorded - before.recorded,
        cameUnwritten: 0,
        cpu: user + system,
      }
      if (unwritten !== null) result.cameUnwritten = await unwritten.came()
      return Response.json(result)
    },
  })
  process.on('SIGTERM', async () => {
    await control.stop(true)
    await unwritten?.close()
    await server.stop()
    process.exit(0)
  })
  console.log(`Tollgate listens on ${server.url}`)
}

/** A recorder as the server's, whose batches come to a function that writes down how many, and nothing else of them. */
async function openUnwritten(databaseUrl: string) {
  const sql = connect({ kind: 'url', url: databaseUrl }, { connectionsMax: 1 })
  await sql.unsafe(`
    create schema unwritten;
    create table unwritten.came (verifications bigint);
    do $$ begin
      execute format('
        create function unwritten.apply_usage_batch(%s) returns boolean language plpgsql as $f$ begin
          insert into unwritten.came
          select case when cardinality(p_valid) = 1 then cardinality(p_keys) * p_valid[1]
                      else (select sum(valid) from unnest(p_valid) as valid) end;
          return true;
        end $f$', pg_get_function_arguments('public.apply_usage_batch'::regproc));
    end $$`)
  // Of its connection, and of the one for transactions: what a URL says of the search path is one schema.
  await sql.unsafe('set search_path = unwritten, public')
  await sql.begin((tx) => tx.unsafe('set search_path = unwritten, public'))
  const recorder = recorderInto(sql)
  return {
    recorder,
    /** Verifications, in all so far. */
    came: async () => {
      const [row] = await sql<{ came: number }[]>`
        select coalesce(sum(verifications), 0)::bigint as came from unwritten.came`
      return row?.came ?? 0
    },
    close: () => sql.end({ timeout: 1 }),
  }
}
