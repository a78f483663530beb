import { expect, setDefaultTimeout, test as testOnce } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../../src/db/connect.ts'
import { startEmbedded } from '../../../src/db/embedded/embedded.ts'
import { copyEmbedded, TEST_DATABASE_URL } from '../../support/database.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS) // real threads, processes and databases

/** Runs once, as the embedded database is the same whatever the suite runs on. */
const test = testOnce.skipIf(TEST_DATABASE_URL !== null)

/**
 * Starts the database and writes until it is killed: single rows, and pairs in a transaction. Prints a number after its row
 * is acknowledged; numbers of pairs are negative.
 */
const WRITER = `
  const [folder, root, first] = process.argv.slice(1)
  const { startEmbedded } = await import(root + '/src/db/embedded/embedded.ts')
  const { connect } = await import(root + '/src/db/connect.ts')
  const database = await startEmbedded(folder)
  const sql = connect(database.address, { connectionsMax: 2 })
  await sql\`create table if not exists written (n int, half int)\`
  let next = Number(first)
  const single = async () => {
    for (;;) {
      const n = next++
      await sql\`insert into written values (\${n}, 0)\`
      process.stdout.write(n + '\\n')
    }
  }
  const pair = async () => {
    for (;;) {
      const n = -(next++)
      await sql.begin(async (tx) => {
        await tx\`insert into written values (\${n}, 1)\`
        await tx\`insert into written values (\${n}, 2)\`
      })
      process.stdout.write(n + '\\n')
    }
  }
  process.stdout.write('ready\\n')
  await Promise.all([single(), pair()])
`

/** Rows written before each kill. */
const MOMENTS = IS_NIGHTLY ? [1, 40, 150, 333] : [40, 333]

/** The caller relies on an acknowledged row, whatever happens to the process afterwards. */
test('kill -9 at any moment loses no acknowledged row and leaves no partial transaction', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-durability-'))
  await copyEmbedded(dataDir)
  const acknowledged = new Set<number>()
  const root = join(import.meta.dir, '../../..')
  for (const [round, writesBeforeKill] of MOMENTS.entries()) {
    const writer = Bun.spawn([process.execPath, '-e', WRITER, dataDir, root, String(1 + round * 100_000)], {
      stdout: 'pipe',
      stderr: 'inherit',
    })
    let printed = ''
    for await (const chunk of writer.stdout) {
      printed += Buffer.from(chunk).toString()
      if (printed.split('\n').length > writesBeforeKill + 1) writer.kill('SIGKILL')
    }
    await writer.exited
    for (const line of printed.split('\n').slice(0, -1)) if (line !== 'ready') acknowledged.add(Number(line))
  }
  expect(acknowledged.size).toBeGreaterThan(300)

  const database = await startEmbedded(dataDir)
  const sql = connect(database.address, { connectionsMax: 1 })
  const rows = await sql<
    { n: number; halves: number }[]
  >`select n, count(*) as halves from written group by n`
  await sql.end()
  await database.stop()
  rmSync(dataDir, { recursive: true })
  const found = new Map(rows.map((row) => [row.n, row.halves]))
  expect([...acknowledged].filter((n) => !found.has(n))).toEqual([])
  expect(rows.filter(({ n, halves }) => halves !== (n < 0 ? 2 : 1))).toEqual([])
})
