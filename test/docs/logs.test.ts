import { expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { LOG_EVENTS } from '../../src/log-events.ts'
import { docPage } from '../../src/pages/docs.ts'
import { openApiDocument } from '../../src/pages/openapi.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { ROOT } from './blocks.ts'

const EVENTS = Object.entries(LOG_EVENTS)

/** The compiler refuses an event that is not in `LOG_EVENTS`, or has another level. */
test('every event has a name to alert on, and says in full sentences what it means and what to do', () => {
  for (const [event, { about, remedy }] of EVENTS) {
    expect(event).toMatch(/^[a-z]+(_[a-z]+)*$/)
    for (const text of [about, remedy])
      expect([event, text]).toEqual([event, expect.stringMatching(/^\S.*\.$/)])
  }
})

test('every event of the table is logged somewhere in the code', () => {
  const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  const source = files
    .filter((file) => file.endsWith('.ts') && file !== 'log-events.ts')
    .map((file) => readFileSync(join(ROOT, 'src', file), 'utf8'))
    .join('\n')
  expect(Object.keys(LOG_EVENTS).filter((event) => !source.includes(`'${event}'`))).toEqual([])
})

/** Alerts link to it. */
test('the runbook has a section for each warning and each error, at the name of the event', () => {
  const page = docPage('runbook', openApiDocument(allEndpoints, 'http://127.0.0.1:3000')) ?? ''
  const sections = [...page.matchAll(/<h3 id="([a-z_]+)"><a href="#([a-z_]+)"><code>([a-z_]+)<\/code>/g)]
  for (const [, ...names] of sections) expect(new Set(names).size).toBe(1)
  const alarming = EVENTS.filter(([, { level }]) => level === 'warn' || level === 'error')
  expect(alarming.length).toBeGreaterThan(40)
  expect(sections.map(([, id]) => id)).toEqual(alarming.map(([event]) => event))
})
