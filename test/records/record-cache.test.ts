import { expect, test } from 'bun:test'
import { systemTimers, type Timers } from '../../src/lib/timers.ts'
import { Invalidations } from '../../src/records/invalidations.ts'
import { RecordCache } from '../../src/records/record-cache.ts'

/** A cache over records that the test changes, with a source that the test can stop. */
function makeCache(timers: Timers = systemTimers) {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 })
  const stored = new Map<string, { id: string; text: string }>()
  const source = { isAway: false, loads: 0, answers: Promise.resolve() }
  const cache = new RecordCache<{ id: string; text: string }>(invalidations, {
    load: async (key) => {
      source.loads++
      await source.answers
      if (source.isAway) throw new Error('away')
      return stored.get(key) ?? null
    },
    dependenciesOf: ({ id }) => [id],
    bytesOf: () => 100,
    ownerOf: () => 'ws',
    bytesMax: 1000,
    missingMax: 10,
    timers,
  })
  stored.set('a', { id: 'id_a', text: 'first' })
  return { cache, invalidations, stored, source }
}

test('when everything may have changed, each entry is read again once before it is used', async () => {
  const { cache, invalidations, stored, source } = makeCache()
  await cache.find('a')
  await invalidations.broadcastAndWait(null)
  stored.set('a', { id: 'id_a', text: 'second' })
  const both = await Promise.all([cache.find('a'), cache.find('a')])
  expect(both.map((record) => record?.text)).toEqual(['second', 'second'])
  expect(source.loads).toBe(2)
  expect(cache.find('a')).toMatchObject({ text: 'second' }) // not a promise: it is cached
  await invalidations.broadcastAndWait(null)
  stored.delete('a')
  expect(await cache.find('a')).toBeNull()
  expect(cache.find('a')).toBeNull()
})

/** Otherwise a short outage would evict keys that were cached all along. */
test('an entry that cannot be read again is used unchanged until it can be, or is known to have changed', async () => {
  const { cache, invalidations, stored, source } = makeCache()
  await cache.find('a')
  expect(await cache.find('b')).toBeNull()
  source.isAway = true
  await invalidations.broadcastAndWait(null)
  for (let i = 0; i < 2; i++) expect(await cache.find('a')).toMatchObject({ text: 'first' })
  // That the key is missing is no longer known.
  expect(Promise.resolve(cache.find('b'))).rejects.toThrow('away')
  source.isAway = false
  stored.set('a', { id: 'id_a', text: 'second' })
  expect(await cache.find('a')).toMatchObject({ text: 'second' })
  source.isAway = true
  await invalidations.broadcastAndWait(null)
  await invalidations.broadcastAndWait(['id_a'])
  expect(Promise.resolve(cache.find('a'))).rejects.toThrow('away')
})

/** Otherwise each call takes the whole wait while a statement hangs: 32 connections got 320 answers a second. */
test('while the source hangs, one call waits for a record, and later calls get the cached one at once', async () => {
  let now = 0
  const waits = new Set<{ untilMs: number; run: () => void }>()
  const pass = (ms: number) => {
    now += ms
    for (const { untilMs, run } of waits) if (untilMs <= now) run()
  }
  const { cache, invalidations, stored, source } = makeCache({
    ...systemTimers,
    now: () => now,
    after: (ms, run) => {
      const wait = { untilMs: now + ms, run }
      waits.add(wait)
      return () => void waits.delete(wait)
    },
  })
  await cache.find('a')
  const answer = Promise.withResolvers<void>()
  source.answers = answer.promise
  stored.set('a', { id: 'id_a', text: 'second' })
  await invalidations.broadcastAndWait(null)
  const first = cache.find('a')
  pass(30)
  const second = cache.find('a')
  expect(Array.from(waits, ({ untilMs }) => untilMs)).toEqual([50, 50]) // the second waits for the rest of the first's time
  pass(20)
  for (const record of await Promise.all([first, second])) expect(record).toMatchObject({ text: 'first' })
  expect(cache.find('a')).toMatchObject({ text: 'first' }) // not a promise
  expect(source.loads).toBe(2)
  expect(waits.size).toBe(0)

  // Once it is known to have changed it is not used, however long the read takes.
  await invalidations.broadcastAndWait(['id_a'])
  const third = cache.find('a')
  pass(1_000)
  answer.resolve()
  expect(await third).toMatchObject({ text: 'second' })
  expect(source.loads).toBe(3)
})

