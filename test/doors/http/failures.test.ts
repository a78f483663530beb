import { afterEach, beforeEach, expect, type Mock, spyOn, test } from 'bun:test'
import { Failures } from '../../../src/doors/http/failures.ts'
import { Episode } from '../../../src/episodes.ts'
import { Unavailable } from '../../../src/errors.ts'
import { configureLog } from '../../../src/log.ts'

let written: Mock<typeof process.stderr.write>[]
beforeEach(() => {
  configureLog({ level: 'info', isPretty: false })
  written = [process.stderr, process.stdout].map((stream) => spyOn(stream, 'write').mockReturnValue(true))
})
afterEach(() => {
  for (const each of written) each.mockRestore()
})

type Line = Record<string, unknown> & { at: string }
const linesSoFar = () =>
  written
    .flatMap((each) => each.mock.calls.map(([text]): Line => JSON.parse(String(text))))
    .sort((a, b) => a.at.localeCompare(b.at))

/** Two threads of one process in simulated time. */
function chosenThreads() {
  let now = 0
  let due: { atMs: number; run(): void }[] = []
  const timers = {
    after: (delayMs: number, run: () => void) => {
      due.push({ atMs: now + delayMs, run })
      return () => {}
    },
  }
  const memory = new SharedArrayBuffer(8192)
  const options = { timers, now: () => now, memory }
  return {
    memory,
    threads: [new Failures(options), new Failures(options)] as const,
    now: () => now,
    /** In steps of a second, because timers start timers. */
    pass(seconds: number) {
      for (let second = 0; second < seconds; second++) {
        now += 1000
        const ready = due.filter(({ atMs }) => atMs <= now)
        due = due.filter(({ atMs }) => atMs > now)
        for (const each of ready) each.run()
      }
    },
  }
}

const postgresError = (code: string) => Object.assign(new Error(`refused with ${code}`), { code })

test('calls that fail for one reason are counted over all threads, with a line at the beginning and at the end', () => {
  for (const cause of [
    postgresError('25006'), // read only
    postgresError('53100'), // disk full
    new Unavailable('limiter', 'the limiter shard is dead'),
    new Error('wrapped', { cause: postgresError('CONNECTION_CLOSED') }),
  ]) {
    for (const each of written) each.mockClear()
    const { threads, pass } = chosenThreads()
    threads[0].report(cause, { requestId: 'req_first' })
    for (let call = 0; call < 1000; call++) threads[call % 2]?.report(cause, { requestId: `req_${call}` })
    pass(1)
    for (let second = 0; second < 30; second++) {
      threads[1].report(cause, { requestId: 'req_later' })
      pass(1)
    }
    pass(30)
    const part = cause instanceof Unavailable ? 'limiter' : 'database'
    expect(linesSoFar()).toEqual([
      {
        at: expect.any(String),
        level: 'error',
        event: 'requests_failing',
        message: expect.any(String),
        part,
        requestId: 'req_first',
        because: expect.stringContaining(cause.message),
        ...(cause instanceof Unavailable ? {} : { code: expect.any(String) }),
        failed: 1001,
      },
      {
        at: expect.any(String),
        level: 'info',
        event: 'requests_recovered',
        message: expect.any(String),
        part,
        failed: 1031,
        lastedMs: expect.any(Number),
      },
    ])
    // The next outage is logged again.
    threads[0].report(cause, {})
    pass(1)
    expect(linesSoFar()).toHaveLength(3)
  }
})

test('each thing that the database has run out of is logged, even right after failures for another reason', () => {
  const { threads, pass } = chosenThreads()
  const codes = ['57P01', '53300', '53200', '53100']
  for (const code of codes) {
    for (const thread of threads) thread.report(postgresError(code), {})
    pass(1)
  }
  expect(linesSoFar().map(({ code }) => code)).toEqual(codes)
})

test('a full disk or memory is logged even while the database is known to be away or read-only', () => {
  for (const trouble of ['database', 'database writes'] as const)
    for (const code of ['53100', '53200']) {
      for (const each of written) each.mockClear()
      const { threads, pass, memory, now } = chosenThreads()
      new Episode(trouble, memory).begin(now())
      threads[0].report(postgresError(code), {})
      pass(1)
      expect(linesSoFar()).toMatchObject([{ event: 'requests_failing', code, failed: 1 }])
    }
})

test('calls that got no connection count as part of the outage that follows, without a line', () => {
  const { threads, pass, memory, now } = chosenThreads()
  const outage = new Episode('database', memory)
  threads[0].report(postgresError('53300'), {})
  outage.begin(now())
  threads[1].report(postgresError('53300'), {})
  pass(1)
  expect(linesSoFar()).toEqual([])
  expect(outage.end(now())).toEqual({ counted: 2, lastedMs: 1000 })
})

test('calls that failed before the outage was known count as part of it, without a line', () => {
  const { threads, pass, memory, now } = chosenThreads()
  const outage = new Episode('database', memory)
  for (let call = 0; call < 10; call++) threads[0].report(postgresError('ECONNREFUSED'), {})
  expect(outage.begin(now())).toBe(true)
  for (let call = 0; call < 5; call++) threads[1].report(postgresError('57P01'), {})
  pass(1)
  expect(linesSoFar()).toEqual([])
  expect(outage.end(now())).toEqual({ counted: 15, lastedMs: 1000 })
})

test('a failure with a reason of its own has a line of its own, with its request id and cause', () => {
  const { threads } = chosenThreads()
  for (const requestId of ['req_1', 'req_2']) threads[0].report(new Error('never thought of'), { requestId })
  expect(linesSoFar()).toMatchObject(
    ['req_1', 'req_2'].map((requestId) => ({
      event: 'request_failed',
      requestId,
      cause: { message: 'never thought of' },
    })),
  )
})

test('an episode ends when its last holder has ended it, and does not wait for a dead one', () => {
  const memory = new SharedArrayBuffer(8192)
  const [first, second, third] = Array.from({ length: 3 }, () => new Episode('usage flush', memory)) as [
    Episode,
    Episode,
    Episode,
  ] // three
  expect([first.begin(0), second.begin(100), first.begin(200)]).toEqual([true, false, false])
  expect(first.end(300)).toBe(null)
  expect(third.end(300)).toBe(null)
  expect(second.end(400)).toEqual({ counted: 0, lastedMs: 400 })
  expect(second.end(500)).toBe(null)

  expect(first.begin(1000)).toBe(true) // its thread dies without ending it
  expect(second.end(10_000)).toBe(null)
  expect(second.end(16_000)).toEqual({ counted: 0, lastedMs: 15_000 })
  expect(third.begin(20_000)).toBe(true)
  expect(third.end(20_100)).toEqual({ counted: 0, lastedMs: 100 })
})
