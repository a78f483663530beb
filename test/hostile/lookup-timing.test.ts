import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { newId } from '../../src/lib/ids.ts'
import { KeyLookup } from '../../src/verify/lookup.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
let key: string
beforeAll(async () => {
  server = await startTestServer({ env: { TOLLGATE_DB_TIMEOUT_MS: '60000' } })
  const workspace = await server.workspace()
  key = (await makeKey(workspace, await makeApi(workspace))).key
})
afterAll(async () => await server[Symbol.asyncDispose]())

/** The time of a comparison of texts shows how much of a guess was right. A look-up by hash does not. */
test('only the hash of a presented key reaches the database', async () => {
  const { sql, invalidations: changes } = server.server.deps
  const values: unknown[] = []
  const heard = new Proxy(sql, {
    apply: (target, self, args: unknown[]) => {
      // Numbers are the statement's own bounds. A fragment's values are recorded by its own call.
      values.push(
        ...args.slice(1).filter((value) => typeof value !== 'number' && !(value instanceof Promise)),
      )
      return Reflect.apply(target, self, args)
    },
  })
  const lookup = new KeyLookup(heard, changes, { bytesMax: 2 ** 20, missingMax: 100 })
  expect((await lookup.find(key))?.hash).toBe(hashKey(key))
  expect(await lookup.find(`${key}x`)).toBeNull()
  expect(values).toEqual([[hashKey(key)], [hashKey(`${key}x`)]])
})

const letters = (count: number) => newId('key').slice(-count)
/** Right except for the last characters. */
const nearMiss = () => key.slice(0, -6) + letters(6)
const farMiss = () => (letters(10) + letters(10) + letters(10)).slice(0, key.length)

const SAMPLES = 200

/**
 * In random order within each pair, so that other load on the machine, and periodic work of the server, affects both kinds
 * equally. Texts are built before the measurement.
 * @returns ns of each look-up.
 */
async function timesOf(look: (text: string) => unknown): Promise<{ near: number[]; far: number[] }> {
  const times: { near: number[]; far: number[] } = { near: [], far: [] }
  const flat = (text: string) => Buffer.from(text).toString('latin1')
  for (let i = 0; i < SAMPLES + 20; i++) {
    const pair = [
      { kind: 'near', text: flat(nearMiss()) },
      { kind: 'far', text: flat(farMiss()) },
    ] as const
    for (const { kind, text } of Math.random() < 0.5 ? pair : pair.toReversed()) {
      const began = Bun.nanoseconds()
      await look(text)
      if (i >= 20) times[kind].push(Bun.nanoseconds() - began) // the first ones warm up
    }
  }
  return times
}

/** Mann and Whitney's U in standard deviations. It uses ranks, so a single slow look-up does not decide. */
function rankDifference({ near, far }: { near: number[]; far: number[] }): number {
  const all = [...near.map((ns) => ({ ns, isNear: true })), ...far.map((ns) => ({ ns, isNear: false }))]
  all.sort((a, b) => a.ns - b.ns)
  const rankSum = all.reduce((sum, { isNear }, index) => sum + (isNear ? index + 1 : 0), 0)
  const [n, m] = [near.length, far.length]
  return (rankSum - (n * (n + m + 1)) / 2) / Math.sqrt((n * m * (n + m + 1)) / 12)
}

/** By chance this is exceeded once in a thousand million runs. */
const DEVIATIONS_MAX = 6

test('the time of a look-up does not depend on how close the guess is', async () => {
  const { keys } = server.server.deps
  expect(Math.abs(rankDifference(await timesOf((text) => keys.find(text))))).toBeLessThan(DEVIATIONS_MAX)
})

/** A look-up that must not exist: its time grows with each right character. */
test('the comparison would detect a look-up that compares texts', async () => {
  const leaky = (text: string) => {
    let same = 0
    while (same < text.length && text[same] === key[same]) same++
    for (let i = 0; i < same * 200; i++) hash = (hash * 31 + i) | 0
  }
  let hash = 0
  expect(rankDifference(await timesOf(leaky))).toBeGreaterThan(DEVIATIONS_MAX)
})

/** An id is its second and 64 random bits: knowing some ids tells nothing about others. */
test('ids of one second have only their beginning in common', () => {
  const now = Date.now()
  const COUNT = 20_000
  const ids = Array.from({ length: COUNT }, () => newId('key', now).slice(-10))
  expect(new Set(ids).size).toBe(COUNT)
  for (let place = 0; place < 10; place++) {
    const counts = new Map<string, number>()
    for (const id of ids) counts.set(id.charAt(place), (counts.get(id.charAt(place)) ?? 0) + 1)
    expect(counts.size).toBe(58)
    const expected = COUNT / 58
    const chiSquare = [...counts.values()].reduce((sum, n) => sum + (n - expected) ** 2 / expected, 0)
    // 57 degrees of freedom: by chance, 150 is exceeded once in thousands of millions of runs.
    expect(chiSquare).toBeLessThan(150)
  }
  // Neighbours have as many equal characters as chance gives: one place in 58.
  const shared = ids
    .slice(1)
    .reduce((sum, id, i) => sum + [...id].filter((c, at) => c === ids[i]?.[at]).length, 0)
  expect(shared / (10 * COUNT)).toBeLessThan(0.025)
})
