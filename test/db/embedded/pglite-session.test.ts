import { heapStats } from 'bun:jsc'
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

/** PGlite's usual call keeps every row that it ever returned. */
test('answers of the embedded database are passed on whole, and none is kept in memory', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-session-'))
  await copyEmbedded(dataDir)
  const database = await PGlite.create(join(dataDir, 'postgres'))
  const socketPath = join(dataDir, 'socket')
  const server = serveWire(await sessionOf(database), { socketPath, onDeath: () => {} })
  const sql = connect({ kind: 'embedded', socketPath }, { connectionsMax: 2 })
  const objects = () => {
    Bun.gc(true)
    return heapStats().objectCount
  }
  const ask = async () => {
    // Thousands of rows, and an answer larger than any buffer.
    for (let i = 0; i < 20; i++) {
      const rows = await sql<{ n: number; text: string }[]>`
        select n, ${`row ${i} `} || n as text from generate_series(1, 1000) as n`
      expect(rows[999]).toEqual({ n: 1000, text: `row ${i} 1000` })
      expect(await sql`select 1/${0}::int`.catch((cause: Error) => cause.message)).toBe('division by zero')
    }
    const [long] = await sql<{ text: string }[]>`select repeat('x', 5000000) as text`
    expect(long?.text.length).toBe(5_000_000)
  }
  await ask() // creates what is created once
  const before = objects()
  for (let i = 0; i < 3; i++) await ask()
  expect(objects() - before).toBeLessThan(5_000) // of 60 000 rows
  await sql.end({ timeout: 1 })
  server.stop()
  await database.close()
  rmSync(dataDir, { recursive: true })
})
