import { heapStats } from 'bun:jsc'
import { expect, setDefaultTimeout, spyOn, test } from 'bun:test'
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

/** Bug: each transaction left three promises, their reactions and its result for the life of its connection. */
test('a finished transaction leaves nothing in memory, committed or rolled back', async () => {
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

/** The driver would end a connection after half an hour or more as soon as it waits for no answer. */
test('an old connection is not ended between two statements of its transaction', async () => {
  await using database = await openTestSql()
  const setTimeoutAsIs = globalThis.setTimeout
  const due: (() => void)[] = []
  const inHalfAnHour = (run: () => void, ms = 0, ...args: []) => {
    if (ms >= 30 * 60_000) due.push(run)
    return setTimeoutAsIs(run, ms, ...args)
  }
  using timers = spyOn(globalThis, 'setTimeout').mockImplementation(inHalfAnHour as typeof setTimeout) // but for its types
  const transactions = new Transactions(database.address, { connectionsMax: 1 })
  const sum = await transactions.run(async (tx) => {
    const [one] = await tx<{ i: number }[]>`select 1 as i`
    for (const run of due) run()
    const [two] = await tx<{ i: number }[]>`select 2 as i`
    return (one?.i ?? 0) + (two?.i ?? 0)
  })
  expect(sum).toBe(3)
  expect(timers).toHaveBeenCalled()
  await transactions.end({ timeout: 1 })
})
