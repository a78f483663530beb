import { expect, test } from 'bun:test'
import { NearLimit } from '../../../src/limiter/table/near-limit.ts'

const END = 2_000_000
const entriesOf = (list: NearLimit) => {
  const { count, names, ends, used } = list.take(0)
  return Array.from({ length: count }, (_, i) => [names[4 * i + 3], ends[i], used[i]])
}
/** Counters that begin at the same place of the index, and so stand behind one another in it. */
const keep = (list: NearLimit, counter: number, used: number, endMs = END) =>
  list.keep(1, 7, 3, counter, endMs, used)

/** Else a few busy ones, or one that wants to, take the room of all others: those a restart would forget. */
test('a counter charged over and over is kept once, as it is last', () => {
  const list = new NearLimit(3)
  for (let used = 50; used <= 100; used++) keep(list, 1, used)
  keep(list, 2, 5)
  keep(list, 3, 9)
  keep(list, 4, 1) // no room
  expect(entriesOf(list)).toEqual([
    [1, END, 100],
    [2, END, 5],
    [3, END, 9],
  ])
  expect(entriesOf(list)).toEqual([])
  keep(list, 4, 1)
  expect(entriesOf(list)).toEqual([[4, END, 1]])
})

test('what could not be written does not come before what was charged meanwhile', () => {
  const list = new NearLimit(10)
  keep(list, 1, 60)
  keep(list, 2, 60)
  keep(list, 3, 60)
  const unwritten = list.take(0)
  keep(list, 1, 100)
  keep(list, 2, 1, END + 1_000)
  list.putBack(unwritten)
  expect(entriesOf(list)).toEqual([
    [1, END, 100],
    [2, END + 1_000, 1],
    [3, END, 60],
  ])
})

/** Each is a row in the database, for as long as its window lasts. What could not be written is none. */
test('no more than so many rows of one owner are stored at a time', () => {
  const list = new NearLimit(100, 50)
  const keepFor = (owner: number, from: number, count: number, endMs = END) => {
    const before = list.count
    for (let i = from; i < from + count; i++) list.keep(owner, i, i, i, endMs, 1, owner)
    return list.count - before
  }
  expect(keepFor(1, 0, 30)).toBe(30)
  list.take(0)
  for (let retry = 0; retry < 5; retry++) {
    expect(keepFor(1, 100, 30)).toBe(retry === 0 ? 20 : 0)
    list.putBack(list.take(0))
    expect(list.count).toBe(20)
  }
  list.take(0)
  expect(keepFor(1, 200, 30)).toBe(0)
  expect(keepFor(2, 0, 30)).toBe(30) // others have their own
  list.take(END)
  expect(keepFor(1, 200, 30, 2 * END)).toBe(30) // the windows are over, and their rows with them
})
