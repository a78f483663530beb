import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Browser, Page } from 'playwright-core'
import { CHROMIUM, looksAt, SIZES, startBrowser } from '../../support/browser.ts'
import { openTestDatabase, type TestDatabase } from '../../support/database.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { OPERATOR_KEY, startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** What an operator sees of servers, in a real browser: two on one database, which share their limits. */

setDefaultTimeout(2 * SLOW_MS)

let database: TestDatabase
let server: TestServer
let other: TestServer | null = null
let browser: Browser
let page: Page
const complaints: string[] = []
beforeAll(async () => {
  if (CHROMIUM === null) return
  ;[database, browser] = await Promise.all([openTestDatabase(), startBrowser()])
  if (database.databaseUrl === null) return // the embedded database has one server
  const env = { TOLLGATE_FLEET: 'postgres', TOLLGATE_SLOW_MS: '4321' }
  server = await startTestServer({ database, env })
  other = await startTestServer({ database: { ...database, dataDir: `${database.dataDir}-2` }, env })
  page = await (await browser.newContext({ viewport: SIZES.wide, acceptDownloads: true })).newPage()
  page.on('pageerror', (cause) => complaints.push(`error: ${cause.message}`))
})
afterAll(async () => {
  await browser?.close()
  await Promise.all([server, other].map((each) => each?.[Symbol.asyncDispose]()))
  if (database === undefined) return
  rmSync(`${database.dataDir}-2`, { recursive: true, force: true })
  await database[Symbol.asyncDispose]()
})

async function open(workspaceId: string, screen: string, rootKey: string): Promise<void> {
  await page.context().clearCookies()
  await page.goto(`${server.url}/dashboard/w/${workspaceId}/${screen}`)
  await page.getByLabel('Root key').fill(rootKey)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { level: 1, name: /^(?!Sign in)/ }).waitFor()
}
const operator = async () => (await server.get('rootKeys.whoami', {}, OPERATOR_KEY)).body.workspaceId
const panel = (name: string) => page.getByRole('region', { name, exact: true })

