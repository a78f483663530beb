import { expect, test } from 'bun:test'
import type { Answer, Entry, Exchange } from '../../src/fleet/engine.ts'
import { AdditionsProcess, type EnginePlants, type Message, TotalsProcess } from './engine-model.ts'

/** The model is what others are compared with, so its own promises are spelled out here, message by message. */

const HOUR = 3_600_000
const END = 10 * HOUR

const entry = (wanted: Partial<Entry>): Entry => ({
  h0: 1,
  h1: 2,
  h2: 3,
  h3: 4,
  endMs: END,
  limit: 100,
  given: 0,
  hasForgotten: false,
  returned: 0,
  owed: 0,
  asked: 0,
  least: Math.min(1, wanted.asked ?? 0),
  ahead: 0,
  isTentative: false,
  ...wanted,
})

/** A process that has learned, at 9:00. */
class Talk {
  nowMs = 9 * HOUR
  process: TotalsProcess
  constructor(plants: EnginePlants = {}) {
    this.process = new TotalsProcess(1, () => this.nowMs, plants)
    this.say(1)
    this.nowMs += 600
  }
  message(serverId: number, entries: Entry[], options: Partial<Exchange & { epoch: number }> = {}): Message {
    const { epoch = 1, ...rest } = options
    const exchange = { bucket: 0, nowMs: this.nowMs, looseMs: 500, share: 2, entries, ...rest }
    return { serverId, epoch, learnMs: 600, exchange }
  }
  say(serverId: number, wanted?: Partial<Entry>, options: Partial<Exchange & { epoch: number }> = {}) {
    const entries = wanted === undefined ? [] : [entry(wanted)]
    return this.process.take(this.message(serverId, entries, options))
  }
  /** Of a bucket that does not learn. */
  ask(serverId: number, wanted: Partial<Entry>, options: Partial<Exchange & { epoch: number }> = {}): Answer {
    const reply = this.say(serverId, wanted, options)
    if (reply.kind !== 'answered' || reply.isLearning) throw new Error(JSON.stringify(reply))
    return reply.answers[0] as Answer // of the one entry
  }
}

test('the same words count once, and what an answer gave that was lost is free again', () => {
  const talk = new Talk()
  expect(talk.ask(1, { asked: 10 })).toMatchObject({ given: 10, gift: 10, sum: 10 })
  expect(talk.ask(1, { asked: 10 })).toMatchObject({ given: 10, gift: 10, sum: 10 })
  expect(talk.ask(1, { given: 10 })).toMatchObject({ given: 10, gift: 0, sum: 10 })
  expect(talk.ask(1, { given: 10, asked: 5 })).toMatchObject({ given: 15, gift: 5, sum: 15 })
  expect(talk.ask(1, { given: 10 })).toMatchObject({ given: 10, gift: 0, sum: 10 })
})

test('no more is given than the limit, a part where that is of use, and ahead only a share of what stays free', () => {
  const talk = new Talk()
  expect(talk.ask(1, { asked: 60, ahead: 30 })).toMatchObject({ given: 80, sum: 80 }) // 40 are free, half of them
  expect(talk.ask(2, { asked: 30, ahead: 5 })).toMatchObject({ given: 20, sum: 100 })
  expect(talk.ask(3, { asked: 1 })).toMatchObject({ given: 0, sum: 100 })
  expect(talk.ask(3, { asked: 1, limit: 101 })).toMatchObject({ given: 1, sum: 101 })
  const whole = new Talk()
  whole.ask(1, { asked: 95 })
  expect(whole.ask(2, { asked: 16, least: 8 })).toMatchObject({ given: 0, sum: 95 })
})

test('a refusal is not final while others may bring something back', () => {
  const talk = new Talk()
  expect(talk.ask(1, { asked: 10 }).looseUntilMs).toBe(0)
  expect(talk.ask(1, { given: 10, asked: 1, ahead: 4 }).looseUntilMs).toBe(talk.nowMs + 500)
  talk.nowMs += 100
  expect(talk.ask(2, { asked: 200 })).toMatchObject({ given: 85, looseUntilMs: talk.nowMs + 500 }) // a part
  const other = new Talk()
  expect(other.ask(1, { asked: 1, isTentative: true }).looseUntilMs).toBe(other.nowMs + 500)
})

test('what is returned is free again; what is owed counts above the limit', () => {
  const talk = new Talk()
  talk.ask(1, { asked: 40 })
  expect(talk.ask(1, { given: 30, returned: 10 })).toMatchObject({ given: 30, sum: 30 })
  expect(talk.ask(2, { owed: 90 })).toMatchObject({ given: 90, sum: 120 })
  expect(talk.ask(3, { asked: 1 })).toMatchObject({ given: 0, sum: 120 })
})

test('a message of a lower epoch does nothing', () => {
  const talk = new Talk()
  talk.ask(1, { asked: 40 }, { epoch: 2 })
  expect(talk.say(1, { given: 5, returned: 5 }, { epoch: 1 })).toEqual({ kind: 'stale', epoch: 2 })
  expect(talk.ask(1, { given: 40 }, { epoch: 2 })).toMatchObject({ given: 40, sum: 40 })
})

