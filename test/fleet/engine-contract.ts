import { expect, test } from 'bun:test'
import type { Answer, Engine, EngineSetup, Entry, Exchange } from '../../src/fleet/engine.ts'
import { randomNumbers } from '../support/random.ts'
import type { Process } from './engine-model.ts'

/**
 * What `fleet/engine.ts` promises, against any engine: the model, Redis, a cluster, Postgres. Engines here never learn,
 * unless a test says so, and wait long, so that no test depends on time.
 */
export type Subject = {
  open(setup?: Partial<EngineSetup>): Promise<Engine>
  /** The model that answers alike. */
  model(): Process
}

export const HOUR = 3_600_000
/** In the future, so that no engine takes these windows for ended ones. */
export const NOW = 9 * HOUR + 4_000_000_000_000
let cells = 0

/** A new cell for each test, so that tests do not share windows. All are in bucket 0. */
export function newCell(): Pick<Entry, 'h0' | 'h1' | 'h2' | 'h3'> {
  cells++
  return { h0: cells, h1: -cells, h2: 0x7fffffff, h3: cells | 0x80000000 }
}

export function entryOf(cell: ReturnType<typeof newCell>, wanted: Partial<Entry> = {}): Entry {
  return {
    ...cell,
    endMs: NOW + HOUR,
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
  }
}

export const exchangeOf = (entries: Entry[], options: Partial<Exchange> = {}): Exchange => ({
  bucket: 0,
  nowMs: NOW,
  looseMs: 500,
  share: 2,
  entries,
  ...options,
})

/** @throws Error unless it was answered and the engine does not learn. */
export async function answersOf(
  engine: Engine,
  entries: Entry[],
  options: Partial<Exchange> = {},
): Promise<readonly Answer[]> {
  const result = await engine.exchange(exchangeOf(entries, options))
  if (result.kind === 'failed') throw new Error(result.fault, { cause: result.cause })
  if (result.isLearning) throw new Error('it learns')
  return result.answers
}

