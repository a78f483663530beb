import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { readConfig } from '../../src/config.ts'
import { connect } from '../../src/db/connect.ts'
import { openSpills } from '../../src/db/spill.ts'
import { startServer } from '../../src/server.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

/** What a long outage left took many seconds to send, and nobody was answered meanwhile. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a start that has no time for what stops have left answers first and sends it then, whatever the number of threads',
  async () => {
    await using database = await openTestDatabase()
    const gone = connect({ kind: 'url', url: 'postgres://127.0.0.1:1/gone' }, { connectionsMax: 1 })
    for (let stop = 0; stop < 4; stop++) {
      const recorder = new UsageRecorder({
        sql: gone,
        writerId: `writer_${stop}`,
        spills: openSpills(database.dataDir),
        flushEveryMs: 60_000,
        clock: Date.now,
      })
      recorder.recordVerification(verification({ atMs: Date.now() }))
      await recorder.stop()
    }
    await gone.end({ timeout: 0 })
    const left = () => readdirSync(join(database.dataDir, 'spill'))
    expect(left()).toHaveLength(4)

    const url = database.databaseUrl ?? ''
    const config = readConfig({
      PORT: '0',
      DATABASE_URL: url,
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_ROOT_KEY: OPERATOR_KEY,
      TOLLGATE_FLUSH_MS: '100',
      TOLLGATE_HTTP_THREADS: '2',
    })
    const server = await startServer(config, { sendUsageMs: 0 })
    try {
      for (let attempt = 0; left().length > 0 && attempt < 200; attempt++) await Bun.sleep(50)
      expect(left()).toEqual([])
      const sql = connect({ kind: 'url', url }, { connectionsMax: 1 })
      const rows =
        await sql`select sum(valid)::bigint as valid from usage_verifications where key_id = 'key_1'`
      expect([...rows]).toEqual([{ valid: 4 }])
      await sql.end({ timeout: 1 })
    } finally {
      await server.stop()
    }
  },
)
