import { expect, setDefaultTimeout, test } from 'bun:test'
import { connect } from '../../src/db/connect.ts'
import { databaseIdOnce } from '../../src/db/settings.ts'
import type { Timers } from '../../src/lib/timers.ts'
import { ChangeListener } from '../../src/records/change-listener.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import {
  ANSWERED_MAX,
  ASKED_MAX,
  OWNER_MAX,
  PERIOD_MS,
  Questions,
  WAIT_MS,
} from '../../src/records/questions.ts'
import { openTestSql, TEST_DATABASE_URL } from '../support/database.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const selfOf = (processId: string) => ({ processId, nodeId: `node of ${processId}`, host: 'host' })
const expecting = (...nodeIds: string[]) => ({ nodeIds, processes: nodeIds.length })
const about = { subject: 'key_1', owner: 'ws_1', expected: expecting('node of there') }

/** One process that asks, and one that answers with what it has dropped so far. */
async function openTwo() {
  await using opening = new AsyncDisposableStack()
  const database = opening.use(await openTestSql())
  const databaseId = await databaseIdOnce(database.sql)
  const address = { ...database.address, databaseId }
  const drops: string[] = []
  const open = async (processId: string, answer: () => string) => {
    const invalidations = new Invalidations({ processId, confirmTimeoutMs: 1_000 })
    invalidations.onChange((touched) => {
      if (processId === 'there') drops.push(...(touched ?? ['everything']))
    })
    const sql = connect(address, { connectionsMax: 2 })
    opening.defer(() => sql.end({ timeout: 1 }))
    const questions = new Questions({ self: selfOf(processId), sql, answer: async () => answer() })
    const listener = new ChangeListener(invalidations, address, {
      alsoListen: (listening) => questions.listen(listening),
    })
    opening.defer(() => listener.stop())
    await listener.start()
    return { questions, invalidations }
  }
  const here = await open('here', () => 'nobody asks it')
  await open('there', () => drops.join())
  const opened = opening.move()
  return { sql: database.sql, here, drops, [Symbol.asyncDispose]: () => opened.disposeAsync() }
}

test.skipIf(TEST_DATABASE_URL === null)(
  'who answers has dropped everything that was committed before the question',
  async () => {
    await using two = await openTwo()
    const { here, sql, drops } = two
    for (let i = 0; i < OWNER_MAX; i++) {
      drops.length = 0
      await here.invalidations.notify(sql, [`key_${i}`], i)
      // A busy machine may be late.
      let answers = await here.questions.ask(about)
      while (answers?.length === 0) answers = await here.questions.ask({ ...about, owner: `again ${i}` })
      expect(answers).toMatchObject([{ ...selfOf('there'), answer: `key_${i}` }])
    }
  },
)

