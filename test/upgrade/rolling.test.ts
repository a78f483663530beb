import { expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { migrate } from '../../src/db/migrate.ts'
import { TEST_DATABASE_URL } from '../support/database.ts'
import type { Member } from './balancer.ts'
import { nextRelease, openBoth } from './both.ts'
import { Load } from './load.ts'
import { previousRelease } from './previous.ts'

setDefaultTimeout(240_000) // a dozen starts of real servers, under load

/** Two servers need a Postgres. */
const onPostgres = test.skipIf(TEST_DATABASE_URL === null)

/**
 * The walk goes through every way from one pair of servers to another that this release is part of: start, stop and kill -9
 * of either release beside the other one, and of this one beside itself.
 */
onPostgres(
  'servers of this release and of the one before serve one database, in every order of start, stop, kill and return',
  async () => {
    await using both = await openBoth()
    const { balancer, start, sql } = both
    const first = await start.old('a')
    const load = await Load.start(balancer)
    const kill = async (member: Member) => {
      load.willDie(member)
      await balancer.kill(member)
    }
    const steps: [string, () => Promise<unknown>][] = []
    let [o1, o2, n1, n2]: Member[] = [first]
    const one = (member: Member | undefined): Member => {
      if (member === undefined) throw new Error('no such server')
      return member
    }
    steps.push(
      ['a new one joins an old one, and migrates', async () => (n1 = await start.new('b'))],
      ['the old one stops', () => balancer.stop(one(o1))],
      ['a new one joins a new one', async () => (n2 = await start.new('a'))],
      ['a new one stops beside a new one', () => balancer.stop(one(n1))],
      ['a new one joins again', async () => (n1 = await start.new('b'))],
      ['a new one is killed beside a new one', () => kill(one(n2))],
      [
        'the release after this one migrates',
        async () => {
          using next = nextRelease()
          await migrate(both.anotherPool(), { folder: next.folder, version: '0.2.0' })
        },
      ],
      ['the way back: an old one joins a new one', async () => (o1 = await start.old('a'))],
      ['an old one is killed beside a new one', () => kill(one(o1))],
      ['an old one joins a new one again', async () => (o2 = await start.old('a'))],
      ['the new one stops', () => balancer.stop(one(n1))],
      ['a new one joins an old one again', async () => (n2 = await start.new('b'))],
      ['the new one is killed', () => kill(one(n2))],
    )
    for (const [name, step] of steps) {
      await step()
      await balancer.settle()
      expect([name, balancer.broken, load.wrong]).toEqual([name, [], []])
    }
    await load.stop()
    await Promise.all(balancer.inRotation.map((member) => balancer.stop(member)))
    expect([balancer.broken, load.wrong, await load.audit(sql)]).toEqual([[], [], []])
    expect(load.done.deleted).toBeGreaterThan(10)
    expect(load.done.limits).toBeGreaterThan(100)
    // Those that were started after the migration of the next release.
    for (const member of [one(o2), one(n2)])
      expect(member.process.output()).toMatch(/"event":"schema_ahead".*"9001_later.sql","9002_index.sql"/)
    // What stopped took its row along; the killed are forgotten by those who come after them.
    const killed = await sql<{ version: string }[]>`select version from servers`
    expect(killed.length).toBeLessThanOrEqual(2)
  },
)

onPostgres(
  'a server that cannot live with the database says which version it needs, and changes nothing',
  async () => {
    await using both = await openBoth()
    using next = nextRelease({
      '9003_less.sql': '-- oldest server: 0.9\n-- phase: contract\ndrop table made_later;',
    })
    await migrate(both.sql, { folder: next.folder, version: '0.9.0' })
    for (const release of ['old', 'new'] as const) {
      const refused = await both.start[release]('a').catch((cause: unknown) => String(cause))
      expect(refused).toMatch(
        /ended with 1: .*since migration 9003_less\.sql it needs version 0\.9 or newer; start such/s,
      )
    }
    expect(await both.sql`select from servers`).toHaveLength(0)
  },
)

test('the release before differs from this one, and its migrations are among those of today', async () => {
  const [before, now] = [await previousRelease(), join(import.meta.dir, '../..')].map((folder) =>
    readdirSync(join(folder, 'sql')).sort(),
  )
  expect(before?.length).toBeGreaterThan(30)
  expect(before?.filter((name) => !now?.includes(name))).toEqual([])
})