/** @param subject Of the file's `beforeAll`. */
export function testEngine(name: string, subject: () => Subject, runIf = true): void {
  const it = test.skipIf(!runIf)
  /** One server, one cell. */
  const talk = async () => {
    const engine = await subject().open()
    const cell = newCell()
    const ask = async (wanted: Partial<Entry>, options: Partial<Exchange> = {}): Promise<Answer> => {
      const [answer] = await answersOf(engine, [entryOf(cell, wanted)], options)
      return answer as Answer // of the one entry
    }
    return { cell, ask, engine, [Symbol.asyncDispose]: () => engine.close() }
  }

  it(`${name}: servers together get the limit, a part where that is of use, and no more`, async () => {
    await using first = await talk()
    const second = await subject().open()
    const other = async (wanted: Partial<Entry>) =>
      (await answersOf(second, [entryOf(first.cell, wanted)]))[0]
    expect(await first.ask({ asked: 60 })).toEqual({
      endMs: NOW + HOUR,
      given: 60,
      gift: 60,
      sum: 60,
      looseUntilMs: 0,
    })
    expect(await other({ asked: 50, least: 41 })).toMatchObject({
      given: 0,
      gift: 0,
      sum: 60,
      looseUntilMs: 0,
    })
    expect(await other({ asked: 50, least: 40 })).toMatchObject({
      given: 40,
      gift: 40,
      sum: 100,
      looseUntilMs: NOW + 500,
    })
    expect(await first.ask({ given: 60, asked: 1 })).toMatchObject({ given: 60, gift: 0, sum: 100 })
    expect(await first.ask({ given: 60, asked: 1, limit: 101 })).toMatchObject({
      given: 61,
      gift: 1,
      sum: 101,
    })
    await second.close()
  })

  it(`${name}: of what stays free a share is given ahead, once all that is asked fits`, async () => {
    await using server = await talk()
    expect(await server.ask({ asked: 60, ahead: 30 }, { share: 8 })).toMatchObject({
      given: 65,
      gift: 65,
      looseUntilMs: NOW + 500,
    })
    expect(await server.ask({ given: 65, asked: 40, ahead: 30 })).toMatchObject({ given: 100, gift: 35 })
  })

  it(`${name}: what is returned is free again; what is owed counts above the limit`, async () => {
    await using server = await talk()
    await server.ask({ asked: 40 })
    expect(await server.ask({ given: 30, returned: 10 })).toMatchObject({ given: 30, gift: 0, sum: 30 })
    expect(await server.ask({ given: 30, owed: 90 })).toMatchObject({ given: 120, gift: 0, sum: 120 })
    expect(await server.ask({ given: 120, asked: 1 })).toMatchObject({ given: 120, gift: 0, sum: 120 })
    expect(await server.ask({ given: 100, returned: 20, limit: 200, asked: 7 })).toMatchObject({
      given: 107,
      gift: 7,
      sum: 107,
    })
  })

  it(`${name}: a refusal is not final for a while after a tentative gift, by the time of the servers`, async () => {
    await using server = await talk()
    expect(await server.ask({ asked: 10 })).toMatchObject({ looseUntilMs: 0 })
    expect(await server.ask({ given: 10, asked: 10, isTentative: true })).toMatchObject({
      looseUntilMs: NOW + 500,
    })
    expect(await server.ask({ given: 20, asked: 10, isTentative: true }, { nowMs: NOW - 100 })).toMatchObject(
      {
        looseUntilMs: NOW + 500,
      },
    )
    expect(await server.ask({ given: 30, asked: 71, least: 71 })).toMatchObject({
      gift: 0,
      looseUntilMs: NOW + 500,
    })
  })

  it(`${name}: a server that has forgotten a cell gets what it asks for on top of what it had`, async () => {
    await using server = await talk()
    await server.ask({ asked: 10 })
    expect(await server.ask({ hasForgotten: true, asked: 10 })).toMatchObject({ gift: 10, sum: 20 })
    expect(await server.ask({ hasForgotten: true, asked: 100 })).toMatchObject({ gift: 80, sum: 100 })
  })

  it(`${name}: counts up to 2^53 - 1 are exact`, async () => {
    await using server = await talk()
    const max = Number.MAX_SAFE_INTEGER
    expect(await server.ask({ limit: max, asked: max - 1 })).toMatchObject({
      given: max - 1,
      gift: max - 1,
      sum: max - 1,
    })
    expect(await server.ask({ limit: max, given: max - 1, asked: 2 })).toMatchObject({
      given: max,
      gift: 1,
      sum: max,
    })
  })

  it(`${name}: entries are decided each by itself, and answered in their order`, async () => {
    const engine = await subject().open()
    const names = [9, 3, 7].map(() => newCell()).reverse()
    const answers = await answersOf(
      engine,
      names.map((cell, i) => entryOf(cell, { asked: i + 1, limit: 2 })),
    )
    expect(answers.map(({ gift }) => gift)).toEqual([1, 2, 2])
    expect(await answersOf(engine, [])).toEqual([])
    await engine.close()
  })

  it(`${name}: the next window of a cell begins at zero`, async () => {
    await using server = await talk()
    await server.ask({ asked: 100 })
    const endMs = NOW + 2 * HOUR
    expect(await server.ask({ endMs, asked: 10 }, { nowMs: NOW + HOUR })).toMatchObject({
      endMs,
      given: 10,
      sum: 10,
    })
  })

  it(`${name}: eight servers at once get exactly the limit`, async () => {
    const engines = await Promise.all(Array.from({ length: 8 }, () => subject().open()))
    const names = Array.from({ length: 8 }, newCell)
    const gifts = names.map(() => 0)
    const run = async (engine: Engine, from: number) => {
      const held = names.map(() => 0)
      for (let round = 0; round < 5; round++) {
        const order = names.map((_, i) => (i + from + round) % names.length)
        const entries = order.map((i) => entryOf(names[i] ?? newCell(), { given: held[i] ?? 0, asked: 7 }))
        for (const [at, { gift, given }] of (await answersOf(engine, entries)).entries()) {
          const i = order[at] ?? 0
          held[i] = given
          gifts[i] = (gifts[i] ?? 0) + gift
        }
      }
    }
    await Promise.all(engines.map(run))
    expect(gifts).toEqual(names.map(() => 100))
    await Promise.all(engines.map((engine) => engine.close()))
  })

  it(`${name}: the mistakes of a caller are refused, and nothing is sent`, async () => {
    await using server = await talk()
    const { engine } = server
    const entry = (wanted: Partial<Entry>) => entryOf(newCell(), wanted)
    const wrong: [exchange: Exchange, message: string][] = [
      [
        exchangeOf([
          entry({ h0: 1 }),
          { ...entry({ h0: 1 }), h1: 5, h2: 5, h3: 5 },
          { ...entry({ h0: 1 }), h1: 5, h2: 5, h3: 5 },
        ]),
        'a cell comes twice',
      ],
      [exchangeOf([entry({ asked: 1.5 })]), 'a count out of bounds'],
      [exchangeOf([entry({ limit: -1 })]), 'a count out of bounds'],
      [exchangeOf([entry({ asked: 1, least: 2 })]), 'at least 2 of 1'],
      [exchangeOf([entry({ hasForgotten: true, given: 1 })]), 'who has forgotten'],
      [exchangeOf([entry({ endMs: 2 ** 47 })]), 'an end of'],
      [exchangeOf([], { share: 1 }), 'a share of 1'],
      [exchangeOf(Array.from({ length: 513 }, () => entry({}))), '513 entries are too many'],
      [exchangeOf([], { bucket: engine.buckets }), 'there is no bucket'],
    ]
    if (engine.buckets > 1) wrong.push([exchangeOf([entry({ h0: -1 })]), 'an entry of another bucket'])
    for (const [exchange, message] of wrong) await expect(engine.exchange(exchange)).rejects.toThrow(message)
    const under = engine.exchange(exchangeOf([]))
    await expect(engine.exchange(exchangeOf([]))).rejects.toThrow('an exchange of bucket 0 is under way')
    expect(await under).toMatchObject({ kind: 'answered' })
    await engine.close()
    await expect(engine.exchange(exchangeOf([]))).rejects.toThrow('the engine is closed')
  })

  it(`${name}: an exchange under way fails when the engine is closed`, async () => {
    const engine = await subject().open()
    const under = engine.exchange(exchangeOf([]))
    await engine.close()
    expect(await under).toMatchObject({ kind: 'failed', fault: 'away' })
  })

  it(`${name}: random entries are answered as by the model`, async () => {
    await compareWithModel(subject(), { seed: 7, exchanges: 60 })
  })
}

