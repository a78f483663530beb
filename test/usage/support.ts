import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Sql } from '../../src/db/connect.ts'
import type { Outcome } from '../../src/usage/recorder.ts'

/** A data dir of its own, gone afterwards. */
export function makeDataDir(): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-usage-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

export const AT = Date.UTC(2026, 10, 21, 13, 37)
export const HOUR = AT - (AT % 3_600_000)

/** One verification of `key_1` unless told otherwise. */
export const verification = (
  changes: Partial<{
    keyId: string
    identityId: string | null
    outcome: Outcome
    tags: readonly string[] | null
    atMs: number
  }> = {},
) => ({
  workspaceId: 'ws_1',
  keyspaceId: 'ks_1',
  keyId: 'key_1',
  identityId: null,
  outcome: 'VALID' as const,
  tags: null,
  atMs: AT,
  ...changes,
})

export const ratelimit = (
  changes: Partial<{ namespaceId: string; identifier: string; passed: boolean; atMs: number }> = {},
) => ({
  workspaceId: 'ws_1',
  namespaceId: 'rlns_1',
  identifier: 'user_1',
  passed: true,
  atMs: AT,
  ...changes,
})

/** What the database holds for a key: valid verifications by hour. */
export async function validByHour(sql: Sql, keyId: string): Promise<Record<number, number>> {
  const rows = await sql<{ hour: number; valid: number }[]>`
    select hour, sum(valid)::bigint as valid from usage_verifications where key_id = ${keyId} group by hour`
  return Object.fromEntries(rows.map(({ hour, valid }) => [hour, valid]))
}
