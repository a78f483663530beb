import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../src/db/connect.ts'
import { startTarget, type Target } from './target.ts'

export const ROOT_KEY = 'tollgate_bench_operator_key'
export const HEADERS = { 'Content-Type': 'application/json', Authorization: `Bearer ${ROOT_KEY}` }
export const LIMIT_PATH = '/v1/ratelimits.limit'
export const MULTI_LIMIT_PATH = '/v1/ratelimits.multiLimit'
export const VERIFY_PATH = '/v1/keys.verifyKey'
export const V2_LIMIT_PATH = '/v2/ratelimit.limit'
export const V2_VERIFY_PATH = '/v2/keys.verifyKey'
/** So long that no run sees it end. */
export const DURATION_MS = 86_400_000 * 365
export const LIMIT_MAX = 2_000_000_000

/** The Postgres a benchmark may use: it makes databases of its own there. Undefined = the embedded database. */
export const databaseServer = process.env.DATABASE_URL ?? process.env.TEST_DATABASE_URL

/** One body of `ratelimits.limit` for each of so many windows: of as many identifiers, or of fewer with several limits. */
export const limitsOf = (windows: number, prefix = 'user_', identifiers = windows) =>
  Array.from({ length: windows }, (_, i) => ({
    namespace: 'bench',
    identifier: `${prefix}${i % identifiers}`,
    limit: LIMIT_MAX - Math.floor(i / identifiers),
    duration: DURATION_MS,
  }))

/** A whole server in a process of its own, with one HTTP thread, on a fresh database. Its shard is where one core has it. */
export async function startTollgate(
  name: string,
  env: Record<string, string> = {},
  script = 'src/main.ts',
  options: { isPinned?: boolean } = {},
): Promise<Target & { databaseUrl: string | null }> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-bench-'))
  const database = databaseServer === undefined ? null : await makeDatabase(databaseServer)
  const variables = {
    PORT: '0',
    TOLLGATE_DATA_DIR: dataDir,
    TOLLGATE_ROOT_KEY: ROOT_KEY,
    TOLLGATE_HTTP_THREADS: '1',
    // A crowded machine is slow to read many keys, and this measures no refusals.
    TOLLGATE_DB_TIMEOUT_MS: '60000',
    ...(database === null ? {} : { DATABASE_URL: database.url }),
    ...env,
  }
  const target = await startTarget(name, [script, 'serve'], variables, process.execPath, options)
  return {
    ...target,
    databaseUrl: database?.url ?? null,
    [Symbol.asyncDispose]: async () => {
      await target[Symbol.asyncDispose]()
      await database?.drop()
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

async function makeDatabase(server: string) {
  const sql = connect({ kind: 'url', url: server }, { connectionsMax: 1 })
  const name = `tollgate_bench_${crypto.randomUUID().slice(0, 8)}`
  await sql.unsafe(`create database ${name}`)
  const url = new URL(server)
  url.pathname = `/${name}`
  return {
    url: url.href,
    drop: async () => {
      await sql.unsafe(`drop database ${name} with (force)`)
      await sql.end({ timeout: 2 })
    },
  }
}

/** The samples of a metric, whatever their labels. */
export async function metricOf(url: string, name: string): Promise<number[]> {
  const text = await (await fetch(`${url}/metrics`)).text()
  const samples = text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))
  return Array.from(samples, (match) => Number(match[1]))
}

type Answer = Record<string, string> & {
  remaining: number
  success: boolean
  ratelimit: { remaining: number }
  data: { remaining: number }
}

/** One call outside of the load. @throws when it is no 200. */
export async function call(url: string, path: string, body: unknown): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: HEADERS,
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`)
  return (await response.json()) as Answer // of the verbs a benchmark asks
}

/** How many tokens the windows have counted, asked with cost 0. */
export async function countedByLimits(url: string, bodies: { limit: number }[]): Promise<number> {
  let counted = 0
  for (let from = 0; from < bodies.length; from += 1000) {
    const looks = bodies.slice(from, from + 1000).map((body) => ({ ...body, cost: 0 }))
    const windows = (await call(url, MULTI_LIMIT_PATH, looks)) as unknown as { remaining: number }[] // one for each
    for (const [i, { limit }] of looks.entries()) counted += limit - (windows[i]?.remaining ?? 0)
  }
  return counted
}
