import { afterAll, beforeAll, beforeEach, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { CHROMIUM } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { isFocused, Keyboard } from '../../support/keyboard.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { OPERATOR_KEY, type TestServer, type TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** What people come to the dashboard for, each from the sign-in on and with nothing but the keyboard. */

setDefaultTimeout(2 * SLOW_MS)

let server: TestServer
let dashboard: DashboardPage
let page: Page
let keyboard: Keyboard
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM === null) return
  ;({ server, dashboard, page, stop } = await startDashboard())
  keyboard = new Keyboard(page)
})
afterAll(() => stop?.())
beforeEach(() => dashboard?.forget())

const button = (name: string | RegExp) => page.getByRole('button', { name })
const inDialog = (name: string | RegExp) => dashboard.dialog().getByRole('button', { name })
const codeOf = async (key: string): Promise<string> =>
  (await server.post('keys.verifyKey', { key })).body.code

async function signIn({ rootKey }: { rootKey: string }): Promise<void> {
  await page.goto(`${server.url}/dashboard`)
  await keyboard.fill(page.getByLabel('Root key'), rootKey)
  await keyboard.press('Enter')
  await dashboard.heading('Overview').waitFor()
}

/** Goes to a screen by its shortcut: its heading has the focus, so that Tab goes on from there. */
async function goTo(letter: string, heading: string): Promise<void> {
  await keyboard.press('g', letter)
  const title = dashboard.heading(heading)
  await title.waitFor()
  await page.locator('h1:focus').waitFor()
}

/** Reads the text of a secret that is shown once, and closes its dialog. */
async function takeSecret(title: string): Promise<string> {
  const shown = page.getByRole('dialog', { name: title })
  const secret = (await shown.locator('.secret').textContent()) ?? ''
  await keyboard.enter(shown.getByRole('button', { name: 'I have it' }))
  await shown.waitFor({ state: 'hidden' })
  return secret
}

async function countedUsage(workspace: TestWorkspace, count: number): Promise<void> {
  for (;;) {
    const { hours } = await workspace.get('analytics.getOverview')
    if (hours.at(-1).total + (hours.at(-2)?.total ?? 0) === count) return
    await Bun.sleep(20)
  }
}