/** Made by another process whose notice is late, then changed by this one: it must not stay missing here. */
test('a change that names the key of a missing record has it looked up again; other missing ones stay', async () => {
  const { cache, invalidations, stored, source } = makeCache()
  for (const key of ['b', 'x']) expect(await cache.find(key)).toBeNull()
  await cache.find('a')
  await invalidations.broadcastAndWait(['id_a', 'something else'])
  for (const key of ['b', 'x']) expect(cache.find(key)).toBeNull() // no promise: it is known to be missing
  stored.set('b', { id: 'id_b', text: 'changed' })
  await invalidations.broadcastAndWait(['id_b', 'b'])
  expect(await cache.find('b')).toMatchObject({ text: 'changed' })
  expect(cache.find('x')).toBeNull()

  expect(source.loads).toBe(4)
  const loading = cache.find('c')
  await invalidations.broadcastAndWait(['id_c', 'c'])
  await loading
  stored.set('c', { id: 'id_c', text: 'made meanwhile' })
  expect(await cache.find('c')).toMatchObject({ text: 'made meanwhile' })
})

const hashOf = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('base64')

/** A part that does not drop a changed record would keep a revoked key valid. */
test('a cache in parts finds entries that depend on a change in all of them', async () => {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 })
  const stored = new Map<string, { id: string; of: string; text: string }>()
  let loads = 0
  const cache = new RecordCache<{ id: string; of: string; text: string }>(invalidations, {
    load: async (key) => {
      loads++
      const record = stored.get(key)
      return record === undefined ? null : { ...record }
    },
    dependenciesOf: ({ id, of }) => [id, of],
    bytesOf: ({ text }) => 100 * text.length,
    ownerOf: ({ of }) => of,
    bytesMax: 64 * 30_000,
    partBytes: 30_000,
    missingMax: 64_000,
  })
  const keys = Array.from({ length: 600 }, (_, i) => hashOf(`key ${i}`))
  const strangers = Array.from({ length: 600 }, (_, i) => hashOf(`stranger ${i}`))
  for (const [i, key] of keys.entries()) stored.set(key, { id: `id_${i}`, of: `of_${i % 2}`, text: 'a' })
  /** @returns how many had to be read. */
  const readAll = async (all: string[]) => {
    const before = loads
    for (const key of all) expect(await cache.find(key)).toEqual(stored.get(key) ?? null)
    return loads - before
  }
  expect(await readAll([...keys, ...strangers])).toBe(1_200)
  expect(await readAll([...keys, ...strangers])).toBe(0)

  const change = async (names: string[] | null, text: string) => {
    for (const each of stored.values()) each.text = text
    await invalidations.broadcastAndWait(names)
  }
  await change(['id_7', 'id_8'], 'a')
  expect(await readAll([...keys, ...strangers])).toBe(2)
  await change(['of_1'], 'a')
  expect(await readAll(keys)).toBe(300)
  await change([hashOf('key 5'), hashOf('stranger 5')], 'a')
  expect(await readAll([...keys, ...strangers])).toBe(2)
  await change(['id_of another'], 'a')
  expect(await readAll([...keys, ...strangers])).toBe(0)
  await change(null, 'b')
  expect(await readAll([...keys, ...strangers])).toBe(1_200)
  expect(await readAll([...keys, ...strangers])).toBe(0)

  const [first = '', second = ''] = keys
  stored.set(first, { id: 'large', of: 'of_0', text: 'x'.repeat(300) })
  stored.set(second, { id: 'too large', of: 'of_0', text: 'x'.repeat(301) })
  await invalidations.broadcastAndWait(['of_0', 'of_1'])
  expect(await readAll([first, second])).toBe(2)
  expect(await readAll([first, second])).toBe(1)
})

