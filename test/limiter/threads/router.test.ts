import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { directLinks } from '../../../src/lib/link.ts'
import { systemTimers } from '../../../src/lib/timers.ts'
import type { Answers, Calls, RouterEnds } from '../../../src/limiter/threads/protocol.ts'
import { NUMBERS_PER_CALL } from '../../../src/limiter/threads/protocol.ts'
import { type Charge, LimiterRouter, type PendingDecision } from '../../../src/limiter/threads/router.ts'

const HOUR = 3_600_000
const call = (i: number): Charge => ({ counter: `c${i}`, limit: 10, durationMs: HOUR, cost: 1 })

/** How many calls each message had, for a shard that lets all through and numbers them from 1. */
let messages: number[]
let router: LimiterRouter
/** Closes the shard's end. */
let close: () => void

function receive(message: Calls): Answers {
  const calls = (message.length - 1) / NUMBERS_PER_CALL
  const before = messages.reduce((sum, each) => sum + each, 0)
  messages.push(calls)
  return [message[0] ?? 0, ...Array.from({ length: calls }, (_, i) => [before + i + 1, HOUR]).flat()]
}

const openRouter = (ends: RouterEnds) =>
  new LimiterRouter({ ends, hashSecret: 'secret', clock: () => 0, replyTimeoutMs: 5_000 })
const submitCalls = (count: number): PendingDecision[] =>
  Array.from({ length: count }, (_, i) => router.submit(call(i)))
const answersTo = async (pending: PendingDecision[]) => {
  for (const each of pending) await each.answered
  return pending.map(({ decision }) => decision?.used)
}
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

beforeEach(() => {
  messages = []
})
afterEach(async () => {
  await router.stop()
  close()
})

describe('to a shard on the same thread', () => {
  beforeEach(() => {
    const [toShard, shard] = directLinks(systemTimers)
    const [control, main] = directLinks(systemTimers)
    shard.onMessage = (calls) => shard.post(receive(calls as Calls)) // it is sent nothing else
    router = openRouter({ shards: [toShard], control })
    close = () => main.close()
  })

  test('a message leaves with its 32nd call, the rest at the end of the turn, and each gets its own answer', async () => {
    const pending = submitCalls(70)
    expect(messages).toEqual([32, 32])
    expect(await answersTo(pending)).toEqual(numbers(1, 70))
    expect(messages).toEqual([32, 32, 6])
  })

  test('where servers share nothing, how a counter would be shared changes no message', async () => {
    const [toShard, shard] = directLinks(systemTimers)
    const [control, main] = directLinks(systemTimers)
    const sent: unknown[] = []
    shard.onMessage = (message) => {
      sent.push(message)
      if (Array.isArray(message)) shard.post(receive(message as Calls)) // an array is nothing else
    }
    const alone = openRouter({ shards: [toShard], control })
    for (const sharing of [undefined, null, 'local', 'share', 'refuse', 'open'] as const) {
      const charge = { ...call(1), workspaceId: 'ws_1', ...(sharing === undefined ? {} : { sharing }) }
      await alone.submit(charge).answered
    }
    await alone.stop()
    main.close()
    const batches = sent.filter((message) => Array.isArray(message)).map((message) => message.slice(1))
    expect(batches).toHaveLength(6)
    expect(new Set(batches.map((batch) => batch.join())).size).toBe(1)
  })

  test('fewer wait for the end of the turn', async () => {
    const pending = submitCalls(31)
    expect(messages).toEqual([])
    expect(await answersTo(pending)).toEqual(numbers(1, 31))
    expect(messages).toEqual([31])
  })

  test('the limits of one request stay together, however many', async () => {
    const all = router.submitAll(Array.from({ length: 1000 }, (_, i) => call(i)))
    expect(messages).toEqual([1000])
    expect((await all).map(({ used }) => used)).toEqual(numbers(1, 1000))
  })

  test('the few limits of many requests leave early too', async () => {
    const requests = Array.from({ length: 20 }, () => router.submitAll([call(1), call(2)]))
    expect(messages).toEqual([32])
    await Promise.all(requests)
    expect(messages).toEqual([32, 8])
  })

  test('a call that nobody waits for is charged with the message that others fill', async () => {
    const alone = { ...call(0), limit: 40 }
    for (let used = 1; used <= 10; used++) expect(router.chargeLater(alone)).toMatchObject({ used })
    const pending = submitCalls(22)
    expect(messages).toEqual([32])
    expect(await answersTo(pending)).toEqual(numbers(11, 32))
    // Ten are used by the shard's last answer, and none is on its way any more.
    expect(router.chargeLater(alone)).toMatchObject({ passed: true, used: 11 })
  })
})

test('to a shard with a thread of its own, all calls of a turn are one message', async () => {
  const [lane, control] = [new MessageChannel(), new MessageChannel()]
  lane.port2.onmessage = ({ data }) => lane.port2.postMessage(receive(data))
  router = openRouter({ shards: [lane.port1], control: control.port1 })
  close = () => {
    lane.port2.close()
    control.port2.close()
  }
  const pending = submitCalls(70)
  expect(await answersTo(pending)).toEqual(numbers(1, 70))
  expect(messages).toEqual([70])
})