describe.skipIf(CHROMIUM === null)('by keyboard alone', () => {
  test('support finds why a customer gets 429, from a request id, a key or an identifier, and ends it', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { key, keyId } = await makeKey(workspace, apiId, {
      name: 'web checkout',
      externalId: 'user_881',
      ratelimit: { type: 'fast', limit: 1, refillRate: 1, refillInterval: 3_600_000 },
    })
    await server.post('keys.verifyKey', { key })
    const { body } = await server.post('keys.verifyKey', { key })
    expect(body.code).toBe('RATE_LIMITED')
    const limit = { namespace: 'email.send', identifier: 'user_882', limit: 1, duration: 3_600_000 }
    const limited = async () => (await workspace.post('ratelimits.limit', limit)).success === false
    await limited()
    expect(await limited()).toBe(true)

    await signIn(workspace)
    await keyboard.press('/')
    await keyboard.type(body.requestId)
    await keyboard.press('Enter')
    await dashboard.panel('The call').getByText('A rate limit had fewer tokens left').waitFor()
    expect(await dashboard.panel('The call').textContent()).toMatch(/user_881.*1 per hour, 0 left/)
    await dashboard
      .panel(/^Would it pass now/)
      .getByText(/opens again in/)
      .waitFor()

    // The customer's key: its page says the same.
    await keyboard.press('/')
    await keyboard.type(key)
    await keyboard.press('Enter')
    await dashboard.heading('web checkout').waitFor()
    expect(page.url()).toEndWith(keyId)
    await page.getByText('It would be refused').waitFor()

    // What the application limits by: found by its text, and given more.
    await keyboard.press('/')
    await keyboard.type('user_882')
    await page.locator('.hits a', { hasText: 'email.send' }).waitFor()
    await keyboard.press('ArrowDown', 'Enter')
    await dashboard.heading('user_882').waitFor()
    await keyboard.enter(button('Override…'))
    await keyboard.fill(page.getByLabel('Tokens in a window'), '9')
    await keyboard.press('Enter')
    await dashboard.panel('Windows now').getByText(/ of 9/).waitFor()
    expect(await limited()).toBe(false)
    expect(dashboard.complaints).toEqual([])
  })

  test('an engineer makes, changes, rotates and revokes a key, and sees it refused each time', async () => {
    const workspace = await server.workspace()
    await signIn(workspace)
    await goTo('p', 'APIs')
    await keyboard.press('c')
    await keyboard.type('shop')
    await keyboard.press('Enter')
    await dashboard.heading('shop').waitFor()

    await goTo('k', 'Keys')
    await keyboard.press('c')
    await keyboard.fill(dashboard.dialog().getByLabel('Name', { exact: true }), 'web checkout')
    await keyboard.press('Enter')
    const key = await takeSecret('The new key')
    expect(await codeOf(key)).toBe('VALID')
    await page.getByRole('link', { name: 'web checkout' }).waitFor()
    await keyboard.press('j', 'Enter')
    await dashboard.heading('web checkout').waitFor()

    // A dialog gives the focus back, however it is closed.
    const edit = button('Edit')
    await keyboard.enter(edit)
    await keyboard.press('Escape')
    await dashboard.dialog().waitFor({ state: 'hidden' })
    expect(await isFocused(edit)).toBe(true)
    await keyboard.press('Enter')
    await keyboard.enter(inDialog('Cancel'))
    await dashboard.dialog().waitFor({ state: 'hidden' })
    expect(await isFocused(edit)).toBe(true)
    await keyboard.press('Enter')
    await keyboard.fill(dashboard.dialog().getByLabel('Credits left'), '0')
    await keyboard.press('Enter')
    await dashboard.dialog().waitFor({ state: 'hidden' })
    expect(await isFocused(edit)).toBe(true)
    await page.getByText('It would be refused').waitFor()
    expect(await codeOf(key)).toBe('USAGE_EXCEEDED')
    await keyboard.press('Enter')
    await keyboard.fill(dashboard.dialog().getByLabel('Credits left'), '100')
    await keyboard.press('Enter')
    await page.getByText('It would pass').waitFor()

    await keyboard.enter(button('Rotate…'))
    await keyboard.choose(dashboard.dialog().getByLabel('The old key ends'), 'at once')
    await keyboard.enter(inDialog('Rotate key'))
    const secret = page.getByRole('dialog', { name: 'The new key' }).locator('.secret')
    const next = (await secret.textContent()) ?? ''
    expect([await codeOf(key), await codeOf(next)]).toEqual(['EXPIRED', 'VALID'])
    await keyboard.enter(page.getByRole('link', { name: 'Page of the new key' }))
    await dashboard.dialog().waitFor({ state: 'hidden' })
    await page.getByText('It would pass').waitFor()

    const disable = button(/^Disable|^Enable/)
    await keyboard.enter(disable)
    await page.getByText('Checked: refused, DISABLED').waitFor()
    expect(await codeOf(next)).toBe('DISABLED')
    expect(await isFocused(disable)).toBe(true)
    await keyboard.enter(button('Delete…'))
    const typed = dashboard.dialog().getByLabel(/^Type “/)
    await keyboard.fill(typed, 'web checkout')
    await keyboard.press('Enter')
    await page.getByText('The key is deleted, and refused as NOT_FOUND.').waitFor()
    expect(await codeOf(next)).toBe('NOT_FOUND')
    expect(dashboard.complaints).toEqual([])
  })

  test.skipIf(!IS_NIGHTLY)(
    'an operator reads the state of the server, and goes to each screen by its letter',
    async () => {
      await signIn({ rootKey: OPERATOR_KEY })
      await page.getByRole('status').getByText('All well').waitFor()
      await goTo('s', 'Server')
      for (const [title, fact] of [
        ['Process', 'Version'],
        ['Database and usage', 'ok'],
        ['Limiter', 'Counters in memory'],
        ['Threads and caches', 'up'],
      ] as const)
        await dashboard.panel(title).getByText(fact).first().waitFor()
      // What each method costs.
      const table = page.getByRole('region', { name: 'Methods, table' })
      await keyboard.tabTo(table)
      await table.getByText('/v1/server.getStatus').waitFor()
      const csv = await dashboard.saved(() =>
        keyboard.enter(dashboard.panel('Methods').getByRole('button', { name: 'CSV' })),
      )
      expect(csv).toStartWith('Method,')

      await keyboard.press('?')
      const rows = dashboard.dialog().locator('.shortcuts > div')
      await rows.first().waitFor()
      const known = await rows.evaluateAll((all) =>
        all.map(
          (row) =>
            [row.querySelector('dt')?.textContent ?? '', row.querySelector('dd')?.textContent ?? ''] as const,
        ),
      )
      await keyboard.press('Escape')
      await dashboard.dialog().waitFor({ state: 'hidden' })
      const screens = known.flatMap(([keys, name]) =>
        /^g \w$/.test(keys) ? [[keys.slice(2), name] as const] : [],
      )
      expect(screens.length).toBeGreaterThan(12)
      for (const [letter, name] of screens) await goTo(letter, name)
      expect(dashboard.complaints).toEqual([])
    },
  )

  test('an owner takes the usage home as CSV: by hour, of one key, and by key', async () => {
    const workspace = await server.workspace()
    const { key, keyId } = await makeKey(workspace, await makeApi(workspace), {
      name: 'customer 1',
      externalId: 'user_1',
    })
    for (let times = 0; times < 3; times++) await server.post('keys.verifyKey', { key })
    await countedUsage(workspace, 3)
    await signIn(workspace)
    const sumOf = (csv: string) =>
      csv
        .split('\r\n')
        .slice(1)
        .reduce((sum, line) => sum + Number(line.split(',')[1] ?? 0), 0)

    await keyboard.choose(page.getByLabel('Range'), 'Last 7')
    await page.waitForURL(/range=7d$/)
    const all = dashboard.panel('Verifications')
    await all.getByRole('slider').waitFor()
    const byHour = await dashboard.saved(() => keyboard.enter(all.getByRole('button', { name: 'CSV' })))
    expect(byHour).toStartWith('hour,Valid\r\n')
    expect([byHour.trim().split('\r\n').length, sumOf(byHour)]).toEqual([169, 3])

    await goTo('k', 'Keys')
    await page.getByRole('link', { name: 'customer 1' }).waitFor()
    const keys = await dashboard.saved(() => keyboard.enter(button('CSV')))
    expect(keys).toContain(keyId)
    expect(keys).toContain('user_1')
    await keyboard.press('j', 'Enter')
    await dashboard.heading('customer 1').waitFor()
    const usage = dashboard.panel('Usage by hour')
    await usage.getByRole('slider').waitFor()
    const ofKey = await dashboard.saved(() => keyboard.enter(usage.getByRole('button', { name: 'CSV' })))
    expect(sumOf(ofKey)).toBe(3)
    expect(dashboard.complaints).toEqual([])
  })

  test('security reads who changed what, before and after, and which root keys exist', async () => {
    const workspace = await server.workspace()
    const { keyId } = await makeKey(workspace, await makeApi(workspace), { name: 'before' })
    await workspace.post('keys.updateKey', { keyId, name: 'after' })
    await workspace.rootKeyWith('api.*.read_key')
    await signIn(workspace)
    await goTo('a', 'Audit')
    await keyboard.fill(page.getByLabel('Id of what was changed'), keyId)
    await keyboard.press('Enter')
    await page.waitForURL(/resource=/)
    const [newest, oldest] = [page.locator('.events summary').first(), page.locator('.events summary').nth(1)]
    await oldest.getByText('key.create').waitFor()
    await keyboard.enter(newest)
    const change = page.locator('.changes').first().getByRole('row').filter({ hasText: 'name' })
    await change.waitFor()
    expect(await change.getByRole('cell').allTextContents()).toEqual(['before', 'after'])
    expect(await newest.textContent()).toContain('first root key')

    await goTo('t', 'Root keys')
    const rows = dashboard.panel('All root keys').getByRole('row')
    await rows.filter({ hasText: 'you' }).waitFor()
    expect(await rows.filter({ hasText: 'api.*.read_key' }).count()).toBe(1)
    // What each of them did.
    await keyboard.press('j')
    await keyboard.enter(rows.filter({ hasText: 'you' }).getByRole('link', { name: /20\d\d/ }))
    await dashboard.heading('Audit').waitFor()
    await page.waitForURL(/actor=/)
    await page.locator('.events').getByText('rootKey.create').first().waitFor()
    await page.goBack()
    await rows.first().waitFor()
    const csv = await dashboard.saved(() => keyboard.enter(button('CSV')))
    expect(csv.trim().split('\r\n').length).toBe(3)
    expect(dashboard.complaints).toEqual([])
  })
})
