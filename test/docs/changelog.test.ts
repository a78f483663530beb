import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from './blocks.ts'

const text = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
/** The parts of each version, without the text above the first one. */
const versions = text
  .split(/^## /m)
  .slice(1)
  .map((version) => ({
    name: version.split('\n')[0] ?? '',
    parts: version.split(/^### /m).slice(1),
  }))

/** Readers look for a kind of change in one place. Two headings with one name come from a merge. */
test('each version of the changelog has each kind of change once', () => {
  expect(versions.length).toBeGreaterThan(0)
  for (const { name, parts } of versions) {
    const kinds = parts.map((part) => part.split('\n')[0] ?? '')
    expect([name, kinds]).toEqual([name, [...new Set(kinds)]])
    for (const kind of kinds)
      expect(['Added', 'Changed', 'Deprecated', 'Removed', 'Fixed', 'Security']).toContain(kind)
  }
})

/** Two merged versions of a list describe the same change twice, in other words but with the same names. */
test('no change is listed twice', () => {
  const changes = text
    .split(/^(?=- |#|\*\*)/m)
    .filter((each) => each.startsWith('- '))
    .map((each) => each.trim())
  expect(changes.length).toBeGreaterThan(50)
  const namesOf = (change: string) => [...new Set(change.match(/`[^`]+`/g))].sort().join(' ')
  const told = Map.groupBy(changes, namesOf)
  // Many changes share a few names; three or more together belong to one change.
  const twice = [...told].filter(([names, those]) => names.split(' `').length > 2 && those.length > 1)
  expect(twice.map(([names, those]) => ({ names, times: those.length }))).toEqual([])
  expect(changes.length).toBe(new Set(changes).size)
})
