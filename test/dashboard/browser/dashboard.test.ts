import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { CHROMIUM, looksAt, SIZES, violationsOf } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import type { TestServer, TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** The dashboard in a real browser: done in the page, proven by the API. */

setDefaultTimeout(2 * SLOW_MS)

/** Details of what the others go through by day. */
const atNight = test.if(IS_NIGHTLY)

let server: TestServer
let dashboard: DashboardPage
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM !== null) ({ server, dashboard, stop } = await startDashboard())
})
afterAll(() => stop?.())

/** A page without cookies and storage. */
async function openPage(): Promise<Page> {
  await dashboard.forget()
  return dashboard.page
}

const BY_DAY = ['sign-in', 'filled', '/docs/nginx']

/** Uses the keys of a new workspace, so that the overview has something to show. */
async function useKeys(workspace: TestWorkspace): Promise<void> {
  const apiId = await makeApi(workspace, { name: 'shop' })
  const used = await makeKey(workspace, apiId, { name: 'web checkout', prefix: 'demo' })
  const limited = await makeKey(workspace, apiId, {
    name: '<img src=x onerror=alert(1)>',
    prefix: 'demo',
    ratelimit: { type: 'fast', limit: 2, refillRate: 2, refillInterval: 3_600_000 },
  })
  for (const { key } of [used, used, used, limited, limited, limited, limited])
    await server.post('keys.verifyKey', { key })
  for (;;) {
    const { hours } = await workspace.get('analytics.getOverview')
    if (hours.at(-1).total + (hours.at(-2)?.total ?? 0) === 7) return
    await Bun.sleep(20)
  }
}

