import { expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { openTestSql } from '../support/database.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Each at another moment. */
const ROUNDS = IS_NIGHTLY ? 5 : 2

/**
 * What a kill −9 may cost is what was not flushed; what it must never do is leave half a batch: here each batch holds as
 * many verifications as rate limit decisions, so the two sums tell.
 */
test('a process killed at any moment loses nothing it has flushed, and leaves no part of a batch', async () => {
  await using database = await openTestSql()
  const { sql, address } = database
  for (let round = 0; round < ROUNDS; round++) {
    const name = `killed_${round}`
    const child = Bun.spawn(
      [process.execPath, join(import.meta.dir, 'recorder.child.ts'), JSON.stringify(address), name],
      {
        stdout: 'pipe',
        stderr: 'inherit',
      },
    )
    let flushed = 0
    const reading = (async () => {
      for await (const bytes of child.stdout) {
        const lines = new TextDecoder().decode(bytes).trimEnd().split('\n')
        flushed = Number(lines.at(-1))
        if (flushed >= 3000 + round * 700) child.kill(9)
      }
    })()
    await child.exited
    await reading
    await databaseIsDoneWith(sql, name)
    const [row] = await sql<{ verifications: number; decisions: number; named: number }[]>`
      select (select sum(valid)::bigint from usage_verifications where starts_with(key_id, ${`${name}_`})) as verifications,
             (select sum(passed)::bigint from usage_ratelimits where namespace_id = ${name}) as decisions,
             (select sum(passed)::bigint from usage_ratelimit_identifiers where namespace_id = ${name}) as named`
    const { verifications = 0, decisions = 0, named = 0 } = row ?? {}
    expect(verifications).toBeGreaterThanOrEqual(flushed)
    // At most the batch whose answer the process did not live to see, and what it flushed before it died.
    expect(verifications % 500).toBe(0)
    expect(decisions).toBe(verifications)
    expect(named).toBe(verifications)
  }
}, 60_000)

/** The statement in flight may go on after its sender died: wait until the count stands still. */
async function databaseIsDoneWith(
  sql: Awaited<ReturnType<typeof openTestSql>>['sql'],
  name: string,
): Promise<void> {
  const count = async () => {
    const [row] = await sql<{ batch: number }[]>`
      select coalesce(max(last_batch), 0) as batch from usage_writers where starts_with(id, ${`child ${name} `})`
    return row?.batch ?? 0
  }
  for (let last = await count(), same = 0; same < 3; ) {
    await Bun.sleep(50)
    const now = await count()
    same = now === last ? same + 1 : 0
    last = now
  }
}