/** A part with more than its share evicts records for which the whole cache has room. */
test.each(['base64', 'hex'] as const)('hashes in %s fill the parts of a cache evenly', async (encoding) => {
  let loads = 0
  const cache = new RecordCache<{ id: string }>(
    new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 }),
    {
      load: async (id) => {
        loads++
        return loads % 2 === 0 ? { id } : null
      },
      dependenciesOf: ({ id }) => [id],
      bytesOf: () => 100,
      ownerOf: () => 'ws',
      bytesMax: 64 * 30_000,
      partBytes: 30_000,
      missingMax: 64 * 300,
    },
  )
  // Four fifths of 300 of each kind and part: by chance alone no part gets more.
  const keys = Array.from({ length: 2 * 64 * 240 }, (_, i) =>
    new Bun.CryptoHasher('sha256').update(`key ${i}`).digest(encoding),
  )
  for (const key of keys) await cache.find(key)
  expect(loads).toBe(keys.length)
  for (const key of keys) await cache.find(key)
  expect(loads).toBe(keys.length)
})

type Owned = { id: string; owner: string; bytes: number }
function ownedCache(options: { bytesMax: number; partBytes?: number; timers?: Timers }) {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 })
  const stored = new Map<string, Owned>()
  const source = { loads: 0 }
  const cache = new RecordCache<Owned>(invalidations, {
    load: async (key) => {
      source.loads++
      return stored.get(key) ?? null
    },
    dependenciesOf: ({ id, owner }) => [id, owner],
    bytesOf: ({ bytes }) => bytes,
    ownerOf: ({ owner }) => owner,
    missingMax: 10,
    ...options,
  })
  let made = 0
  /** Creates and reads that many records. */
  const read = async (owner: string, count: number, bytes = 100) => {
    const keys = Array.from({ length: count }, () => hashOf(`key ${++made}`))
    for (const [at, key] of keys.entries()) stored.set(key, { id: `id_${made}_${at}`, owner, bytes })
    for (const key of keys) await cache.find(key)
    return keys
  }
  const cached = (keys: readonly string[]) =>
    keys.filter((key) => !(cache.find(key) instanceof Promise)).length
  return { cache, invalidations, stored, source, read, cached }
}

/** Findings of November 2026, 3.4: 70 large keys of one workspace evicted everybody's keys. */
test('a workspace that uses less than half as much as another keeps its records, whatever that one reads', async () => {
  for (const partBytes of [20_000, 160_000]) {
    const { read, cached } = ownedCache({ bytesMax: 160_000, partBytes })
    const small = await read('small', 200)
    const own = await read('large', 200)
    for (let i = 0; i < 20; i++) await read('large', 500)
    for (let i = 0; i < 100; i++) await read('large', 1, 9_000)
    expect(cached(small)).toBe(200)
    expect(cached(own)).toBe(0)
  }
})

test('two workspaces that read as much as they can get half each, and used records stay', async () => {
  const { cache, read, cached } = ownedCache({ bytesMax: 100_000 })
  const first = await read('a', 1000)
  const used = first.slice(0, 50)
  for (let i = 0; i < 30; i++) {
    for (const key of used) cache.find(key)
    await read('b', 100)
  }
  expect(cached(used)).toBe(50)
  expect(cached(first)).toBeWithin(300, 700)
})

test('a single workspace may use the whole cache', async () => {
  const { read, cached } = ownedCache({ bytesMax: 100_000 })
  const keys = await read('a', 1000)
  expect(cached(keys)).toBe(1000)
  const more = await read('a', 10)
  expect([cached(more), cached(keys)]).toEqual([10, 990])
})

/** Otherwise changing a role again and again, with 100 000 keys cached, would delay everybody by 0.1 s each time. */
test('many records dropped by one change are gone at once, and their room is freed in slices', async () => {
  const turns: (() => void)[] = []
  const timers = { ...systemTimers, soon: (run: () => void) => void turns.push(run) }
  const { cache, invalidations, stored, source, read, cached } = ownedCache({ bytesMax: 2_000_000, timers })
  const others = await read('other', 100)
  const keys = await read('ws', 5_000)
  await invalidations.broadcastAndWait(['ws'])
  expect(turns).toHaveLength(1) // nothing was freed in this turn
  const loads = source.loads
  const [first = '', second = ''] = keys
  for (const key of keys.slice(0, 10)) stored.set(key, { id: 'changed', owner: 'ws', bytes: 100 })
  expect(await cache.find(first)).toMatchObject({ id: 'changed' })
  expect(source.loads).toBe(loads + 1)
  // A record that is read again meanwhile stays; one that is dropped by its own name goes.
  expect(await cache.find(second)).toMatchObject({ id: 'changed' })
  let slices = 0
  for (let turn = turns.shift(); turn !== undefined; turn = turns.shift()) {
    turn()
    slices++
  }
  expect(slices).toBeGreaterThan(10)
  expect(cached([first, second])).toBe(2)
  expect(cached(others)).toBe(100)
  await invalidations.broadcastAndWait(['changed'])
  expect(cached([first, second])).toBe(0)
  for (const key of keys.slice(10)) expect(cached([key])).toBe(0)
})