describe.skipIf(CHROMIUM === null)('in a browser', () => {
  test('a newcomer gets from the first page to a verified key and a root key, by the keyboard alone', async () => {
    const workspace = await server.workspace()
    const page = await openPage()
    await dashboard.signIn(workspace)
    const open = page.locator('.checklist li.open')
    const fill = async (step: string, text: string) => {
      await open.getByText(step, { exact: true }).waitFor()
      await open.getByLabel('Name').focus()
      await page.keyboard.type(text)
      await page.keyboard.press('Enter')
    }
    await fill('Create an API', 'my-api')
    await fill('Create a key', 'first')
    // The secret stays until it is taken: Esc does not close it.
    const dialog = page.getByRole('dialog', { name: 'The new key' })
    const key = (await dialog.locator('.secret').textContent()) ?? ''
    await page.keyboard.press('Escape')
    await page.keyboard.press('Escape')
    expect(await dialog.isVisible()).toBe(true)
    const download = page.waitForEvent('download')
    await dialog.getByRole('link', { name: 'Download' }).press('Enter')
    expect(await Bun.file(await (await download).path()).text()).toBe(`${key}\n`)
    await dialog.getByRole('button', { name: 'I have it' }).press('Enter')
    await dialog.waitFor({ state: 'hidden' })
    await open.getByText('Verify it', { exact: true }).waitFor()
    expect(await open.locator('pre').textContent()).toContain(key)

    expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true })
    await open.getByText('Limit something', { exact: true }).waitFor()
    await workspace.post('ratelimits.limit', {
      namespace: 'email.send',
      identifier: 'user_1',
      limit: 10,
      duration: 60_000,
    })
    await fill('Create a root key for your application', 'checkout')
    const made = page.getByRole('dialog', { name: 'The new root key' })
    const rootKey = (await made.locator('.secret').textContent()) ?? ''
    await made.getByRole('button', { name: 'I have it' }).press('Enter')
    await page.locator('.checklist').waitFor({ state: 'hidden' })
    const { body } = await server.get('rootKeys.whoami', {}, rootKey)
    expect(body).toMatchObject({ name: 'checkout', isOperator: false })
    expect(body.permissions).not.toContain('*')
    expect(dashboard.complaints).toEqual([])
  })

  test('nothing that signs in is in reach of a script, on the disk or in the address', async () => {
    const workspace = await server.workspace()
    const page = await openPage()
    await dashboard.signIn(workspace)
    const seen: string = await page.evaluate(
      'document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href + document.documentElement.outerHTML',
    )
    expect(seen).not.toContain(workspace.rootKey)
    expect(seen).not.toContain('tollgate_')
    // A page of another origin cannot show it in a frame.
    await page.evaluate(
      `new Promise((done) => { const f = document.createElement('iframe'); f.onload = done; f.src = '/dashboard'; document.body.append(f) })`,
    )
    expect(dashboard.complaints.join()).toMatch(/frame|Content Security Policy/)
  })

  test('the overview shows what was counted, hostile names as text, and its chart by keyboard, as a table and as CSV', async () => {
    const workspace = await server.workspace()
    await useKeys(workspace)
    const page = await openPage()
    await dashboard.signIn(workspace)
    const chart = page.getByRole('slider')
    await chart.waitFor()
    await page.getByText('<img src=x onerror=alert(1)>').first().waitFor()
    expect(await page.locator('.figures').textContent()).toContain('verified7')
    expect(await page.locator('.legend').textContent()).toMatch(/Valid 5.*Rate limited 2/)
    await chart.focus()
    await page.keyboard.press('ArrowLeft')
    expect(await chart.getAttribute('aria-valuetext')).toMatch(/\d{4}, \d\d:\d\d: /)
    await page.getByRole('button', { name: 'Show as table' }).click()
    expect(await page.locator('.scrolling tbody tr').count()).toBe(24)
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: 'CSV' }).click()
    const csv = await Bun.file(await (await download).path()).text()
    expect(csv).toMatch(/^hour,Valid,Rate limited\r\n/)
    // The range is in the address: a reload shows the same.
    await page.getByLabel('Range').selectOption('7d')
    expect(page.url()).toEndWith('?range=7d')
    await page.reload()
    await chart.waitFor()
    expect(await page.getByLabel('Range').inputValue()).toBe('7d')
    expect(dashboard.complaints).toEqual([])
  })

  test('the overview says who is near a limit, or that nobody is, and leads there and to the keys it names', async () => {
    const workspace = await server.workspace()
    await useKeys(workspace)
    const page = await openPage()
    await dashboard.signIn(workspace)
    const near = dashboard.panel('Near their limit now')
    await near.getByText('Nobody has less than a tenth of a limit left.').waitFor()
    const limit = { namespace: 'email.send', limit: 10, duration: 3_600_000 }
    const take = (identifier: string, cost: number) =>
      workspace.post('ratelimits.limit', { ...limit, identifier, cost })
    await take('half_way', 5)
    await take('tenant/1', 9)
    await page.reload()
    const row = near.getByRole('listitem')
    await row.waitFor()
    expect(await row.textContent()).toMatch(/^tenant\/1email\.send, per hour.*9 of 10/)
    await row.getByRole('link', { name: 'tenant/1' }).click()
    await dashboard.heading('tenant/1').waitFor()
    await dashboard.panel('Windows now').getByText('9 of 10').waitFor()

    const { keys } = await workspace.get('keys.searchKeys', { search: 'web checkout' })
    for (const [title, name] of [
      ['Used most', 'web checkout'],
      ['Refused most', '<img src=x onerror=alert(1)>'],
    ] as const) {
      await dashboard.visit(workspace, 'overview')
      await dashboard.panel(title).getByRole('link', { name }).click()
      await dashboard.heading(name).waitFor()
      if (name === 'web checkout') expect(page.url()).toEndWith(`/keys/${keys[0].id}`)
    }
    expect(dashboard.complaints).toEqual([])
  })

  test('a revoked root key ends at the sign-in with the next click, and a link is kept for after it', async () => {
    const workspace = await server.workspace()
    const rootKey = await workspace.rootKeyWith('*')
    const page = await openPage()
    await dashboard.signIn({ rootKey })
    const { body } = await server.get('rootKeys.whoami', {}, rootKey)
    await workspace.post('rootKeys.deleteRootKey', { rootKeyId: body.rootKeyId })
    await page.getByLabel('Range').selectOption('3d')
    await page.getByText(/the session has ended/i).waitFor()
    expect(await page.getByText('Last 24 hours').count()).toBe(0)
    await page.getByLabel('Root key').fill(workspace.rootKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    expect(page.url()).toEndWith(`/w/${workspace.workspaceId}/overview?range=3d`)
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Root key').waitFor()
    expect(await page.context().cookies()).toEqual([])
  })

  test('what the server refuses is said at the form, in its words', async () => {
    const page = await openPage()
    await page.goto(`${server.url}/dashboard`)
    await page.getByLabel('Root key').fill('no root key')
    await page.keyboard.press('Enter')
    await page.getByRole('alert').getByText('key not found').waitFor()
    expect(await page.getByRole('alert').textContent()).toMatch(/UNAUTHORIZED.*req_/)
  })

  atNight('a root key without rights sees why panels are empty, and no checklist', async () => {
    const workspace = await server.workspace()
    const page = await openPage()
    await dashboard.signIn({ rootKey: await workspace.rootKeyWith('audit.*.read_event') })
    await page.getByText('Not shown: missing permission').first().waitFor()
    expect(await page.locator('.checklist').count()).toBe(0)
  })

  atNight('a screen whose file cannot be had says so; the heading has the focus once it came', async () => {
    const page = await openPage()
    // The names are those of an earlier version, which is not served any more.
    let isAway = true
    await page.route('**/dashboard/assets/*', (route) =>
      isAway && /\/(audit|imports)-/.test(route.request().url()) ? route.abort() : route.continue(),
    )
    await dashboard.signIn(await server.workspace())
    await page.getByRole('link', { name: 'Audit' }).click()
    await page.getByRole('alert').filter({ hasText: 'This screen could not be loaded.' }).waitFor()
    isAway = false
    await page.getByRole('button', { name: 'Retry' }).click()
    await page.getByRole('heading', { name: 'Audit' }).waitFor()
    await page.getByRole('link', { name: 'Imports' }).click()
    const heading = page.getByRole('heading', { level: 1, name: 'Imports' })
    await heading.waitFor()
    await page.locator('h1:focus').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  atNight('on a phone the menu is a dialog: Esc closes it and gives the focus back', async () => {
    const page = await openPage()
    await page.setViewportSize(SIZES.phone)
    await dashboard.signIn(await server.workspace())
    const button = page.getByRole('button', { name: 'Menu' })
    await button.press('Enter')
    const menu = page.getByRole('dialog', { name: 'Menu' })
    await menu.getByRole('button', { name: 'Sign out' }).waitFor()
    await page.keyboard.press('Escape')
    await menu.waitFor({ state: 'hidden' })
    expect(await button.evaluate((element) => element === element.ownerDocument.activeElement)).toBe(true)
  })

  test('who is signed in sends methods from the API page; who is not is told where to sign in', async () => {
    const workspace = await server.workspace()
    const page = await openPage()
    await page.goto(`${server.url}/docs/api`)
    await page.getByText('to send the methods of v1 from this page').waitFor()
    const method = page.locator('[data-call="apis.createApi"]')
    expect(await method.getByRole('button', { name: 'Send…' }).count()).toBe(0)

    await dashboard.signIn(workspace)
    await page.goto(`${server.url}/docs/api`)
    await method.getByRole('button', { name: 'Send…' }).click()
    const body = method.getByRole('textbox')
    const send = method.getByRole('button', { name: 'Send', exact: true })
    await body.fill('{')
    await send.click()
    await method.getByText('Not JSON').waitFor()
    await body.fill('{"name":""}')
    await send.click()
    await method.getByText('Answered 400').waitFor()
    await body.fill('{"name":"sent from the page"}')
    await body.press('Control+Enter')
    await method.getByText('Answered 200').waitFor()
    const { apiId } = JSON.parse((await method.locator('.send pre').textContent()) ?? '')
    expect(await workspace.get('apis.getApi', { apiId })).toMatchObject({ name: 'sent from the page' })
    if (IS_NIGHTLY) expect(await violationsOf(page)).toEqual([])
    expect(dashboard.complaints).toEqual([])
    // A method of GET takes its query from the body.
    const query = page.locator('[data-call="apis.getApi"]')
    await query.getByRole('button', { name: 'Send…' }).click()
    await query.getByRole('textbox').fill(JSON.stringify({ apiId }))
    await query.getByRole('button', { name: 'Send', exact: true }).click()
    await query.locator('.send pre').getByText('sent from the page').waitFor()
  })

  test('axe finds nothing wrong, in both themes, wide and on a phone', async () => {
    const page = await openPage()
    const looks = looksAt(page)
    /** By day the screens with most on them: axe takes half a second for each. */
    const look = async (what: string) => (IS_NIGHTLY || BY_DAY.includes(what)) && (await looks.look(what))
    await page.goto(`${server.url}/dashboard`)
    await page.getByLabel('Root key').waitFor()
    await look('sign-in')
    const workspace = await server.workspace()
    await dashboard.signIn(workspace)
    await page.locator('.checklist').waitFor()
    await look('empty')
    await useKeys(workspace)
    await page.reload()
    await page.getByRole('slider').waitFor()
    await page.keyboard.press('?')
    await page.getByRole('dialog').waitFor()
    await look('filled, with a dialog')
    await page.keyboard.press('Escape')
    await look('filled')
    await page.route('**/dashboard/api/**', (route) => route.abort())
    await page.getByLabel('Range').selectOption('3d')
    await page.getByText('The server does not answer.').first().waitFor()
    await look('failed')
    const pages = ['/docs/nginx', '/nothing']
    if (IS_NIGHTLY) pages.push('/docs', '/docs/api', '/errors/NOT_FOUND')
    for (const path of pages) {
      await page.goto(server.url + path)
      await look(path)
    }
    expect(looks.wrong).toEqual([])
  })
})
