import { expect, test } from 'bun:test'
import { BOUND_NAMES, isBoundName, WORKSPACE_BOUNDS } from '../../src/lib/workspace-bounds.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { DOCS } from './blocks.ts'

const guide = DOCS.bounds ?? ''
/** Name and default of each bound. */
const rows = [...guide.matchAll(/^\| `(\w+)` \| (\d+) \| (.+) \| (.+) \|$/gm)]

test('the guide has a row for every bound with its default, in the same order, and no other row', () => {
  expect(rows.map(([, name, value]) => [name, Number(value)])).toEqual(
    BOUND_NAMES.map((name) => [name, WORKSPACE_BOUNDS[name].value]),
  )
})

/** A description has the errors of a call, and reaching a bound is one. */
test('every method that the guide says creates something is described with 412', () => {
  const refusing = rows.filter(([, name = '']) => isBoundName(name) && WORKSPACE_BOUNDS[name].refuses)
  const named = refusing.flatMap(([, , , , makers = '']) =>
    [...makers.matchAll(/`(\w+\.\w+)`/g)].map(([, method = '']) => method),
  )
  expect(named.length).toBeGreaterThan(10)
  for (const method of named) {
    const paths = [`/v1/${method}`, `/v2/${method.replace(/^ratelimits/, 'ratelimit')}`]
    const described = allEndpoints.filter(({ path }) => paths.includes(path))
    expect(described.length).toBeGreaterThan(0)
    for (const { path, errors } of described)
      expect([path, errors.includes('PRECONDITION_FAILED')]).toEqual([path, true])
  }
})
