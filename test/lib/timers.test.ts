import { expect, test } from 'bun:test'
import { pause, within } from '../../src/lib/timers.ts'

/** One timer, which the test runs. */
function timer() {
  const due: { ms: number; run: (() => void) | null } = { ms: 0, run: null }
  return {
    due,
    after(ms: number, run: () => void) {
      Object.assign(due, { ms, run })
      return () => {
        due.run = null
      }
    },
  }
}

test('a result in time is passed on, and the timer is cancelled', async () => {
  const timers = timer()
  expect(await within(timers, 50, Promise.resolve('done'))).toBe('done')
  expect(timers.due).toEqual({ ms: 50, run: null })
  await expect(within(timers, 50, Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect(timers.due.run).toBeNull()
})

test('without a result in time it fails, and a later failure of the work is ignored', async () => {
  const timers = timer()
  const work = Promise.withResolvers<void>()
  const waited = within(timers, 50, work.promise)
  timers.due.run?.()
  await expect(waited).rejects.toThrow('no answer within 50 ms')
  work.reject(new Error('unhandled, this would fail the test'))
  await Bun.sleep(0)
})

test('when the time is up, the result is what `late` returns or throws', async () => {
  const timers = timer()
  const never = new Promise<boolean>(() => {})
  const waited = within(timers, 50, never, { late: () => 'late' })
  timers.due.run?.()
  expect(await waited).toBe('late')
  const late = () => {
    throw new Error('its own words')
  }
  const failed = within(timers, 50, never, { late })
  timers.due.run?.()
  await expect(failed).rejects.toThrow('its own words')
})

test('an abort ends the wait and cancels the timer, also when it came before', async () => {
  const timers = timer()
  const aborting = new AbortController()
  const { signal } = aborting
  const waited = within(timers, 50, new Promise(() => {}), { signal })
  const paused = pause(timers, 50, signal)
  aborting.abort(new Error('stopped'))
  await expect(waited).rejects.toThrow('stopped')
  await paused
  await expect(within(timers, 50, Promise.resolve(), { signal })).rejects.toThrow('stopped')
  await pause(timers, 50, signal)
  expect(timers.due.run).toBeNull()
})

test('a pause lasts the given time', async () => {
  const timers = timer()
  let isOver = false
  const paused = pause(timers, 50, new AbortController().signal).then(() => {
    isOver = true
  })
  await Bun.sleep(0)
  expect(isOver).toBe(false)
  timers.due.run?.()
  await paused
  expect(timers.due.ms).toBe(50)
})
