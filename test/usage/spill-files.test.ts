import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { readConfig } from '../../src/config.ts'
import { openSpills } from '../../src/data-dir/spill.ts'
import { connect } from '../../src/db/connect.ts'
import { startServer } from '../../src/server/server.ts'
import { UsageRecorder } from '../../src/usage/recorder.ts'
import { openTestDatabase } from '../support/database.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { verification } from './support.ts'

setDefaultTimeout(SLOW_MS)

/**
 * Sending the files of a long outage took many seconds, and nobody was answered meanwhile. That each counts once is in
 * `recorder.test.ts`.
 */
test('a start answers before spill files of earlier stops are sent; the main thread sends them', async () => {
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

  const config = readConfig({
    PORT: '0',
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    TOLLGATE_HTTP_THREADS: '2',
    TOLLGATE_FLUSH_MS: '60000', // so that none is before the stop, which flushes
  })
  const server = await startServer(config)
  try {
    expect((await fetch(`${server.url}/v1/liveness`)).status).toBe(200)
    expect(left()).toHaveLength(4)
  } finally {
    await server.stop()
  }
  expect(left()).toEqual([])
})