describe.skipIf(CHROMIUM === null)('in a browser', () => {
  test('the server page has three hours by method, the servers of the database, and the settings without secrets', async () => {
    if (other === null) return
    const workspace = await server.workspace()
    await open(await operator(), 'server', OPERATOR_KEY)
    await panel('Last three hours').getByText('The first minute is not over yet.').waitFor()
    const limit = { namespace: 'a', identifier: 'b', limit: 5, duration: 60_000 }
    for (let index = 0; index < 10; index++) await workspace.post('ratelimits.limit', limit)
    await server.server.history.sample()
    await server.server.history.sample()
    await page.reload()
    const charts = panel('Last three hours')
    await charts.getByText('Calls a second').waitFor()
    await charts.getByLabel('Calls of').selectOption('/v1/ratelimits.limit')
    await page.waitForURL(/method=%2Fv1%2Fratelimits.limit/)
    // By keyboard: the minute before the last had the calls.
    const slider = charts.getByRole('slider')
    await slider.focus()
    await page.keyboard.press('ArrowLeft')
    expect(await slider.getAttribute('aria-valuetext')).toMatch(
      /Calls a second (?!0\.0)\d+(\.\d)?; Calls took at most \d/,
    )
    await page.keyboard.press('ArrowRight')
    expect(await slider.getAttribute('aria-valuetext')).toContain(
      'Calls a second 0.0; Calls took at most –, –',
    )
    await charts.getByRole('button', { name: 'Show as table' }).click()
    expect(await charts.getByRole('row').count()).toBe(3)

    const servers = panel('Servers on this database')
    await servers.getByRole('row').nth(5).waitFor()
    const rows = await servers.getByRole('row').allTextContents()
    expect(rows.filter((text) => text.startsWith(hostname()))).toHaveLength(4)
    expect(rows.filter((text) => text.includes('answers'))).toHaveLength(2)
    for (const each of [server, other]) await servers.getByText(each.server.deps.self.nodeId).waitFor()

    const settings = panel('Settings')
    await settings.getByRole('row', { name: /TOLLGATE_SLOW_MS 4321 environment/ }).waitFor()
    expect(await settings.textContent()).not.toContain(OPERATOR_KEY)
    expect(await settings.getByText('TOLLGATE_WINDOW_DAYS_MAX').count()).toBe(0)
    await settings.getByLabel('Defaults too').check()
    await settings.getByText('TOLLGATE_WINDOW_DAYS_MAX').waitFor()
    const { look, wrong } = looksAt(page)
    await look('server')
    expect(wrong).toEqual([])
    await page.setViewportSize(SIZES.wide)
    expect(complaints).toEqual([])
  })

  test('live views name the server whose memory they show, with its host for operators alone', async () => {
    if (other === null) return
    const { nodeId } = server.server.deps.self
    await open(await operator(), 'live', OPERATOR_KEY)
    await page
      .getByText(`${hostname()}, ${nodeId}, one of 2 servers: the others remember their own`)
      .waitFor()
    const workspace = await server.workspace()
    await open(workspace.workspaceId, 'live', workspace.rootKey)
    await page.getByText(`From the memory of ${nodeId}, one of 2 servers`).waitFor()
    await page.goto(`${server.url}/dashboard/w/${workspace.workspaceId}/why?request=req_nothing`)
    await page.getByText(`in the memory of ${nodeId}, one of 2 servers`).waitFor()
    expect(complaints).toEqual([])
  })

  /** Asks again while a busy machine lets the server be late. */
  const untilSays = async (nodeId: string, wanted: RegExp) => {
    const answer = page.getByRole('status').getByRole('listitem').filter({ hasText: nodeId })
    for (;;) {
      await answer.waitFor()
      const text = (await answer.textContent()) ?? ''
      if (wanted.test(text)) return
      if (text.includes('has not answered'))
        await page.getByRole('button', { name: 'Ask the other servers again' }).click()
      await Bun.sleep(50)
    }
  }

  test('after a key is disabled or deleted its page says what each other server answers about it', async () => {
    if (other === null) return
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace))
    await open(workspace.workspaceId, `keys/${keyId}`, workspace.rootKey)
    const { nodeId, keys } = { ...other.server.deps, ...other.server.deps.self }
    const said = page.getByRole('status').filter({ hasText: 'other server' })

    // A server that has not heard of the change is not hidden.
    const [row] = await server.server.deps.sql<{ hash: string }[]>`select hash from keys where id = ${keyId}`
    const before = await keys.findByHash(row?.hash ?? '')
    const { findByHash } = keys
    keys.findByHash = (hash) => (hash === row?.hash ? before : findByHash.call(keys, hash))
    await page.getByRole('button', { name: 'Disable', exact: true }).click()
    await said.getByText(/refused, DISABLED, seen \d+ ms later\./).waitFor()
    await said.getByText('That is this server. 0 of 1 other server refuse it:').waitFor()
    await untilSays(nodeId, /^node_\w+ still accepts it, VALID, answered in \d+ ms$/)
    const { look, wrong } = looksAt(page)
    await look('one still accepts it')
    await page.setViewportSize(SIZES.wide)
    keys.findByHash = findByHash
    await said.getByRole('button', { name: 'Ask the other servers again' }).click()
    await untilSays(nodeId, / refuses it, DISABLED, answered in \d+ ms$/)
    await said.getByText('1 of 1 other server refuses it:').waitFor()
    expect(await said.getByRole('button').count()).toBe(0)

    await server.server.deps.sql`
      insert into servers (node_id, host, version, seen_at)
      values ('node_frozen', 'far away', '0.2.0', floor(extract(epoch from clock_timestamp()) * 1000) + 600000)`
    await page.getByRole('button', { name: 'Delete…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('button', { name: 'Delete key' }).click()
    await said.getByText('The key is deleted, and refused as NOT_FOUND.').waitFor()
    await untilSays(nodeId, / refuses it, NOT_FOUND, answered in \d+ ms$/)
    await said.getByText('1 of 2 other servers refuses it:').waitFor()
    await said
      .getByText(
        'node_frozen has not answered. It may still accept the key for up to 10 s, longer only while',
      )
      .waitFor()
    await look('one has not answered')
    expect(wrong).toEqual([])
    await page.setViewportSize(SIZES.wide)
    await server.server.deps.sql`delete from servers where node_id = 'node_frozen'`
    expect(complaints).toEqual([])
  })

  test('after a root key is disabled or deleted the page says what every server answers about it', async () => {
    if (other === null) return
    const workspace = await server.workspace()
    const name = 'billing service'
    const made = await workspace.post('rootKeys.createRootKey', { name, permissions: ['api.*.read_key'] })
    expect((await other.get('rootKeys.whoami', {}, made.rootKey)).status).toBe(200)
    await open(workspace.workspaceId, 'root-keys', workspace.rootKey)
    const said = page.getByRole('status').filter({ hasText: name })
    const row = page.getByRole('row').filter({ hasText: name })
    await row.getByRole('button', { name: 'Disable' }).click()
    await said.getByText(`${name} is disabled.`).waitFor()
    await said.getByText('This server refuses it, DISABLED.').waitFor()
    await untilSays(other.server.deps.self.nodeId, / refuses it, DISABLED, answered in \d+ ms$/)
    await said.getByText(/1 of 1 other server refuses it:/).waitFor()
    expect((await other.get('rootKeys.whoami', {}, made.rootKey)).status).toBe(403)
    await row.getByRole('button', { name: 'Delete…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel(/^Type/).fill(name)
    await dialog.getByRole('button', { name: 'Delete root key' }).click()
    await said.getByText(`${name} is deleted.`).waitFor()
    await untilSays(other.server.deps.self.nodeId, / refuses it, NOT_FOUND, answered in \d+ ms$/)
    expect(complaints).toEqual([])
  })
})
