import { afterEach, expect, test } from 'bun:test'
import { toLink, workerLink } from '../../src/lib/link.ts'
import { ManagedThread, type ThreadOptions } from '../../src/lib/managed-thread.ts'
import { systemTimers } from '../../src/lib/timers.ts'
import type { TestRequests } from './managed-thread.child.ts'

type Thread = ManagedThread<TestRequests, string>

const threads: Thread[] = []
afterEach(async () => {
  for (const thread of threads.splice(0)) await thread.stop(1_000).catch(() => {})
})

/** A thread, and the events that its owner received. */
function makeThread(options: Partial<ThreadOptions<TestRequests, string>> = {}) {
  const events: string[] = []
  const happened = async (event: string) => {
    while (!events.some((each) => each.startsWith(event))) await Bun.sleep(1)
  }
  const thread: Thread = new ManagedThread({
    open: () => workerLink(new Worker(new URL('./managed-thread.child.ts', import.meta.url))),
    setUp: (starting) => starting.ask('start', null, { timeoutMs: 5_000 }),
    restartDelaysMs: [0],
    onNotice: (notice) => events.push(`notice ${notice}`),
    onDeath: ({ message }) => events.push(`death ${message}`),
    onRestarted: (attempts) => events.push(`restarted ${attempts}`),
    onRestartFailing: (cause) => events.push(`failing ${cause instanceof Error ? cause.message : cause}`),
    ...options,
  })
  threads.push(thread)
  return { thread, events, happened }
}

/** The error's message. Awaited, because messages of workers do not arrive during `expect().rejects`. */
const failureOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'it did not fail',
    (cause: Error) => cause.message,
  )

const double = (thread: Thread, input: number) => thread.ask('double', input, { timeoutMs: 5_000 })

test('every request gets its own answer, and ports can be handed over', async () => {
  const { thread, happened } = makeThread()
  await thread.start()
  expect(thread.isRunning).toBe(true)
  const inputs = Array.from({ length: 100 }, (_, i) => i)
  expect(await Promise.all(inputs.map((i) => double(thread, i)))).toEqual(inputs.map((i) => 2 * i))
  const { port1, port2 } = new MessageChannel()
  const link = toLink<string, string>(port1)
  const echoed = new Promise<string>((resolve) => {
    link.onMessage = resolve
  })
  thread.send('echo', port2, [port2])
  link.post('hello')
  expect(await echoed).toBe('hello')
  thread.send('notify', 'unasked')
  await happened('notice unasked')
  link.close()
})

test('a request fails after its time limit, which the thread can renew while it works', async () => {
  const { thread } = makeThread()
  await thread.start()
  expect(await failureOf(thread.ask('never', null, { timeoutMs: 20 }))).toContain(
    "no answer to 'never' within 20 ms",
  )
  await thread.ask('work', { times: 5, everyMs: 200 }, { timeoutMs: 800 })
  expect(thread.isRunning).toBe(true)
})

const endings: ['throw' | 'exit' | 'die', string][] = [
  ['throw', 'the thread has ended: '],
  ['exit', 'the thread has ended'],
  ['die', 'it cannot go on'],
]
test.each(endings)(
  'a thread that ends by itself (%s) is restarted, and its requests fail',
  async (how, why) => {
    const { thread, events, happened } = makeThread()
    await thread.start()
    const asked = thread.ask('never', null, { timeoutMs: 5_000 })
    thread.send('end', how)
    expect(await failureOf(asked)).toContain(why)
    expect(events).toEqual([expect.stringContaining(`death ${why}`)])
    if (how === 'throw') expect(events[0]).toContain('a bug in this thread')
    expect(thread.isRunning).toBe(false)
    expect(await failureOf(double(thread, 1))).toContain(why)
    await happened('restarted 1')
    expect(await double(thread, 4)).toBe(8)
  },
)

test('a failed start ends the thread and throws the reason', async () => {
  const failing = makeThread({
    setUp: (starting) => starting.ask('start', 'not today', { timeoutMs: 5_000 }),
  })
  expect(await failureOf(failing.thread.start())).toContain('not today: its cause')
  expect(failing.thread.isRunning).toBe(false)
  const nowhere = './there-is-none.ts'
  const missing = makeThread({
    open: () => workerLink(new Worker(new URL(nowhere, import.meta.url))),
  })
  expect(await failureOf(missing.thread.start())).toContain('there-is-none.ts')
  expect([...failing.events, ...missing.events]).toEqual([])
})

test('a dead thread is restarted until it runs, after the given pauses', async () => {
  let starts = 0
  const pauses: number[] = []
  const { thread, events, happened } = makeThread({
    setUp: (starting) =>
      starting.ask('start', [2, 3, 4].includes(++starts) ? `start ${starts} fails` : null, {
        timeoutMs: 5_000,
      }),
    restartDelaysMs: [1, 2, 3],
    timers: {
      ...systemTimers,
      after: (ms, run) => {
        if (ms < 10) pauses.push(ms)
        return systemTimers.after(ms, run)
      },
    },
  })
  await thread.start()
  thread.send('end', 'exit')
  await happened('restarted')
  expect(events).toEqual(['death the thread has ended', 'failing start 2 fails: its cause', 'restarted 4'])
  expect(pauses).toEqual([1, 2, 3, 3])
  // It has not run for long, so the next pause is not the shortest.
  events.length = 0
  thread.send('end', 'exit')
  await happened('restarted 5')
  expect(pauses).toEqual([1, 2, 3, 3, 3])
})

test('a stop has the answer of the thread, and no thread is left or restarted', async () => {
  const { thread, events } = makeThread()
  await thread.start()
  expect(await Promise.all([thread.stop(1_000), thread.stop(1_000)])).toEqual([
    'stopped in order',
    'stopped in order',
  ])
  expect(thread.isRunning).toBe(false)
  expect(await failureOf(double(thread, 1))).toBe('the thread was ended')
  await Bun.sleep(20)
  expect(events).toEqual([])
})

test('a thread that does not stop in time is ended anyway', async () => {
  const { thread, events } = makeThread()
  await thread.start()
  thread.send('end', 'spin')
  expect(await failureOf(thread.stop(50))).toContain("no answer to 'stop' within 50 ms")
  expect(events).toEqual([])
})

test('a stop ends a start under way, and a pause before a restart', async () => {
  const starting = makeThread({ setUp: (thread) => thread.ask('never', null, { timeoutMs: 5_000 }) })
  const started = starting.thread.start()
  expect(await starting.thread.stop(1_000)).toBeNull()
  expect(await failureOf(started)).toContain('the thread was ended')

  const pausing = makeThread({ restartDelaysMs: [60_000] })
  await pausing.thread.start()
  pausing.thread.send('end', 'exit')
  await pausing.happened('death')
  expect(await pausing.thread.stop(1_000)).toBeNull()
  expect(pausing.events).toHaveLength(1)
})
