import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { rmSync } from 'node:fs'
import { hostname } from 'node:os'
import type { Browser, Page } from 'playwright-core'
import { CHROMIUM, eachLook, SIZES, startBrowser, violationsOf } from '../../support/browser.ts'
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
      /Calls a second [1-9]\d*(\.\d)?; Calls took at most \d/,
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
    await eachLook(page, async (name) => expect([name, await violationsOf(page)]).toEqual([name, []]))
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

  test('after a key is disabled its page says what this server answers and when the others hear of it, and they do', async () => {
    if (other === null) return
    const workspace = await server.workspace()
    const { key, keyId } = await makeKey(workspace, await makeApi(workspace))
    expect((await other.post('keys.verifyKey', { key })).body.valid).toBe(true) // cached there
    await open(workspace.workspaceId, `keys/${keyId}`, workspace.rootKey)
    await page.getByRole('button', { name: 'Disable', exact: true }).click()
    await page
      .getByText(
        /refused, DISABLED, seen \d+ ms later\. That is this server; 1 other on the database hears of it/,
      )
      .waitFor()
    while ((await other.post('keys.verifyKey', { key })).body.code !== 'DISABLED') await Bun.sleep(10)
    expect(complaints).toEqual([])
  })
})
