import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSpills, readSpills, writeSpill } from '../../src/data-dir/spill.ts'

let dataDir: string
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'tollgate-spill-'))
})
afterEach(() => rmSync(dataDir, { recursive: true, force: true }))

const names = () => readdirSync(join(dataDir, 'spill')).sort()
const write = (name: string, bytes: string) => writeFileSync(join(dataDir, 'spill', name), bytes)

test('a written file is read until it is marked as done, and under its own kind only', () => {
  expect([...readSpills(dataDir, 'usage')]).toEqual([]) // there is not even a folder
  writeSpill(dataDir, 'usage', { a: [1, 2], b: 'ü' })
  writeSpill(dataDir, 'windows', 'another')
  for (let time = 0; time < 2; time++)
    expect([...readSpills(dataDir, 'usage')].map(({ value }) => value)).toEqual([{ a: [1, 2], b: 'ü' }])
  for (const { done } of readSpills(dataDir, 'usage')) done()
  expect([...readSpills(dataDir, 'usage')]).toEqual([])
  expect(names()).toHaveLength(1)
})

test('a file written without blocking the thread is like any other, and a failed write leaves nothing', async () => {
  const spills = openSpills(dataDir, { databaseId: 'db' })
  await Promise.all([1, 2, 3].map((count) => spills.writeAsync('usage', { count })))
  const counts = [...spills.read('usage')].map(({ value }) => (value as { count: number }).count) // as written
  expect(counts.sort()).toEqual([1, 2, 3])
  expect(names().every((name) => name.endsWith('.of-db.msgpack'))).toBeTrue()
  const before = names()
  // No file name may be this long.
  await expect(spills.writeAsync('x'.repeat(300), 'lost')).rejects.toThrow('ENAMETOOLONG')
  expect(names()).toEqual(before)
})

/** In earlier versions each thread had a kind of its own, which began with the common one. */
test('a usage file of an earlier version is found', () => {
  writeSpill(dataDir, `usage-${crypto.randomUUID()}`, 'of one thread')
  expect([...readSpills(dataDir, 'usage')].map(({ value }) => value)).toEqual(['of one thread'])
})

/** After a long outage all files together may not fit into memory. */
test('files are read one at a time, and a file that is gone by its turn is skipped', () => {
  for (let i = 0; i < 3; i++) writeSpill(dataDir, 'usage', i)
  const spills = readSpills(dataDir, 'usage')
  const first = spills.next().value
  first?.done()
  const [second = ''] = names()
  rmSync(join(dataDir, 'spill', second)) // another process was done with it
  expect([...spills]).toHaveLength(1)
})

/** Bug: they were sent to whichever database the next start had, and deleted. */
test('a file belongs to its database, and a file of an earlier version without one to any', () => {
  const one = { databaseId: crypto.randomUUID() }
  const another = { databaseId: crypto.randomUUID() }
  writeSpill(dataDir, 'usage', 'of one', one)
  writeSpill(dataDir, 'usage', 'of another', another)
  writeSpill(dataDir, 'usage', 'of any')
  for (const { done } of readSpills(dataDir, 'usage', one)) done()
  expect([...readSpills(dataDir, 'usage', one)]).toEqual([])
  expect([...readSpills(dataDir, 'usage', another)].map(({ value }) => value)).toEqual(['of another'])
  for (const { done } of readSpills(dataDir, 'usage', another)) done()
  expect(names()).toEqual([])
})

/** A crash while writing leaves half a file. A damaged file is kept for people to look at. */
test('an unfinished file is not read, and an unreadable one is set aside', () => {
  writeSpill(dataDir, 'usage', 'whole')
  write('usage-0.msgpack.part', 'half')
  write('usage-1.msgpack', '\xc1 no message')
  expect([...readSpills(dataDir, 'usage')].map(({ value }) => value)).toEqual(['whole'])
  expect(names()).toContain('usage-1.msgpack.unreadable')
  expect(names()).toContain('usage-0.msgpack.part')
  expect([...readSpills(dataDir, 'usage')]).toHaveLength(1)
})