test('a process that forgot takes up what it is told, gives nothing, and takes nothing back until it has learned', () => {
  const talk = new Talk()
  talk.ask(1, { asked: 40 })
  talk.process = new TotalsProcess(2, () => talk.nowMs)
  expect(talk.say(1, { given: 40, asked: 9 })).toMatchObject({
    isLearning: true,
    answers: [{ given: 40, gift: 0, sum: 40 }],
  })
  expect(talk.say(1, { given: 30, returned: 10 })).toMatchObject({
    isLearning: true,
    answers: [{ given: 40 }],
  })
  expect(talk.say(2, { asked: 70 })).toMatchObject({ isLearning: true, answers: [{ given: 0, sum: 40 }] })
  talk.nowMs += 600
  expect(talk.ask(2, { asked: 70 })).toMatchObject({ given: 60, sum: 100 })
})

/** Servers tell of open windows only: one that thaws with calls of an ended window would be given it anew. */
test('a window that ended while a process learned is given nothing afterwards, the next one is', () => {
  const talk = new Talk()
  const nowMs = talk.nowMs
  talk.process = new TotalsProcess(2, () => talk.nowMs)
  expect(talk.say(1, { asked: 5, endMs: nowMs + 600 })).toMatchObject({ isLearning: true })
  talk.nowMs += 600
  expect(talk.ask(1, { asked: 5, endMs: nowMs + 600 })).toMatchObject({ gift: 0, sum: 0 })
  expect(talk.ask(1, { asked: 5, endMs: nowMs + 601 })).toMatchObject({ gift: 5, sum: 5 })
})

test('each time that a process forgets is another learning, also while it learns', () => {
  const talk = new Talk()
  const learning = () => {
    const reply = talk.say(1)
    return reply.kind === 'answered' ? reply.learning : null
  }
  expect(learning()).toBe(0)
  talk.process = new TotalsProcess(2, () => talk.nowMs)
  const first = learning()
  talk.nowMs += 100
  expect(learning()).toBe(first)
  talk.process = new TotalsProcess(3, () => talk.nowMs)
  expect(learning()).not.toBe(first)
})

test('a replica that takes over learns, and so does a process that nobody spoke to for more than a second', () => {
  const talk = new Talk()
  talk.ask(1, { asked: 40 })
  const replica = talk.process.replica(2)
  talk.nowMs += 1_001
  expect(talk.say(1)).toMatchObject({ isLearning: true })
  talk.process = replica
  expect(talk.say(2, { asked: 1 })).toMatchObject({ isLearning: true, answers: [{ given: 0, sum: 40 }] })
})

test('a window is kept until a minute after its end by the time of the server, whatever the clock of the process', () => {
  const talk = new Talk()
  const nowMs = talk.nowMs
  talk.nowMs += 20 * HOUR // the clock of the process is that far ahead
  talk.say(1, undefined, { nowMs })
  talk.nowMs += 600
  talk.ask(1, { asked: 100 }, { nowMs })
  for (let passedMs = 0; passedMs < HOUR + 60_000; passedMs += 500) {
    if (passedMs % 600_000 === 0) expect(talk.ask(2, { asked: 1 }, { nowMs }).sum).toBe(100)
    else talk.say(1, undefined, { nowMs })
    talk.nowMs += 500
  }
  expect(talk.ask(2, { asked: 1 }, { nowMs }).sum).toBe(1)
})

test('a server that has forgotten a cell gets only what it asks for, on top of what it had', () => {
  const talk = new Talk()
  talk.ask(1, { asked: 10 })
  expect(talk.ask(1, { hasForgotten: true, asked: 10 })).toMatchObject({ given: 20, gift: 10, sum: 20 })
  expect(talk.ask(1, { given: 20, asked: 1 })).toMatchObject({ given: 21, gift: 1, sum: 21 })
})

test('a process that adds charges the later window of a cell, and counts only what is asked there', () => {
  const process = new AdditionsProcess()
  const take = (wanted: Partial<Entry>) => {
    const entries = [entry(wanted)]
    const reply = process.take({
      serverId: 1,
      epoch: 1,
      learnMs: 0,
      exchange: { bucket: 0, nowMs: 0, looseMs: 500, share: 2, entries },
    })
    return reply.kind === 'answered' ? reply.answers[0] : null
  }
  expect(take({ asked: 10 })).toMatchObject({ endMs: END, given: 10, gift: 10, sum: 10 })
  expect(take({ given: 10, asked: 10 })).toMatchObject({ given: 20, gift: 10, sum: 20 })
  expect(take({ given: 15, returned: 5 })).toMatchObject({ given: 15, gift: 0, sum: 15 })
  expect(take({ endMs: END + HOUR, asked: 7 })).toMatchObject({ endMs: END + HOUR, given: 7, sum: 7 })
  expect(take({ given: 15, owed: 3, returned: 2, asked: 4 })).toEqual({
    endMs: END + HOUR,
    given: 4,
    gift: 4,
    sum: 11,
    looseUntilMs: 0,
  })
})
