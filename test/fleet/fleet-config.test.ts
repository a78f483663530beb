import { expect, test } from 'bun:test'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { configProblems, readConfig, settingsOf } from '../../src/config.ts'

const DATABASE_URL = 'postgres://db/tollgate'
const messageOf = (environment: Record<string, string>) => {
  try {
    readConfig(environment)
    return 'it is accepted'
  } catch (cause) {
    return cause instanceof Error ? cause.message : String(cause)
  }
}

test('without TOLLGATE_FLEET there is no fleet, whatever its other variables say', () => {
  expect(readConfig({ DATABASE_URL }).fleet).toBeNull()
  expect(readConfig({ DATABASE_URL, TOLLGATE_FLEET: '', TOLLGATE_FLEET_REPLICAS: '2' }).fleet).toBeNull()
})

test('TOLLGATE_FLEET and its variables are read, and defaults are those of the documentation', () => {
  expect(readConfig({ DATABASE_URL, TOLLGATE_FLEET: 'postgres' }).fleet).toEqual({
    address: { kind: 'postgres' },
    timeoutMs: 200,
    leaseMs: 250,
    outage: 'share',
    replicas: 0,
  })
  const set = readConfig({
    DATABASE_URL,
    TOLLGATE_FLEET: 'redis://:pw@cache',
    TOLLGATE_FLEET_TIMEOUT_MS: '1000',
    TOLLGATE_FLEET_LEASE_MS: '0',
    TOLLGATE_FLEET_OUTAGE: 'refuse',
    TOLLGATE_FLEET_REPLICAS: '1',
  }).fleet
  expect(set).toMatchObject({ timeoutMs: 1000, leaseMs: 0, outage: 'refuse', replicas: 1 })
  expect(set?.address).toMatchObject({ kind: 'redis', password: 'pw' })
})

test('what cannot be is refused with the variable and what it must be, without the password', () => {
  expect(messageOf({ TOLLGATE_FLEET: 'postgres' })).toContain(
    'TOLLGATE_FLEET is set, but DATABASE_URL is not',
  )
  expect(messageOf({ DATABASE_URL, TOLLGATE_FLEET: 'http://:hunter2@x' })).toStartWith(
    'TOLLGATE_FLEET must be postgres',
  )
  expect(messageOf({ DATABASE_URL, TOLLGATE_FLEET: 'redis://:hunter2@x:99999' })).toContain('has port 99999')
  expect(messageOf({ DATABASE_URL, TOLLGATE_FLEET: 'postgres', TOLLGATE_FLEET_REPLICAS: '1' })).toContain(
    'TOLLGATE_FLEET_REPLICAS is "1"; it must be 0',
  )
  expect(messageOf({ TOLLGATE_FLEET_OUTAGE: 'close' })).toContain('must be one of share, refuse, open')
  expect(messageOf({ TOLLGATE_FLEET_TIMEOUT_MS: '2000' })).toContain('a whole number from 20 to 1000')
  for (const TOLLGATE_FLEET of ['http://:hunter2@x', 'redis://:hunter2@x:99999', 'redis://:hunter2@a,b'])
    expect(JSON.stringify(configProblems({ DATABASE_URL, TOLLGATE_FLEET }))).not.toContain('hunter2')
})

test('the URL can stand in a file, and is shown without user and password', () => {
  const path = join(mkdtempSync(join(tmpdir(), 'tollgate-test-')), 'fleet')
  writeFileSync(path, 'rediss://me:hunter2@cache:6380/2\n')
  const environment = { DATABASE_URL, TOLLGATE_FLEET_FILE: path }
  expect(readConfig(environment).fleet?.address).toMatchObject({ hasTls: true, password: 'hunter2' })
  const shown = settingsOf(environment)
  expect(shown.find(({ name }) => name === 'TOLLGATE_FLEET')).toMatchObject({
    value: 'rediss://cache:6380/2',
    source: 'file',
    path,
  })
  const wrong = settingsOf({ DATABASE_URL, TOLLGATE_FLEET: 'redis://me:hunter2@a,b?x=hunter2' })
  expect(wrong.find(({ name }) => name === 'TOLLGATE_FLEET')?.value).toBe('***')
  expect(JSON.stringify([shown, wrong])).not.toContain('hunter2')
})
