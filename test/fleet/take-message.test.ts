import { expect, test } from 'bun:test'
import { TAGS } from '../../src/fleet/buckets.ts'
import type { Entry } from '../../src/fleet/engine.ts'
import { takeMessage } from '../../src/fleet/take-message.ts'
import { TAKE, TAKE_SHA } from '../../src/fleet/take-script.ts'
import { randomNumbers } from '../support/random.ts'

const speaker = { serverId: 2 ** 53 - 1, epoch: 7, learnMs: 600, fleetId: 'fleet_é' }

test('a message is what Redis’ protocol wants of the command, whatever the cells and ends', () => {
  const below = randomNumbers(1)
  const word = () => Math.floor(below() * 2 ** 32) | 0
  const corners = [0, -1, 1, 2 ** 31 - 1, -(2 ** 31)]
  const cells = [
    ...corners.map((h) => [h, h, h, h] as const),
    ...Array.from({ length: 500 }, () => [word(), word(), word(), word()] as const),
  ]
  const ends = [1, 35, 36, Date.now(), 36 ** 8 - 1, 36 ** 8, 2 ** 46]
  for (const command of ['eval', 'evalsha'] as const) {
    const entries = cells.map((cell, i) => entryOf(cell, ends[i % ends.length] ?? 1))
    const message = takeMessage(command, { bucket: 3, nowMs: 1, looseMs: 2, share: 6, entries }, speaker)
    const words = readCommand(message)
    expect(words.slice(0, 4).map(String)).toEqual([
      command,
      command === 'eval' ? TAKE : TAKE_SHA,
      String(entries.length + 1),
      `t:{${TAGS[3]}}`,
    ])
    expect(words.slice(4, 4 + entries.length).map(String)).toEqual(
      entries.map(({ h0, h1, h2, h3, endMs }) => {
        const name = Buffer.alloc(16)
        for (const [i, h] of [h0, h1, h2, h3].entries()) name.writeInt32BE(h, 4 * i)
        return `t:{${TAGS[3]}}${name.toString('base64url')}${endMs.toString(36)}`
      }),
    )
    const rest = words.slice(4 + entries.length)
    expect(rest.slice(0, 7).map(String)).toEqual([String(2 ** 53 - 1), '7', '1', '2', '6', '600', 'fleet_é'])
    expect(rest).toHaveLength(8)
    expect(rest[7]).toHaveLength(64 * entries.length)
  }
})

test('a message without entries is one too', () => {
  const message = takeMessage('evalsha', { bucket: 0, nowMs: 1, looseMs: 2, share: 2, entries: [] }, speaker)
  const words = readCommand(message)
  expect(words).toHaveLength(12)
  expect(words[11]).toHaveLength(0)
})

function entryOf([h0, h1, h2, h3]: readonly [number, number, number, number], endMs: number): Entry {
  const counts = { limit: 1, given: 2, returned: 0, owed: 3, asked: 4, least: 1, ahead: 5 }
  return { h0, h1, h2, h3, endMs, ...counts, hasForgotten: false, isTentative: true }
}

/** An array of bulk strings, of which nothing is left over. */
function readCommand(message: Buffer): Buffer[] {
  let at = 0
  const line = (sign: string) => {
    const end = message.indexOf('\r\n', at)
    expect(message.toString('latin1', at, at + 1)).toBe(sign)
    const value = Number(message.toString('latin1', at + 1, end))
    at = end + 2
    return value
  }
  const words = Array.from({ length: line('*') }, () => {
    const length = line('$')
    const word = message.subarray(at, at + length)
    expect(message.toString('latin1', at + length, at + length + 2)).toBe('\r\n')
    at += length + 2
    return word
  })
  expect(at).toBe(message.length)
  return words
}
