import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Browser, Locator, Page } from 'playwright-core'
import { hashKey } from '../../../src/verify/secret.ts'
import { CHROMIUM, looksAt, SIZES, startBrowser } from '../../support/browser.ts'
import { makeApi } from '../../support/fixtures.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Keys from a file, in a real browser: done in the page, proven by the API. */

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let browser: Browser
let page: Page
const complaints: string[] = []
beforeAll(async () => {
  if (CHROMIUM === null) return
  ;[server, browser] = await Promise.all([startTestServer(), startBrowser()])
  const context = await browser.newContext({ viewport: SIZES.wide, acceptDownloads: true })
  page = await context.newPage()
  page.on('pageerror', (cause) => complaints.push(`error: ${cause.message}`))
})
afterAll(async () => {
  await browser?.close()
  await server?.[Symbol.asyncDispose]()
})

async function open(workspace: TestWorkspace, rootKey = workspace.rootKey): Promise<void> {
  await page.unrouteAll()
  await page.context().clearCookies()
  await page.goto(`${server.url}/dashboard/w/${workspace.workspaceId}/imports`)
  await page.getByLabel('Root key').fill(rootKey)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { level: 1, name: 'Imports' }).waitFor()
}
const click = (name: string | RegExp, within: Page | Locator = page) =>
  within.getByRole('button', { name, exact: true }).first().click()
const choose = (name: string, text: string) =>
  page
    .getByLabel('File', { exact: true })
    .setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from(text) })
const figure = async (name: string) =>
  (await page.locator('.figures div', { hasText: name }).locator('dd').first().textContent())?.replace(
    /\s/g,
    '',
  )
const figures = () => Promise.all(['imported', 'existed already', 'refused'].map(figure))
const totalOf = async (workspace: TestWorkspace, apiId: string): Promise<number> =>
  (await workspace.get('apis.listKeys', { apiId, limit: 1 })).total
const ended = () => page.getByText('Imported', { exact: true }).waitFor()

/** A CSV of a spreadsheet, with columns of its own names. */
const ROWS = [
  'Token hash,Customer,Note,Label',
  `${hashKey('first')},"user ""1"",\r\nabroad",internal,"=SUM(A1)"`,
  `${hashKey('second').replace(/=$/, '')},user_2,,second`,
  'tooshort,user_3,,third',
  'a,b',
  `${hashKey('fifth')},user_5,,${'x'.repeat(300)}`,
]
const CSV = `\ufeff${ROWS.join('\r\n')}\r\n`