test('a caller that joins a load reads again if a change concerned the record before it asked', async () => {
  const { cache, invalidations, source } = makeCache()
  const answer = Promise.withResolvers<void>()
  source.answers = answer.promise
  const early = cache.find('a')
  await invalidations.broadcastAndWait(['id_of another'])
  const joined = cache.find('a')
  expect(source.loads).toBe(1)
  await invalidations.broadcastAndWait(['id_a'])
  const late = [cache.find('a'), cache.find('a')]
  answer.resolve()
  const [first, other] = await Promise.all([early, joined])
  expect(first === other).toBe(true) // the change came after they asked
  const [second, third] = await Promise.all(late)
  expect(second).toMatchObject({ text: 'first' })
  expect(second === third).toBe(true)
  expect(source.loads).toBe(2) // one for both
  expect(cache.find('a') === second).toBe(true)
})

/** Records that are read from a base: what they were, and what has changed since. */
function makeBasedCache() {
  const invalidations = new Invalidations({ processId: 'test', confirmTimeoutMs: 1000 })
  const bases: (number | null)[] = []
  const source = { version: 1, isMissing: false, answers: Promise.resolve(), bases }
  const cache = new RecordCache<{ version: number }>(invalidations, {
    load: async (_key, _asking, base) => {
      const { version, isMissing } = source
      source.bases.push(base?.version ?? null)
      await source.answers
      return isMissing ? null : { version }
    },
    dependenciesOf: () => ['id_a'],
    bytesOf: () => 100,
    ownerOf: () => 'ws',
    bytesMax: 1000,
    missingMax: 0,
    keepsBases: true,
  })
  const change = async (names: string[] | null = ['id_a']) => {
    source.version++
    await invalidations.broadcastAndWait(names)
  }
  return { cache, source, change }
}

test('a changed record is the base of its next reading, and is not found until then', async () => {
  const { cache, source, change } = makeBasedCache()
  await cache.find('a')
  await change()
  await change()
  expect(await cache.find('a')).toEqual({ version: 3 })
  expect(cache.find('a')).toEqual({ version: 3 }) // not a promise: it is cached
  expect(source.bases).toEqual([null, 1])
  source.isMissing = true
  await change()
  expect(await cache.find('a')).toBeNull()
  source.isMissing = false
  expect(await cache.find('a')).toEqual({ version: 4 })
  expect(source.bases).toEqual([null, 1, 3, null])
})

/** Otherwise a record that changes more often than it can be read would be read as a whole each time. */
test('a record that changes while it is read is the base of the next reading', async () => {
  const { cache, source, change } = makeBasedCache()
  const answer = Promise.withResolvers<void>()
  source.answers = answer.promise
  const first = cache.find('a')
  await change()
  const second = cache.find('a')
  answer.resolve()
  expect([await first, await second]).toEqual([{ version: 1 }, { version: 2 }])
  expect(source.bases).toEqual([null, 1])
})

/** After a failover to a database that lost commits, a base may hold changes that nobody made. */
test('when everything may have changed, a record is read without a base', async () => {
  const { cache, source, change } = makeBasedCache()
  await cache.find('a')
  await change()
  await change(null)
  expect(await cache.find('a')).toEqual({ version: 3 })
  await change(null)
  expect(await cache.find('a')).toEqual({ version: 4 })
  expect(source.bases).toEqual([null, null, null])

  const answer = Promise.withResolvers<void>()
  source.answers = answer.promise
  await change()
  const loading = cache.find('a') // from a base
  await change(null)
  answer.resolve()
  await loading
  expect(await cache.find('a')).toEqual({ version: 6 })
  expect(source.bases).toEqual([null, null, null, 4, null])
})
