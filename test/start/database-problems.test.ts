import { describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Cluster, POSTGRES_BIN, startCluster } from '../support/cluster.ts'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** The error of a `serve` or `migrate` that cannot start: one line for people, exit status 1. */
async function refused(command: string, url: string): Promise<string> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-problem-'))
  const child = Bun.spawn([process.execPath, join(import.meta.dir, '../../src/main.ts'), command], {
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      DATABASE_URL: url,
      TOLLGATE_DATA_DIR: dataDir,
      PORT: '0',
    },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const { code, err } = await outcomeOf(child)
  rmSync(dataDir, { recursive: true, force: true })
  expect(code).toBe(1)
  // Warnings are separate events.
  const lines = err
    .trim()
    .split('\n')
    .filter((line) => !line.startsWith('{'))
  expect(lines).toHaveLength(1)
  return lines[0] ?? ''
}

test('a missing database ends the start with one line', async () => {
  for (const command of ['serve', 'migrate'])
    expect(await refused(command, 'postgres://u:SECRET@127.0.0.1:1/db')).toBe(
      'the database cannot be used: nothing listens at 127.0.0.1:1; start Postgres there, or correct host and port in DATABASE_URL',
    )
})

describe.if(POSTGRES_BIN !== null)('a database that cannot be used', () => {
  /** It was 30 lines of stack before. */
  test('ends the start with one line, and works after doing what the line says', async () => {
    await using cluster: Cluster = await startCluster()
    await cluster.query('create role guest login', 'postgres')
    const url = cluster.url.replace('tollgate@', 'guest@')
    for (const command of ['serve', 'migrate']) {
      const line = await refused(command, url)
      expect(line).toStartWith(
        'the database cannot be used: role guest may not create tables in schema public',
      )
    }
    // No rights, a schema of its own, and unusual settings.
    await cluster.query('revoke all on schema public from public')
    await cluster.query('create schema "My Gate" authorization guest')
    for (const setting of [
      `default_transaction_isolation = 'serializable'`,
      `statement_timeout = '3s'`,
      `bytea_output = 'escape'`,
      `TimeZone = 'Asia/Kathmandu'`,
      `search_path = ''`,
      `array_nulls = off`,
    ])
      await cluster.query(`alter role guest set ${setting}`)
    const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-problem-'))
    const env = {
      DATABASE_URL: `${url}?schema=My%20Gate&channel_binding=prefer&application_name=gate`,
      TOLLGATE_DATA_DIR: dataDir,
      TOLLGATE_FLUSH_MS: '100',
      TOLLGATE_DB_TIMEOUT_MS: '20000',
    }
    for (let start = 0; start < (IS_NIGHTLY ? 2 : 1); start++) {
      await using server = await spawnServer(env)
      const post = async (method: string, body: unknown) => {
        const answer = await server.post(method, body, OPERATOR_KEY)
        if (answer.status !== 200) throw new Error(`${method}: ${JSON.stringify(answer.body)}`)
        return answer.body
      }
      const { apiId } = await post('apis.createApi', { name: 'odd' })
      // These conflict with each other under another isolation level.
      const { key, keyId } = await post('keys.createKey', { apiId, remaining: 100 })
      const spent = await Promise.all(
        Array.from({ length: 30 }, () => post('keys.verifyKey', { key, tags: ['a'] })),
      )
      for (const answer of spent) expect(answer.valid).toBe(true)
      await Promise.all(
        Array.from({ length: 10 }, (_, i) => post('keys.updateKey', { keyId, name: `n${i}` })),
      )
      const day = { namespace: 'odd', identifier: 'x', limit: 100, duration: 86_400_000 }
      expect(await post('ratelimits.limit', day)).toMatchObject({ remaining: 99 - start })
      const { rootKey } = await post('rootKeys.createRootKey', { permissions: ['api.*.read_api'] })
      for (;;) {
        const usage = await server.get('analytics.getVerifications', { apiId, groupBy: 'tags' }, rootKey)
        expect(usage.status).toBe(200)
        if (usage.body[0]?.total === 30) break
        await Bun.sleep(50)
      }
      expect(server.output()).not.toContain('"level":"error"')
      expect(await server.end('SIGTERM')).toBe(0)
    }
    rmSync(dataDir, { recursive: true })
    const placed = await cluster.query(`select distinct schemaname from pg_tables where tableowner = 'guest'`)
    expect(placed).toEqual([{ schemaname: 'My Gate' }])
    const again = await refused('serve', url)
    expect(again).toContain('add ?schema=My%20Gate to DATABASE_URL')
  })
})
