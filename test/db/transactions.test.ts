import { heapStats } from 'bun:jsc'
import { expect, setDefaultTimeout, test } from 'bun:test'
import { Transactions } from '../../src/db/transactions.ts'
import { openTestSql } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const liveObjects = async () => {
  for (let i = 0; i < 3; i++) {
    Bun.gc(true)
    await Bun.sleep(10)
  }
  const { Promise: promises = 0, SlimPromiseReaction: reactions = 0 } = heapStats().objectTypeCounts
  return promises + reactions
}

/** Each used to leave three promises, their reactions and its result with its connection, for as long as that lived. */
test('a transaction leaves nothing in memory once it is over, committed or rolled back', async () => {
  await using database = await openTestSql()
  const transactions = new Transactions(database.address, { connectionsMax: 1 })
  const many = async (times: number) => {
    for (let i = 0; i < times; i++) {
      const [row] = await transactions.run((tx) => tx<{ i: number }[]>`select ${i}::integer as i`)
      expect(row?.i).toBe(i)
      const undone = transactions.run(async (tx) => {
        await tx`select 1`
        throw new Error('undo')
      })
      await expect(undone).rejects.toThrow('undo')
    }
  }
  await many(20)
  const before = await liveObjects()
  await many(200)
  expect((await liveObjects()) - before).toBeLessThan(200)
  await transactions.end({ timeout: 0 })
})
