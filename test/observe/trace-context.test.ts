import { expect, test } from 'bun:test'
import { newTraceHex, readTraceContext, traceparentOf } from '../../src/observe/trace-context.ts'

const traceId = '0af7651916cd43dd8448eb211c80319c'
const parentId = 'b7ad6b7169203331'
const valid = `00-${traceId}-${parentId}-01`

test('a valid context is read, of this version and of later ones', () => {
  const context = { traceId, parentId, isSampled: true, state: null }
  expect(readTraceContext(valid, null)).toEqual(context)
  expect(readTraceContext(` ${valid} `, null)).toEqual(context)
  expect(readTraceContext(`00-${traceId}-${parentId}-00`, null)).toEqual({ ...context, isSampled: false })
  expect(readTraceContext(`00-${traceId}-${parentId}-03`, null)).toEqual(context)
  expect(readTraceContext(`cc-${traceId}-${parentId}-01`, null)).toEqual(context)
  expect(readTraceContext(`cc-${traceId}-${parentId}-01-what-is-to-come`, null)).toEqual(context)
  expect(traceparentOf({ traceId, spanId: parentId, isSampled: true })).toBe(valid)
})

/** By the specification an invalid context is ignored, and a new trace starts. */
test('an invalid context is ignored', () => {
  const wrong = [
    '',
    'x',
    `ff-${traceId}-${parentId}-01`,
    `00-${traceId}-${parentId}-01-more`,
    `cc-${traceId}-${parentId}-01more`,
    `00-${'0'.repeat(32)}-${parentId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    valid.toUpperCase(),
    `00-${traceId.slice(1)}-${parentId}-01`,
    `00-${traceId}-${parentId}-1`,
    `00-${traceId}-${parentId}`,
    `00_${traceId}_${parentId}_01`,
    `${valid}, ${valid}`,
  ]
  for (const header of wrong) expect([header, readTraceContext(header, null)]).toEqual([header, null])
  expect(readTraceContext(null, 'a=1')).toBeNull()
})

test('a valid state is passed on unchanged, any other is left out', () => {
  const stateOf = (state: string) => readTraceContext(valid, state)?.state
  for (const state of [
    'rojo=00f067aa0ba902b7',
    'a=1,b=2',
    'a=1 , b=2',
    'fw529a3039@dt=FfA',
    'a=x y',
    'a=1,,b=2',
  ])
    expect(stateOf(state)).toBe(state)
  const members = Array.from({ length: 33 }, (_, index) => `k${index}=v`)
  expect(stateOf(members.slice(1).join())).toBe(members.slice(1).join())
  const wrong = ['', ',', 'a', 'a=', 'A=1', '=1', 'a=1=2', 'a=größe', `a=${'x'.repeat(600)}`, members.join()]
  for (const state of wrong) expect([state, stateOf(state)]).toEqual([state, null])
})

test('ids are random hex of the right length', () => {
  const ids = new Set(Array.from({ length: 5000 }, () => newTraceHex(16)))
  expect(ids.size).toBe(5000)
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{16}$/)
  expect(newTraceHex(32)).toMatch(/^[0-9a-f]{32}$/)
})