describe.skipIf(CHROMIUM === null)('in a browser', () => {
  test('a CSV is mapped, checked without a change, imported, and its refused lines are saved as they are', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await open(workspace)
    await choose('keys.csv', CSV)
    const column = (name: string) => page.getByLabel(name, { exact: true })
    expect(await column('Label').inputValue()).toBe('name') // by what others call it
    // Until it is clear where the keys are, nothing can be done.
    await page.getByText('Say which column is the hash, or the plaintext.').waitFor()
    await column('Token hash').selectOption('hash')
    await page.getByText('Choose the API of the keys.').waitFor()
    await column('Customer').selectOption('externalId')
    await column('Note').selectOption('name')
    await page.getByText('Two columns are name.').waitFor()
    await column('Note').selectOption('leave out')
    await column('API of the keys').selectOption('test api')

    await click('Check the first 100 keys')
    await page
      .getByText(
        'Of the first 5 keys: 2 would be imported, 0 exist already, 3 would be refused. Nothing was changed.',
      )
      .waitFor()
    const reasons = page.getByLabel('Refused lines, table').getByRole('row')
    expect((await reasons.allTextContents()).slice(1).map((text) => text.slice(0, 30))).toEqual([
      '5hash: has 8 characters; it mu',
      '6it has 2 cells, the header li',
      '7name: String must contain at ',
    ])
    expect(await totalOf(workspace, apiId)).toBe(0)

    await click('Import')
    await ended()
    expect(await figures()).toEqual(['2', '0', '3'])
    expect(await totalOf(workspace, apiId)).toBe(2)
    expect((await server.post('keys.verifyKey', { key: 'first' })).body).toMatchObject({
      valid: true,
      name: '=SUM(A1)',
      identity: { externalId: 'user "1",\r\nabroad' },
    })

    const download = page.waitForEvent('download')
    await click('Save refused lines')
    const saved = await download
    expect(saved.suggestedFilename()).toBe('keys.refused.csv')
    const lines = (await Bun.file(await saved.path()).text()).trim().split('\r\n')
    expect(lines[0]).toBe('Token hash,Customer,Note,Label,tollgate_line,tollgate_reason')
    expect(lines[1]).toStartWith(`${ROWS[3]},5,"hash: has 8 characters`)
    expect(lines[2]).toBe('a,b,6,"it has 2 cells, the header line has 4"')
    expect(lines).toHaveLength(4)

    // What was corrected in that file is imported from it, whatever columns were added.
    await click('Import another file')
    await choose('fixed.csv', [lines[0], lines[1]?.replace('tooshort', hashKey('third'))].join('\r\n'))
    await column('Token hash').selectOption('hash')
    await column('API of the keys').selectOption('test api')
    await click('Import')
    await ended()
    expect((await server.post('keys.verifyKey', { key: 'third' })).body.valid).toBe(true)
    // Nothing of the file is in the address or in what the browser keeps.
    const kept = await page.evaluate(
      'location.href + JSON.stringify({ ...localStorage }) + JSON.stringify({ ...sessionStorage })',
    )
    for (const row of ROWS) expect(kept).not.toContain(row.slice(0, 8))
    expect(complaints).toEqual([])
  })

  test('after a closed tab the same file goes on, and makes no key twice', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const prefix = crypto.randomUUID()
    const file = `${Array.from({ length: 350 }, (_, index) =>
      index === 120
        ? '{"plaintext": '
        : JSON.stringify({ apiId, plaintext: `${prefix} ${index}`, name: `key ${index}` }),
    ).join('\n')}\n`
    await open(workspace)
    let calls = 0
    await page.route('**/migrations.createKeys', async (route) => {
      if (++calls < 4) return await route.continue()
      // A call that is held back is sent when the tab closes, so it is ended before.
      await route.abort()
      if (calls === 4) await page.close()
    })
    const closed = page.waitForEvent('close')
    await choose('keys.ndjson', file)
    await click('Import')
    await closed
    const made = await totalOf(workspace, apiId)
    expect(made).toBeGreaterThan(0)
    expect(made).toBeLessThan(349)

    page = await page.context().newPage()
    await open(workspace)
    await choose('keys.ndjson', file)
    await click('Import')
    await ended()
    expect(await figures()).toEqual([String(349 - made), String(made), '1'])
    expect(await totalOf(workspace, apiId)).toBe(349)
    const download = page.waitForEvent('download')
    await click('Save refused lines')
    const [line] = (await Bun.file(await (await download).path()).text()).trim().split('\n')
    expect(JSON.parse(line ?? '')).toEqual({
      tollgate_line: 121,
      tollgate_reason: 'it is not valid JSON',
      tollgate_text: '{"plaintext": ',
    })
  })

  test('it is stopped and goes on, waits for a server that is away, and goes on beside other screens', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const rows = Array.from({ length: 450 }, () => hashKey(crypto.randomUUID()))
    await open(workspace)
    const gate = Promise.withResolvers<void>()
    let calls = 0
    await page.route('**/migrations.createKeys', async (route) => {
      calls++
      if (calls === 2) await gate.promise
      if (calls === 4 || calls === 5) await route.abort()
      else await route.continue()
    })
    await choose('many.csv', ['hash', ...rows].join('\n'))
    await page.getByLabel('API of the keys').selectOption('test api')
    await click('Import')
    await page.getByText('100', { exact: true }).waitFor()
    await click('Stop')
    gate.resolve()
    await page.getByText('after line 201').waitFor()
    expect(await totalOf(workspace, apiId)).toBe(200)
    await click('Go on')
    await page.getByRole('alert').getByText('The server does not answer. Trying again…').waitFor()
    await page.getByRole('link', { name: 'Identities' }).click()
    await page.getByRole('heading', { level: 1, name: 'Identities' }).waitFor()
    await page.getByRole('link', { name: 'Imports' }).click()
    await ended()
    expect(await figures()).toEqual(['450', '0', '0'])
    expect(await totalOf(workspace, apiId)).toBe(450)
  })

  test('an import that is refused altogether stops with the reason, and loses nothing', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await open(workspace, await workspace.rootKeyWith('api.*.create_key', 'api.*.read_api'))
    await page.route('**/migrations.createKeys', (route) =>
      route.fulfill({
        status: 403,
        json: {
          error: { code: 'INSUFFICIENT_PERMISSIONS', message: 'missing permission', requestId: 'req_1' },
        },
      }),
    )
    await choose('keys.csv', `apiId,hash\n${apiId},${hashKey(crypto.randomUUID())}\n`)
    await click('Import')
    await page.getByText('missing permission').waitFor()
    await page.unrouteAll()
    await click('Go on')
    await ended()
    expect(await figures()).toEqual(['1', '0', '0'])
  })

  test('a file that cannot be one is refused with what to do, and without the right nothing can be started', async () => {
    const workspace = await server.workspace()
    await makeApi(workspace)
    await open(workspace)
    const problem = async (name: string, text: string) => {
      await choose(name, text)
      return await page.getByRole('alert').textContent()
    }
    expect(await problem('keys.csv', 'a;b;c\n')).toContain('must be ","')
    expect(await problem('keys.csv', '')).toBe('The file is empty.')
    expect(await problem('keys.csv', 'PK\u0003\u0004')).toContain('is a spreadsheet')
    await open(workspace, await workspace.rootKeyWith('api.*.read_api'))
    await choose('keys.csv', `apiId,hash\nb,${hashKey('x')}\n`)
    const button = page.getByRole('button', { name: /^Import ?,/ })
    expect(await button.getAttribute('title')).toBe('needs api.*.create_key')
  })

  test('has no fault for axe while it is empty, mapped, checked and done', async () => {
    const workspace = await server.workspace()
    await makeApi(workspace)
    await open(workspace)
    const { look, wrong } = looksAt(page)
    await look('empty')
    await choose('keys.csv', CSV.replaceAll(/first|second|fifth/g, crypto.randomUUID()))
    await page.getByLabel('Token hash').selectOption('hash')
    await page.getByLabel('API of the keys').selectOption('test api')
    await click('Check the first 100 keys')
    await page.getByText('Nothing was changed.').waitFor()
    await look('checked')
    await click('Import')
    await ended()
    await look('done')
    expect(wrong).toEqual([])
  })
})
