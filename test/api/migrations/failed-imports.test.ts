import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { refusalOf } from '../../support/fixtures.ts'
import { giveUpImports } from '../../support/imports.ts'
import { type Json, startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Enqueued keys that were given up: seen, tried again, removed. */

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

const list = (workspace: TestWorkspace, query: object = {}): Promise<Json> =>
  workspace.get('migrations.listImports', { ...query })
const isValid = async (key: string) => (await server.post('keys.verifyKey', { key })).body.valid

test('what was given up is listed with its reason, queued again and then imported, or removed for good', async () => {
  const workspace = await server.workspace()
  const texts = ['first_1', 'second_2', 'third_3'].map((text) => `${text}_${crypto.randomUUID()}`)
  const ids = await giveUpImports(server, workspace, texts)
  const { imports, ...counts } = await list(workspace)
  expect(counts).toEqual({ waiting: 0, failed: 3 })
  expect(imports.map(({ id }: Json) => id)).toEqual(ids)
  expect(imports[0]).toEqual({
    id: ids[0],
    migrationId: 'old system',
    apiId: expect.stringMatching(/^api_/),
    keyId: expect.stringMatching(/^key_/),
    start: texts[0]?.slice(0, 4),
    name: texts[0],
    reason: expect.stringContaining('editor'),
    attempts: 11,
    enqueuedAt: expect.any(Number),
    failedAt: expect.any(Number),
  })
  const page = await list(workspace, { limit: 2 })
  expect(page.imports.map(({ id }: Json) => id)).toEqual(ids.slice(0, 2))
  expect((await list(workspace, { limit: 2, cursor: page.cursor })).imports).toMatchObject([{ id: ids[2] }])

  await workspace.post('permissions.createRole', { name: 'editor' })
  const retried = await workspace.post('migrations.retryImports', { importIds: [ids[0], ids[1], '1'] })
  expect(retried).toEqual({ retried: 2 })
  const discarded = await workspace.post('migrations.discardImports', { importIds: [ids[2]] })
  expect(discarded).toEqual({ discarded: 1 })
  for (const text of texts.slice(0, 2)) while (!(await isValid(text))) await Bun.sleep(10)
  expect(await isValid(texts[2] ?? '')).toBe(false)
  expect(await list(workspace)).toEqual({ imports: [], waiting: 0, failed: 0 })
  const { events } = await workspace.get('audit.listEvents', { resourceId: imports[0].keyId })
  expect(events.map(({ event }: Json) => event).slice(0, 2)).toEqual(['import.retry', 'key.create'])
  const discards = await workspace.get('audit.listEvents', { event: 'import.discard' })
  expect(discards.events[0].resources).toEqual([
    { type: 'import', id: imports[2].keyId, meta: { importId: ids[2], migrationId: 'old system' } },
  ])
})

test('another workspace sees and touches none of it, and ids are checked', async () => {
  const [mine, theirs] = [await server.workspace(), await server.workspace()]
  const [id] = await giveUpImports(server, theirs, [`foreign_${crypto.randomUUID()}`])
  expect(await list(mine)).toEqual({ imports: [], waiting: 0, failed: 0 })
  expect(await mine.post('migrations.retryImports', { importIds: [id] })).toEqual({ retried: 0 })
  expect(await mine.post('migrations.discardImports', { importIds: [id] })).toEqual({ discarded: 0 })
  expect((await list(theirs)).failed).toBe(1)
  for (const importIds of [[], ['x'], ['-1'], ['9'.repeat(19)], Array.from({ length: 101 }, String)])
    expect(
      refusalOf(await server.post('migrations.retryImports', { importIds }, mine.rootKey)),
    ).toMatchObject({ status: 400, code: 'BAD_REQUEST' })
  const cursor = await server.get('migrations.listImports', { cursor: 'key_1' }, mine.rootKey)
  expect(cursor.status).toBe(400)
})
