import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hashKey } from '../../src/verify/secret.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { type ServerProcess, spawnServer } from '../support/process.ts'
import { OPERATOR_KEY } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(2 * SLOW_MS)

let database: TestDatabase
let folder: string
beforeAll(async () => {
  database = await openTestDatabase()
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-import-'))
})
afterAll(async () => {
  rmSync(folder, { recursive: true })
  await database[Symbol.asyncDispose]()
})

/** Works because a server answers calls of an import only after the keys are written; see createKeys. */
test('an import whose server and own process are killed -9 in the middle neither loses nor doubles a key', async () => {
  const count = 8000
  const path = join(folder, 'keys.ndjson')
  const keys = Array.from({ length: count }, (_, index) => `killed-${index}`)
  writeFileSync(
    path,
    keys
      .map((key, index) =>
        JSON.stringify({ hash: { value: hashKey(key), variant: 'sha256_base64' }, meta: { index } }),
      )
      .join('\n'),
  )
  const start = (port: string) =>
    spawnServer({
      PORT: port,
      DATABASE_URL: database.databaseUrl ?? '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_HTTP_THREADS: '1',
    })
  const first = await start('0')
  const { url } = first
  const { apiId } = (await first.post('apis.createApi', { name: 'moved in' }, OPERATOR_KEY)).body
  const totalAt = async (server: ServerProcess): Promise<number> =>
    (await server.get('apis.listKeys', { apiId, limit: 1 }, OPERATOR_KEY)).body.total
  const importing = () =>
    Bun.spawn(
      [process.execPath, `${import.meta.dir}/../../src/main.ts`, 'import', path, '--api', apiId, '--json'],
      {
        env: { PATH: process.env.PATH ?? '', TOLLGATE_URL: url, TOLLGATE_ROOT_KEY: OPERATOR_KEY },
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
      },
    )

  // First the server is killed. The import waits for the next one on the same port and continues.
  const patient = importing()
  while ((await totalAt(first)) < 500) await Bun.sleep(10)
  await first.end('SIGKILL')
  expect(patient.exitCode).toBeNull()
  await using second = await start(new URL(url).port)
  const written = await totalAt(second)
  expect(written).toBeWithin(500, count)

  // Then the import itself is killed after it has continued. Starting it again finishes it.
  const lineOf = () => JSON.parse(readFileSync(`${path}.progress`, 'utf8')).line
  // Keys written later may be answered before calls that were in flight when the server died.
  while (patient.exitCode === null && ((await totalAt(second)) <= written || lineOf() === 0))
    await Bun.sleep(10)
  patient.kill('SIGKILL')
  await patient.exited
  expect(lineOf()).toBeWithin(1, count)

  const last = importing()
  const [out, err] = await Promise.all([new Response(last.stdout).text(), new Response(last.stderr).text()])
  expect({ code: await last.exited, err }).toEqual({ code: 0, err: '' })
  const { imported, existing, refused } = JSON.parse(out)
  expect([imported + existing, refused]).toEqual([count, 0])
  expect(await totalAt(second)).toBe(count)
  // Each key exists once, with its own id.
  const seen = new Set<string>()
  for (let index = 0; index < count; index += 97) {
    const { body } = await second.post('keys.verifyKey', { key: keys[index] })
    expect(body).toMatchObject({ valid: true, meta: { index } })
    seen.add(body.keyId)
  }
  expect(seen.size).toBe(Math.ceil(count / 97))
  expect([existsSync(`${path}.progress`), existsSync(`${path}.refused`)]).toEqual([false, false])
})
