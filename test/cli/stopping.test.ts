import { afterAll, beforeAll, expect, test } from 'bun:test'
import { ONE_WISH_MS, STOP_MS, Stopping } from '../../src/cli/stopping.ts'
import { configureLog } from '../../src/log.ts'

beforeAll(() => configureLog({ level: 'error', isPretty: false }))
afterAll(() => configureLog({ level: 'info', isPretty: false })) // other files run in this process

/** A process with simulated time and exit. */
/** @param drainMs Null = it does not drain. */
function chosenProcess(drainMs: number | null = null) {
  let now = 0
  const due: { atMs: number; run(): void }[] = []
  const exits: number[] = []
  const stopping = new Stopping({
    timers: {
      now: () => now,
      after: (delayMs, run) => {
        due.push({ atMs: now + delayMs, run })
        return () => {}
      },
    },
    exit: (code) => void exits.push(code),
  })
  const server = Promise.withResolvers<void>()
  let stops = 0
  return {
    stopping,
    exits,
    stops: () => stops,
    server: {
      drain: (signal: AbortSignal) => {
        if (drainMs === null) return null
        return new Promise<void>((resolve) => {
          due.push({ atMs: now + drainMs, run: resolve })
          signal.addEventListener('abort', () => resolve())
        })
      },
      stop: () => {
        stops++
        return server.promise
      },
    },
    stopped: async (failure?: Error) => {
      if (failure === undefined) server.resolve()
      else server.reject(failure)
      await Promise.resolve()
      await Promise.resolve()
    },
    pass(ms: number) {
      now += ms
      for (const each of due.filter(({ atMs }) => atMs <= now)) each.run()
    },
  }
}

test('signals within two seconds count as one, whatever their number and kind', async () => {
  const process = chosenProcess()
  process.stopping.started(process.server)
  for (const signal of ['SIGINT', 'SIGINT', 'SIGTERM', 'SIGHUP']) process.stopping.receive(signal)
  process.pass(ONE_WISH_MS - 1)
  process.stopping.receive('SIGINT')
  expect(process.exits).toEqual([])
  expect(process.stops()).toBe(1)
  await process.stopped()
  expect(process.exits).toEqual([0])
})

test('a signal two seconds after the first cuts the stop short, with status 1', () => {
  const process = chosenProcess()
  process.stopping.started(process.server)
  process.stopping.receive('SIGTERM')
  process.pass(ONE_WISH_MS)
  process.stopping.receive('SIGTERM')
  expect(process.exits).toEqual([1])
})

test('a stop that hangs is cut off before a supervisor’s ten seconds, and one that fails says so', async () => {
  const hanging = chosenProcess()
  hanging.stopping.started(hanging.server)
  hanging.stopping.receive('SIGTERM')
  hanging.pass(STOP_MS - 1)
  expect(hanging.exits).toEqual([])
  hanging.pass(1)
  expect(hanging.exits).toEqual([1])
  expect(STOP_MS).toBeLessThan(10_000)

  const failing = chosenProcess()
  failing.stopping.started(failing.server)
  failing.stopping.receive('SIGTERM')
  await failing.stopped(new Error('no room on the disk'))
  expect(failing.exits).toEqual([1])
})

test('a signal aborts a start, and stops a server that already serves', async () => {
  const starting = chosenProcess()
  expect(starting.stopping.signal.aborted).toBe(false)
  starting.stopping.receive('SIGINT')
  expect(starting.stopping.signal.aborted).toBe(true)
  starting.stopping.startAborted()
  expect(starting.exits).toEqual([0])

  const serving = chosenProcess()
  serving.stopping.receive('SIGINT')
  expect(serving.stopping.started(serving.server)).toBe(true)
  expect(serving.stops()).toBe(1)
  await serving.stopped()
  expect(serving.exits).toEqual([0])

  const unasked = chosenProcess()
  expect(unasked.stopping.started(unasked.server)).toBe(false)
  expect(unasked.stops()).toBe(0)
})

/** The promises that a drain and a stop wait for. */
const settled = async () => {
  for (let turn = 0; turn < 5; turn++) await Promise.resolve()
}

test('a drain comes before the stop, whose time begins after it', async () => {
  const process = chosenProcess(60_000)
  process.stopping.started(process.server)
  process.stopping.receive('SIGTERM')
  process.pass(59_999)
  await settled()
  expect([process.stops(), process.exits]).toEqual([0, []])
  process.pass(1)
  await settled()
  expect(process.stops()).toBe(1)
  process.pass(STOP_MS - 1)
  expect(process.exits).toEqual([])
  process.pass(1)
  expect(process.exits).toEqual([1])
})

test('a second signal ends the drain and stops cleanly; only a third cuts the stop short', async () => {
  const process = chosenProcess(60_000)
  process.stopping.started(process.server)
  process.stopping.receive('SIGTERM')
  process.stopping.receive('SIGTERM') // a repetition
  await settled()
  expect(process.stops()).toBe(0)
  process.pass(ONE_WISH_MS)
  process.stopping.receive('SIGTERM')
  await settled()
  expect([process.stops(), process.exits]).toEqual([1, []])
  process.stopping.receive('SIGTERM') // a repetition
  expect(process.exits).toEqual([])
  process.pass(ONE_WISH_MS)
  process.stopping.receive('SIGTERM')
  expect(process.exits).toEqual([1])
})

test('a server that a signal reached during its start does not drain', async () => {
  const process = chosenProcess(60_000)
  process.stopping.receive('SIGTERM')
  expect(process.stopping.started(process.server)).toBe(true)
  await settled()
  expect(process.stops()).toBe(1)
})
