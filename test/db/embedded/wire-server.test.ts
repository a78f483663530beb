import { expect, setDefaultTimeout, test as testOnce } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import { connect } from '../../../src/db/connect.ts'
import { sessionOf } from '../../../src/db/embedded/pglite-session.ts'
import { serveWire } from '../../../src/db/embedded/wire-server.ts'
import { copyEmbedded, TEST_DATABASE_URL } from '../../support/database.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS) // real threads, processes and databases

/** Runs once, as the embedded database is the same whatever the suite runs on. */
const test = testOnce.skipIf(TEST_DATABASE_URL !== null)

/** All connections wait for a transaction: one without an end would stop the whole server. */
test('a transaction whose client is silent is rolled back, and other connections continue', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-wire-'))
  await copyEmbedded(dataDir)
  const database = await PGlite.create(join(dataDir, 'postgres'))
  const socketPath = join(dataDir, 'test.sock')
  const server = serveWire(await sessionOf(database), {
    socketPath,
    idleInTransactionMs: 50,
    onDeath: () => {},
  })
  const quiet = connect({ kind: 'embedded', socketPath }, { connectionsMax: 1 })
  const other = connect({ kind: 'embedded', socketPath }, { connectionsMax: 1 })

  const forgotten = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  const ending = quiet
    .begin(async (tx) => {
      await tx`create table left_open (id int)`
      begun.resolve()
      await forgotten.promise
      await tx`select 1`
    })
    .catch((error: { code: string }) => error.code)
  await begun.promise
  expect((await other`select to_regclass('left_open') as found`)[0]?.found).toBeNull()
  forgotten.resolve()
  expect(await ending).toBe('CONNECTION_CLOSED')

  await Promise.all([quiet.end({ timeout: 1 }), other.end()])
  server.stop()
  await database.close()
  rmSync(dataDir, { recursive: true })
})
