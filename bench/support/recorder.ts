import { openSpills } from '../../src/data-dir/spill.ts'
import type { Sql } from '../../src/db/connect.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'

/** A recorder that flushes when it is told to, and at no other time. */
export const recorderInto = (sql: Sql, clock: Clock = Date.now): UsageRecorder =>
  new UsageRecorder({
    sql,
    writerId: `bench-${crypto.randomUUID()}`,
    spills: openSpills('/nonexistent'), // nothing is to be spilled here
    flushEveryMs: 3_600_000,
    clock,
  })