/** Changes and questions come on one connection: whoever is deaf for one hears none of the other. */
test.skipIf(TEST_DATABASE_URL === null)(
  'after its connection was lost, a process answers only once its caches were told of it',
  async () => {
    await using two = await openTwo()
    const { here, sql, drops } = two
    /** The last thing that a connection began to listen to: with changes before it, no question is heard too early. */
    const last = async () => {
      const rows = await sql<{ query: string }[]>`
        select query from pg_stat_activity
         where datname = current_database() and query ilike 'listen %' order by query`
      return rows.map(({ query }) => query).join()
    }
    const bothListen = async () => {
      while ((await last()) !== 'listen "tollgate_answers_here",listen "tollgate_answers_there"')
        await Bun.sleep(10)
    }
    for (let round = 0; round < 3; round++) {
      await bothListen()
      drops.length = 0
      const ended = await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and query ilike 'listen %'`
      expect(ended.length).toBeGreaterThan(0)
      // The asker was cut off too, and hears answers once it listens again.
      let answers = await here.questions.ask({ ...about, owner: 'ws_1' })
      while (answers?.length === 0)
        answers = await here.questions.ask({ ...about, owner: `${Math.random()}` })
      expect(answers).toMatchObject([{ answer: expect.stringMatching(/^everything/) }])
    }
  },
)

/** Time that passes when the test says so, and a database that only remembers what was sent. */
function openAlone() {
  let nowMs = 0
  let waits: { at: number; run: () => void }[] = []
  const timers: Timers = {
    now: () => nowMs,
    soon: (run) => run(),
    every: () => () => {},
    after: (ms, run) => {
      const wait = { at: nowMs + ms, run }
      waits.push(wait)
      return () => {
        waits = waits.filter((each) => each !== wait)
      }
    },
  }
  const sent: { channel: string; fields: unknown[] }[] = []
  const sql = async (_: TemplateStringsArray, channel: string, payload: string) => {
    sent.push({ channel, fields: JSON.parse(payload) })
    return []
  }
  const questions = new Questions({
    self: selfOf('here'),
    sql: sql as never, // it runs one kind of statement
    answer: async (subject) => (subject === 'unsure' ? null : `answer about ${subject}`),
    timers,
  })
  return {
    questions,
    sent,
    pass: (ms: number) => {
      nowMs += ms
      for (const { at, run } of waits) if (at <= nowMs) run()
    },
  }
}

test('silence ends the wait, and what comes later is not taken for the answer to another question', async () => {
  const { questions, sent, pass } = openAlone()
  const asked = questions.ask({ ...about, expected: expecting('node of there', 'node of elsewhere') })
  await Bun.sleep(0)
  expect(sent).toEqual([{ channel: 'tollgate_questions', fields: [1, 'here', 1, 'key_1'] }])
  pass(7)
  const answer = (id: number, from: string) =>
    questions.hearAnswer(JSON.stringify([1, id, from, `node of ${from}`, 'host', 'VALID']))
  answer(1, 'there')
  answer(2, 'elsewhere')
  pass(WAIT_MS)
  expect(await asked).toEqual([{ ...selfOf('there'), answer: 'VALID', afterMs: 7 }])
  answer(1, 'elsewhere')
})

test('the wait ends when all servers and processes have answered, also two of one data directory', async () => {
  const { questions } = openAlone()
  const asked = questions.ask({ ...about, expected: { nodeIds: ['node of there'], processes: 2 } })
  await Bun.sleep(0)
  let isOver = false
  void asked.then(() => {
    isOver = true
  })
  const answer = (from: string) =>
    questions.hearAnswer(JSON.stringify([1, 1, from, 'node of there', 'host', 'VALID']))
  answer('there')
  await Bun.sleep(0)
  expect(isOver).toBe(false)
  answer('its successor')
  expect((await asked)?.map(({ processId }) => processId)).toEqual(['there', 'its successor'])
})

test('notices of another format, own questions, and questions without an answer are ignored', async () => {
  const { questions, sent } = openAlone()
  for (const payload of [
    'nothing',
    '{}',
    '[]',
    '[2,"there",1,"key_1"]',
    '[1,"there","1","key_1"]',
    '[1,"here",1,"key_1"]',
    '[1,"there",1,"unsure"]',
  ]) {
    questions.hearQuestion(payload)
    questions.hearAnswer(payload)
  }
  questions.hearQuestion('[1,"there",7,"key_1"]')
  await Bun.sleep(0)
  expect(sent).toEqual([
    {
      channel: 'tollgate_answers_there',
      fields: [1, 7, 'here', 'node of here', 'host', 'answer about key_1'],
    },
  ])
})

test('neither a workspace nor all of them can send or cause more notices than are allowed in ten seconds', async () => {
  const { questions, sent, pass } = openAlone()
  const ask = (owner: string) => {
    const asked = questions.ask({ ...about, owner })
    return Promise.race([asked.then((answers) => answers === null), Bun.sleep(5).then(() => false)])
  }
  for (let i = 0; i < OWNER_MAX; i++) expect(await ask('greedy')).toBe(false)
  expect(await ask('greedy')).toBe(true)
  for (let i = 0; i < ASKED_MAX - OWNER_MAX; i++) expect(await ask(`workspace ${i}`)).toBe(false)
  expect(await ask('one more')).toBe(true)
  pass(PERIOD_MS)
  expect(await ask('greedy')).toBe(false)

  sent.length = 0
  for (let i = 0; i < ANSWERED_MAX + 10; i++) questions.hearQuestion(`[1,"there",${i},"key_1"]`)
  await Bun.sleep(0)
  expect(sent).toHaveLength(ANSWERED_MAX)
  pass(PERIOD_MS)
  questions.hearQuestion('[1,"there",0,"key_1"]')
  await Bun.sleep(0)
  expect(sent).toHaveLength(ANSWERED_MAX + 1)
})
