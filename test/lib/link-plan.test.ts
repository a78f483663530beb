import { expect, test } from 'bun:test'
import { readReferences } from '../../src/doors/v1/references.ts'
import { ApiError } from '../../src/errors.ts'
import { planLinks, resolveReferences } from '../../src/lib/link-plan.ts'

const a = { id: 'perm_a', name: 'A', text: 'a' }
const b = { id: 'perm_b', name: 'B', text: 'b' }
const c = { id: 'perm_c', name: 'C', text: 'c' }
const plan = (elements: Parameters<typeof readReferences>[0], found: (typeof a)[], attached: (typeof a)[]) =>
  planLinks(readReferences(elements, 'permissions'), found, attached)

test('an id wins over the texts, and slug over its old name `name`', () => {
  expect(readReferences([{ id: 'perm_a', slug: 'b', name: 'c', create: true }], 'p')).toEqual([
    { id: 'perm_a' },
  ])
  expect(readReferences([{ slug: 'b', name: 'c' }], 'p')).toEqual([{ text: 'b', create: false }])
  expect(readReferences([{ name: 'c', create: true }], 'p')).toEqual([{ text: 'c', create: true }])
})

/** In the v1 API such an element meant every role of the workspace. */
test('an element that names nothing is refused with its place', () => {
  const read = () => readReferences([{ id: 'perm_a' }, { create: true }], 'roles')
  expect(read).toThrow(ApiError)
  expect(read).toThrow('roles.1: an id or a name is required')
})

test('attached and requested ones stay, others are detached, new ones are attached', () => {
  expect(plan([{ id: 'perm_b' }, { name: 'c' }], [b, c], [a, b])).toEqual({
    missing: [],
    create: [],
    attach: [c],
    detach: [a],
  })
})

test('an empty request detaches all', () => {
  expect(plan([], [], [a, b])).toEqual({ missing: [], create: [], attach: [], detach: [a, b] })
})

test('repeated references, by id and by text, count once', () => {
  const elements = [{ name: 'a' }, { id: 'perm_a' }, { slug: 'a' }, { name: 'new', create: true }]
  expect(plan([...elements, { name: 'new', create: true }], [a], [])).toEqual({
    missing: [],
    create: ['new'],
    attach: [a],
    detach: [],
  })
})

test('one that does not exist is missing, unless any reference to it allows creating it', () => {
  expect(plan([{ id: 'perm_x' }, { name: 'y' }, { name: 'z' }, { name: 'z', create: true }], [], [])).toEqual(
    {
      missing: [{ id: 'perm_x' }, { text: 'y', create: false }],
      create: ['z'],
      attach: [],
      detach: [],
    },
  )
})

test('the requested ones are returned in the order of the request, each once', () => {
  const references = readReferences([{ name: 'c' }, { id: 'perm_a' }, { id: 'perm_c' }, { name: 'x' }], 'p')
  expect(resolveReferences(references, [a, b, c])).toEqual([c, a])
})