/** Random messages of three servers, to the engine and to a model: each answer is the same. */
export async function compareWithModel(
  subject: Subject,
  { seed, exchanges }: { seed: number; exchanges: number },
): Promise<void> {
  const random = randomNumbers(seed)
  const below = (n: number) => Math.floor(random() * n)
  const model = subject.model()
  const engines = await Promise.all([0, 1, 2].map(() => subject.open()))
  const names = Array.from({ length: 24 }, newCell)
  const small = () => (below(3) === 0 ? 0 : below(20))
  for (let i = 0; i < exchanges; i++) {
    const server = below(3)
    const chosen = names.filter(() => below(2) === 0)
    const entries = chosen.map((cell) => {
      const asked = small()
      const hasForgotten = below(8) === 0
      return entryOf(cell, {
        endMs: NOW + HOUR * (1 + below(2)),
        limit: below(120),
        given: hasForgotten ? 0 : small(),
        hasForgotten,
        returned: !hasForgotten && below(4) === 0 ? small() : 0,
        owed: below(6) === 0 ? small() : 0,
        asked,
        least: below(asked + 1),
        ahead: small(),
        isTentative: below(4) === 0,
      })
    })
    const exchange = exchangeOf(entries, {
      nowMs: NOW + below(HOUR),
      looseMs: below(1_000),
      share: 2 + below(6),
    })
    const got = await engines[server]?.exchange(exchange)
    const expected = model.take({ serverId: server, epoch: 1, learnMs: 0, exchange })
    expect(got, `seed ${seed}, exchange ${i}: ${JSON.stringify(entries)}`).toEqual(expected as typeof got) // it is no stale one
  }
  await Promise.all(engines.map((engine) => engine.close()))
}
