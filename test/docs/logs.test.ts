import { expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { LOG_EVENTS } from '../../src/log-events.ts'
import { DOCS, ROOT } from './blocks.ts'

/** The compiler refuses an event that is not in `LOG_EVENTS`, or has another level. */
test('the page of log events has a row for every event with its level, in the same order, and no other row', () => {
  const rows = [...(DOCS.logs ?? '').matchAll(/^\| `(\w+)` \| (\w+) \| \S.* \| \S.* \|$/gm)]
  expect(rows.map(([, event, level]) => [event, level])).toEqual(
    Object.entries<string>(LOG_EVENTS).map(([event, level]) => [event, level]),
  )
  for (const event of Object.keys(LOG_EVENTS)) expect(event).toMatch(/^[a-z]+(_[a-z]+)*$/)
})

test('every event of the table is logged somewhere in the code', () => {
  const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  const source = files
    .filter((file) => file.endsWith('.ts') && file !== 'log-events.ts')
    .map((file) => readFileSync(join(ROOT, 'src', file), 'utf8'))
    .join('\n')
  expect(Object.keys(LOG_EVENTS).filter((event) => !source.includes(`'${event}'`))).toEqual([])
})
