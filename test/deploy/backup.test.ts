import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '../../src/db/connect.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../support/database.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { startTestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

const SCRIPTS = join(import.meta.dir, '../../deploy/backup')
const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-scripts-'))
const target = `tollgate_test_${Math.floor(Date.now() / 1000)}_${crypto.randomUUID().slice(0, 8)}`
const urlOf = (name: string) => {
  const url = new URL(TEST_DATABASE_URL ?? '')
  url.pathname = `/${name}`
  return url.href
}

async function administer(statement: string): Promise<void> {
  const sql = connect({ kind: 'url', url: TEST_DATABASE_URL ?? '' }, { connectionsMax: 1 })
  await sql.unsafe(statement)
  await sql.end()
}

const HAS_TOOLS = ['psql', 'pg_dump', 'pg_restore'].every((name) => Bun.which(name) !== null)
const onPostgres = test.if(TEST_DATABASE_URL !== null && HAS_TOOLS)
const isHere = TEST_DATABASE_URL !== null && HAS_TOOLS
beforeAll(async () => {
  if (isHere) await administer(`create database ${target} template template0`)
})
afterAll(async () => {
  if (isHere) await administer(`drop database ${target} with (force)`)
  rmSync(folder, { recursive: true, force: true })
})

async function script(words: string[], env: Record<string, string> = {}) {
  const [name = '', ...others] = words
  const child = Bun.spawn([join(SCRIPTS, name), ...others], {
    env: { PATH: process.env.PATH ?? '', HOME: folder, TMPDIR: folder, ...env },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
  return { code: await child.exited, out, err }
}

onPostgres(
  'what was revoked after the backup stays revoked in the restored database, and a drill serves from the backup',
  async () => {
    await using database = await openTestDatabase()
    const url = database.databaseUrl ?? ''
    const file = join(folder, 'tollgate.dump')
    await using server = await startTestServer({ database })
    const workspace = await server.workspace()
    const [apiId, goneApiId] = [await makeApi(workspace), await makeApi(workspace)]
    const [kept, deleted, removed, disabled, ending] = await Promise.all(
      Array.from({ length: 5 }, () => makeKey(workspace, apiId)),
    )
    const ofApi = await makeKey(workspace, goneApiId)
    const rootKey = await workspace.rootKeyWith('*')
    expect(await script(['backup.sh', file], { DATABASE_URL: url })).toMatchObject({ code: 0, err: '' })
    const manifest = readFileSync(`${file}.manifest`, 'utf8')
    expect(manifest).toMatch(
      /^taken_at .*\nmigration \d{4}_.*\nrows workspaces 3\nrows apis \d\nrows keys 9\n/,
    )
    const takenAt = /^taken_at (.*)$/m.exec(manifest)?.[1] ?? ''

    const later = await makeKey(workspace, apiId)
    await workspace.post('keys.deleteKey', { keyId: deleted?.keyId })
    await workspace.post('keys.deleteKey', { keyId: removed?.keyId, permanent: true })
    await workspace.post('keys.updateKey', { keyId: disabled?.keyId, enabled: false })
    await workspace.post('keys.updateKey', { keyId: ending?.keyId, expires: Date.now() + 3_600_000 })
    await workspace.post('apis.deleteApi', { apiId: goneApiId })
    const { body } = await server.get('rootKeys.listRootKeys', { limit: 100 }, workspace.rootKey)
    const other = body.rootKeys.find(({ id }: { id: string }) => id !== workspace.rootKeyId)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: other.id })

    const listed = await script(['revocations.sh', takenAt], { DATABASE_URL: url })
    expect({ code: listed.code, err: listed.err }).toEqual({ code: 0, err: '' })
    const list = join(folder, 'revoked')
    writeFileSync(list, listed.out)
    expect(listed.out).toContain(`delete-key ${removed?.keyId}\n`)
    expect(listed.out).not.toContain(kept?.keyId ?? '')
    const restored = urlOf(target)
    expect(await script(['restore.sh', '--revoked-since', list, file, restored])).toMatchObject({
      code: 0,
      err: '',
    })
    expect(await script(['restore.sh', file, restored])).toMatchObject({
      code: 1,
      err: expect.stringContaining('restore into a new, empty one'),
    })

    await using after = await startTestServer({ database: { ...database, databaseUrl: restored } })
    const codeOf = async (key?: { key: string }) =>
      (await after.post('keys.verifyKey', { key: key?.key })).body.code
    expect([await codeOf(kept), await codeOf(ending)]).toEqual(['VALID', 'VALID'])
    expect(await Promise.all([deleted, removed, disabled, ofApi, later].map(codeOf))).toEqual([
      'NOT_FOUND',
      'NOT_FOUND',
      'DISABLED',
      'NOT_FOUND',
      'NOT_FOUND',
    ])
    const ends = await after.get('keys.getKey', { keyId: ending?.keyId }, workspace.rootKey)
    expect(ends.body.expires).toBeGreaterThan(0)
    expect((await after.get('apis.listApis', {}, rootKey)).status).toBe(403)
    expect((await after.get('apis.listKeys', { apiId }, workspace.rootKey)).body.total).toBe(3)

    writeFileSync(join(folder, 'key'), kept?.key ?? '')
    const drill = await script(['drill.sh', file, TEST_DATABASE_URL ?? ''], {
      TOLLGATE: `${process.execPath} ${join(import.meta.dir, '../../src/main.ts')}`,
      DRILL_KEY_FILE: join(folder, 'key'),
    })
    expect(drill).toMatchObject({ code: 0, out: expect.stringContaining('the backup works') })
    const admin = connect({ kind: 'url', url: TEST_DATABASE_URL ?? '' }, { connectionsMax: 1 })
    expect(await admin`select from pg_database where datname like 'tollgate_drill_%'`).toHaveLength(0)
    await admin.end()

    // A changed file, and a list that is none, are found before anything is restored.
    const bytes = readFileSync(file)
    writeFileSync(file, bytes.subarray(0, -1))
    expect((await script(['restore.sh', file, restored])).err).toContain('is damaged')
    writeFileSync(file, bytes)
    writeFileSync(list, 'drop-table keys\n')
    expect((await script(['restore.sh', '--revoked-since', list, file, restored])).err).toContain(
      'are not of revocations.sh',
    )
  },
)
