import { expect, setDefaultTimeout, test } from 'bun:test'
import { databaseIdOnce } from '../../src/db/settings.ts'
import type { Timers } from '../../src/lib/timers.ts'
import { ChangeListener } from '../../src/records/change-listener.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { openTestSql, TEST_DATABASE_URL } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { openWire } from '../support/wire.ts'

setDefaultTimeout(SLOW_MS)

/** Timers whose waits end when the test says so. Each wait has a number, from 1. */
class ChosenTimers implements Timers {
  /** Sum of the waits that have passed, ms. */
  passedMs = 0
  #waits = 0
  #open = new Map<number, { ms: number; run: () => void }>()

  now = () => this.passedMs
  soon = (run: () => void) => void setImmediate(run)
  every(): never {
    throw new Error('nothing here is periodic')
  }
  after(ms: number, run: () => void) {
    const wait = ++this.#waits
    this.#open.set(wait, { ms, run })
    return () => void this.#open.delete(wait)
  }

  /** Resolves when that wait begins; the waits before it have ended. */
  async begun(wait: number): Promise<void> {
    while (!this.#open.has(wait)) await Bun.sleep(5)
    expect([...this.#open.keys()]).toEqual([wait])
  }

  /** Ends the wait once it has begun. */
  async pass(wait: number): Promise<void> {
    await this.begun(wait)
    const { ms, run } = this.#open.get(wait) ?? { ms: 0, run: () => {} }
    this.#open.delete(wait)
    this.passedMs += ms
    run()
  }
}

/** Bug: a key revoked by another server stayed valid here until TCP gave up, or for ever. */
test.skipIf(TEST_DATABASE_URL === null)(
  'a change lost on a dead connection applies within 8 s, and a live connection is left alone',
  async () => {
    await using database = await openTestSql()
    const databaseId = await databaseIdOnce(database.sql)
    await using wire = await openWire(database.address)
    const timers = new ChosenTimers()
    const drops: string[] = []
    const here = new Invalidations({ processId: 'here', confirmTimeoutMs: 1_000 })
    here.onChange((touched) => drops.push(...(touched ?? ['everything'])))
    const there = new Invalidations({ processId: 'there', confirmTimeoutMs: 1_000 })
    const changed = (name: string) => there.notify(database.sql, [name], 1)
    const dropped = async (name: string) => {
      while (!drops.includes(name)) await Bun.sleep(5)
    }
    await using listening = {
      listener: new ChangeListener(here, { ...wire.address, databaseId }, { timers }),
      [Symbol.asyncDispose]: () => listening.listener.stop(),
    }
    await listening.listener.start()
    await dropped('everything')

    // A heartbeat: the pause before it, until it is sent, until it is heard.
    await timers.pass(1)
    await timers.begun(4)
    await changed('key_1')
    await dropped('key_1')
    expect(drops).toEqual(['everything', 'key_1'])

    wire.forget()
    drops.length = 0
    timers.passedMs = 0
    await changed('key_2')
    await timers.pass(4)
    await timers.pass(5) // not sent, as its own connection is dead too and is replaced
    await timers.pass(6)
    await timers.pass(8) // sent, and not heard
    await dropped('everything')
    expect(timers.passedMs).toBe(8_000)
    expect(drops).toEqual(['everything'])

    await timers.pass(10)
    await timers.begun(13) // heard
    await changed('key_3')
    await dropped('key_3')
    expect(drops).toEqual(['everything', 'key_3'])
  },
)

/** Dropping the whole cache when the database is slow would make it slower. */
test.skipIf(TEST_DATABASE_URL === null)(
  'nothing is dropped while the database is away or another one answers',
  async () => {
    await using database = await openTestSql()
    const databaseId = await databaseIdOnce(database.sql)
    await using wire = await openWire(database.address)
    const timers = new ChosenTimers()
    const drops: unknown[] = []
    const invalidations = new Invalidations({ processId: 'here', confirmTimeoutMs: 1_000 })
    invalidations.onChange((touched) => drops.push(touched))
    await using listening = {
      listener: new ChangeListener(invalidations, { ...wire.address, databaseId }, { timers }),
      [Symbol.asyncDispose]: () => listening.listener.stop(),
    }
    await listening.listener.start()
    while (drops.length === 0) await Bun.sleep(5)
    wire.freeze()
    for (const wait of [1, 2, 3, 4]) await timers.pass(wait)
    await timers.begun(5)
    wire.open()
    const rename = (id: string) => database.sql`update settings set value = ${id} where name = 'database_id'`
    await rename('another')
    await timers.pass(5)
    await timers.begun(7) // it reported at once that it is another database
    expect(drops).toEqual([null])

    await rename(databaseId)
    await timers.pass(7)
    await timers.begun(10) // heard on the connection of the start
    expect(drops).toEqual([null])
  },
)
