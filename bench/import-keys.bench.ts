import { hashKey } from '../src/verify/secret.ts'
import { openTestDatabase } from '../test/support/database.ts'
import { callsTo, OPERATOR_KEY } from '../test/support/server.ts'
import { machine, printTable } from './support/table.ts'
import { startTarget } from './support/target.ts'

/**
 * Moving keys in: `migrations.createKeys` with a hundred hashed keys a call, against a server in a process of its own,
 * then every one of them verified. Claim: 4 000 keys a second or more on a real Postgres, even on two cores that are
 * busy with other things.
 *
 * The database is TEST_DATABASE_URL's, else the server's embedded one. A call that fails, or a key that does not verify
 * as itself, is an error.
 */
export async function run({ tiny = false }: { tiny?: boolean } = {}): Promise<void> {
  const calls = tiny ? 5 : 1000
  await using database = await openTestDatabase()
  const kind = database.databaseUrl === null ? 'embedded database' : 'Postgres'
  console.log(
    `import-keys: ${machine()}, ${kind}, ${calls} calls of ${KEYS_PER_CALL} keys, ${CALLERS} at once`,
  )
  await using target = await startTarget('tollgate', ['src/main.ts', 'serve'], {
    PORT: '0',
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    // A crowded machine is slow to read many keys, and this measures no refusals.
    TOLLGATE_DB_TIMEOUT_MS: '60000',
  })
  const { post } = callsTo(target.url)
  const { apiId } = (await post('apis.createApi', { name: 'moved in' }, OPERATOR_KEY)).body

  const texts = Array.from({ length: calls * KEYS_PER_CALL }, () => `old_${crypto.randomUUID()}`)
  const keyIds: string[] = []
  const imported = await inParallel(calls, async (call) => {
    const from = call * KEYS_PER_CALL
    const elements = texts.slice(from, from + KEYS_PER_CALL).map((text, index) => ({
      apiId,
      hash: { value: hashKey(text), variant: 'sha256_base64' },
      start: text.slice(0, 8),
      name: `key ${from + index}`,
      meta: { plan: 'free', seats: index },
      externalId: `customer_${Math.floor((from + index) / 10)}`,
      ratelimit: { limit: 100, refillRate: 100, refillInterval: 60_000 },
    }))
    const { status, body } = await post('migrations.createKeys', elements, OPERATOR_KEY)
    if (status !== 200) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
    for (const [index, keyId] of body.keyIds.entries()) keyIds[from + index] = keyId
  })
  const verified = await inParallel(texts.length, async (index) => {
    const { body } = await post('keys.verifyKey', { key: texts[index], apiId })
    const isItself = body.keyId === keyIds[index] && body.meta?.seats === index % KEYS_PER_CALL
    if (!body.valid || !isItself) throw new Error(`key ${index}: ${JSON.stringify(body)}`)
  })
  const seconds = (ms: number) => (ms / 1000).toFixed(1)
  printTable(
    ['', 'seconds', 'keys/s', 'p50 ms a call', 'p99 ms a call'],
    [imported, verified].map(({ tookMs, callMs }, row) => [
      row === 0 ? 'imported' : 'verified, each once',
      seconds(tookMs),
      (texts.length / tookMs) * 1000,
      percentile(callMs, 0.5),
      percentile(callMs, 0.99),
    ]),
  )
  console.log(
    `  server: ${target.memoryMib().toFixed(0)} MiB, ${seconds(target.cpuMicroseconds() / 1000)} s of processor time`,
  )
}

const KEYS_PER_CALL = 100
const CALLERS = 4

/** Each index once, by {@link CALLERS} callers that take the next one when theirs is answered. */
async function inParallel(
  count: number,
  work: (index: number) => Promise<void>,
): Promise<{ tookMs: number; callMs: number[] }> {
  const callMs: number[] = []
  let next = 0
  const startedAt = performance.now()
  const caller = async () => {
    while (next < count) {
      const before = performance.now()
      await work(next++)
      callMs.push(performance.now() - before)
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return { tookMs: performance.now() - startedAt, callMs }
}

const percentile = (values: number[], share: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN
