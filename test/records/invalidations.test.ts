import { expect, setDefaultTimeout, test } from 'bun:test'
import { type AnySql, connect, type Transaction } from '../../src/db/connect.ts'
import { QueryGivenUp } from '../../src/db/guarded-pool.ts'
import { Database } from '../../src/records/database.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { openTestSql, TEST_DATABASE_URL } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** The ids that a cache would drop, in order. */
function droppedBy(invalidations: Invalidations): string[] {
  const drops: string[] = []
  invalidations.onChange((touched) => drops.push(...(touched ?? ['everything'])))
  return drops
}

const noSql = null as unknown as AnySql // no statement is made in this case

/** Found by the simulation: after the first failure the end of the write was no longer awaited. */
test('the cache drops a given-up write once it has ended, even if another thread did not confirm', async () => {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 20 })
  const drops = droppedBy(invalidations)
  const { port1, port2 } = new MessageChannel()
  invalidations.addPeer(port1) // nothing listens at the other end
  const running = Promise.withResolvers<void>()
  const transaction = async (work: (tx: Transaction) => unknown) => {
    await work(noSql)
    throw new QueryGivenUp('no answer', running.promise)
  }
  const writer = new Database({ sql: noSql, transaction }, invalidations, { notifies: false })
  const failure = await writer
    .write(async (_, invalidate) => invalidate('key_1'))
    .catch((cause: unknown) => cause)
  expect(failure).toBeInstanceOf(Error)
  expect(drops).toEqual(['key_1'])
  running.resolve()
  while (drops.length < 2) await Bun.sleep(5)
  await Bun.sleep(50) // this one is not confirmed either, and nothing waits for it
  expect(drops).toEqual(['key_1', 'key_1'])
  invalidations.stop()
  port2.close()
})

/**
 * Found by the simulation: a commit in flight when its connection breaks may still be carried out. The write failed for its
 * caller, but what was read in between stayed in the cache: a revoked key would have stayed valid.
 */
test.skipIf(TEST_DATABASE_URL === null)(
  'a commit that arrives after its connection broke is heard and dropped; an answered one is dropped once',
  async () => {
    await using database = await openTestSql()
    const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 1_000 })
    const drops = droppedBy(invalidations)
    await using listening = {
      sql: connect(database.address, { connectionsMax: 1 }),
      [Symbol.asyncDispose]: () => listening.sql.end({ timeout: 0 }),
    }
    await invalidations.listen(listening.sql)
    while (!drops.includes('everything')) await Bun.sleep(5)
    drops.length = 0

    const arrives = Promise.withResolvers<void>()
    let isBroken = true
    const transaction = async <T>(work: (tx: Transaction) => T | Promise<T>): Promise<T> => {
      const asked = Promise.withResolvers<T>()
      const committed = database.sql.begin(async (tx) => {
        asked.resolve(await work(tx))
        if (isBroken) await arrives.promise
      })
      const value = await asked.promise
      if (isBroken) throw Object.assign(new Error('the connection broke'), { code: 'CONNECTION_CLOSED' })
      await committed
      return value
    }
    const writer = new Database({ sql: database.sql, transaction }, invalidations, { notifies: true })
    const write = (name: string) => writer.write(async (_, invalidate) => invalidate(name))

    expect(await write('key_1').catch((cause: unknown) => cause)).toBeInstanceOf(Error)
    expect(drops).toEqual(['key_1'])
    arrives.resolve()
    while (drops.length < 2) await Bun.sleep(5)
    expect(drops).toEqual(['key_1', 'key_1'])

    isBroken = false
    await write('key_2')
    await Bun.sleep(1_500) // longer than a write's answer may take before its own notice counts
    expect(drops).toEqual(['key_1', 'key_1', 'key_2'])
  },
)

/**
 * Bug: ids were split by number, for hashes of 44 characters. An imported hash may have 256, and each may take up to 6
 * bytes.
 */
test.skipIf(TEST_DATABASE_URL === null)(
  'a write tells other processes all touched ids, whatever their number and characters',
  async () => {
    await using database = await openTestSql()
    const [writing, hearing] = ['writer', 'hearer'].map(
      (processId) => new Invalidations({ processId, confirmTimeoutMs: 1_000 }),
    ) as [Invalidations, Invalidations] // one for each name
    const drops = droppedBy(hearing)
    await using listening = {
      sql: connect(database.address, { connectionsMax: 1 }),
      [Symbol.asyncDispose]: () => listening.sql.end({ timeout: 0 }),
    }
    await hearing.listen(listening.sql)
    while (!drops.includes('everything')) await Bun.sleep(5)
    const alphabets = ['a', 'é', '😀', '"', '\n', '\u0001']
    for (const character of alphabets)
      for (const [count, length] of [
        [1, 1],
        [1, 256],
        [100, 44],
        [100, 128],
        [100, 256],
        [1001, 16],
      ] as const) {
        drops.length = 0
        const names = Array.from({ length: count }, (_, i) => `${i}${character.repeat(length)}`.slice(0, 256))
        await database.sql.begin((tx) => writing.notify(tx, names, 1))
        while (drops.length < names.length) await Bun.sleep(5)
        expect(drops).toEqual(names)
      }
  },
)

/** A newer release says what changed in a way that this one does not read. Old records must not stay in the caches. */
test('a notice of an unknown format empties the caches once for all that come together, and breaks nothing', async () => {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 20 })
  const drops = droppedBy(invalidations)
  for (const payload of ['[2,"other",7,["key_1"]]', '{"format":3}', 'not JSON', 'null', '["other",1,{}]'])
    invalidations.hear(payload)
  invalidations.hear('["other",8,"key_2"]')
  expect(drops).toEqual(['key_2'])
  while (drops.length < 2) await Bun.sleep(5)
  await Bun.sleep(300)
  expect(drops).toEqual(['key_2', 'everything'])
  invalidations.hear('[2]')
  while (drops.length < 3) await Bun.sleep(5)
  expect(drops.at(-1)).toBe('everything')
})
