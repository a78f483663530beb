import { expect, test } from 'bun:test'
import { OwnerChanges, ownerChange, readOwnerChange } from '../../src/records/owner-changes.ts'

type Thing = { owner: string; tags: string[]; changesSeen: number }
const open = () =>
  new OwnerChanges<Thing>({
    ownerOf: ({ owner }) => owner,
    isConcerned: ({ tags }, name) => tags.includes(name),
  })
const thing = (owner: string, ...tags: string[]): Thing => ({ owner, tags, changesSeen: 0 })

test('a change affects the records of its owner that it names, and no others', () => {
  const changes = open()
  const [admin, reader, other] = [thing('a', 'admin'), thing('a', 'read'), thing('b', 'admin')]
  for (const each of [admin, reader, other]) changes.admit(each)
  changes.add('a', 'admin')
  expect([admin, reader, other].map((each) => changes.concern(each))).toEqual([true, false, false])
  // A record that was checked once is not checked again for the same change, but is for the next.
  changes.add('a', 'read')
  expect([reader, other].map((each) => changes.concern(each))).toEqual([true, false])
})

test('a change does not affect a record that was read after it', () => {
  const changes = open()
  changes.add('a', 'admin')
  const admin = thing('a', 'admin')
  changes.admit(admin)
  expect(changes.concern(admin)).toBe(false)
})

test('beyond the kept changes of an owner all its records count as affected, and those of other owners do not', () => {
  const changes = open()
  const [idle, read, other] = [thing('a'), thing('a'), thing('b')]
  for (const each of [idle, read, other]) changes.admit(each)
  for (let i = 0; i < 1_000; i++) {
    changes.add('a', `role_${i}`)
    if (i % 100 === 0) expect(changes.concern(read)).toBe(false)
  }
  expect([idle, read, other].map((each) => changes.concern(each))).toEqual([true, false, false])
})

test('beyond the kept owners a record counts as affected when it was read before the change', () => {
  const changes = open()
  const early = thing('owner_0', 'admin')
  changes.admit(early)
  changes.add('owner_0', 'admin')
  for (let i = 1; i <= 10_000; i++) changes.add(`owner_${i}`, 'x')
  const late = thing('owner_0', 'admin')
  changes.admit(late)
  expect([early, late].map((each) => changes.concern(each))).toEqual([true, false])
})

test('the name of a change is parsed as it was built, and no id or hash is parsed as one', () => {
  expect(readOwnerChange(ownerChange('ws_1', 'role a b\nc'))).toEqual({ owner: 'ws_1', name: 'role a b\nc' })
  for (const name of ['key_1', 'of ws_1\nrole a', '', 'abc=']) expect(readOwnerChange(name)).toBeNull()
})
