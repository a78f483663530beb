import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { CHROMIUM, looksAt } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import type { Json, TestServer, TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Limits, live and why in a real browser: done in the page, proven by the API. */

setDefaultTimeout(2 * SLOW_MS)

/** Details of what the others go through by day. */
const atNight = test.if(IS_NIGHTLY)

let server: TestServer
let dashboard: DashboardPage
let page: Page
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM !== null) ({ server, dashboard, page, stop } = await startDashboard())
})
afterAll(() => stop?.())

async function signIn(who: { rootKey: string }): Promise<void> {
  await dashboard.forget()
  await dashboard.signIn(who)
}
const open = (workspace: TestWorkspace, path: string) => dashboard.visit(workspace, path)
const limit = (workspace: TestWorkspace, identifier: string, fields: Json = {}): Promise<Json> =>
  workspace.post('ratelimits.limit', {
    namespace: 'email.send',
    identifier,
    limit: 2,
    duration: 3_600_000,
    ...fields,
  })
async function limitOften(workspace: TestWorkspace, times: number, identifier: string): Promise<void> {
  for (let i = 0; i < times; i++) await limit(workspace, identifier)
}
const field = (name: string) => page.getByRole('textbox', { name, exact: true })
const panel = (title: string) => dashboard.panel(title)
const auditOf = async (workspace: TestWorkspace): Promise<string[]> =>
  (await workspace.get('audit.listEvents')).events.map(({ event }: Json) => event)

describe.skipIf(CHROMIUM === null)('in a browser', () => {
  test('a namespace is made, an override set and deleted, and the namespace deleted: the API sees each', async () => {
    const workspace = await server.workspace()
    await signIn(workspace)
    await page.keyboard.press('g')
    await page.keyboard.press('l')
    await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor()
    await page.getByRole('button', { name: 'Create namespace' }).click()
    await field('Name').fill('email.send')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'email.send', level: 1 }).waitFor()
    const { namespaces } = await workspace.get('ratelimits.listNamespaces')
    expect(namespaces).toMatchObject([{ name: 'email.send' }])

    await page.getByRole('button', { name: 'Create override' }).click()
    await field('Identifier or pattern').fill('vip_*')
    await field('Tokens in a window').fill('50')
    await field('Window, seconds').fill('60')
    await page.getByRole('button', { name: 'Set override' }).click()
    await panel('Overrides').getByText('50 per min').waitFor()
    expect(await limit(workspace, 'vip_1')).toMatchObject({ limit: 50, remaining: 49 })

    const lookUp = field('Identifier')
    await lookUp.fill('vip_1')
    await page.keyboard.press('Enter')
    await panel('Which limit gets this identifier?').getByText('1 of 50').waitFor()
    await lookUp.fill('other')
    await page.keyboard.press('Enter')
    await page.getByText('No override: it gets what calls ask for.').waitFor()

    await page.getByRole('button', { name: /^Delete….*vip/ }).click()
    await page.getByRole('button', { name: 'Delete override' }).click()
    await panel('Overrides').getByText('every identifier gets').waitFor()
    expect(await limit(workspace, 'vip_2')).toMatchObject({ limit: 2 })

    await page.getByRole('button', { name: 'Several servers…' }).click()
    await page.getByLabel('Limits of this namespace').selectOption('local')
    await page.getByLabel('While the engine of shared limits is away').selectOption('open')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    const settings = async () => (await workspace.get('ratelimits.listNamespaces')).namespaces[0]
    expect(await settings()).toMatchObject({ scope: 'local', outage: 'open' })
    await page.getByRole('button', { name: 'Several servers…' }).click()
    expect(await page.getByLabel('Limits of this namespace').inputValue()).toBe('local')
    await page.getByLabel('Limits of this namespace').selectOption('')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await settings()).toMatchObject({ scope: null, outage: 'open' })

    // In use, so its name is asked for.
    while ((await workspace.get('analytics.getRatelimits', { namespaceName: 'email.send' }))[0].total < 2)
      await Bun.sleep(20)
    await page.reload()
    await page.locator('.legend', { hasText: 'Passed 2' }).waitFor()
    await page.getByRole('button', { name: 'Delete…', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: 'Delete the namespace' })
    await dialog.getByRole('button', { name: /^Delete namespace/ }).click({ force: true })
    expect((await workspace.get('ratelimits.listNamespaces')).total).toBe(1)
    await dialog.getByLabel('Type “email.send” to confirm').fill('email.send')
    await dialog.getByRole('button', { name: /^Delete namespace/ }).click()
    await page.getByRole('heading', { name: 'Limits', level: 1 }).waitFor()
    expect((await workspace.get('ratelimits.listNamespaces')).total).toBe(0)
    const events = await auditOf(workspace)
    for (const event of [
      'ratelimitNamespace.create',
      'ratelimitOverride.create',
      'ratelimitNamespace.delete',
    ])
      expect(events.join()).toContain(event.split('.')[1] as string) // every action is there
    expect(dashboard.complaints).toEqual([])
  })

  test('an identifier shows its windows; an override changes the next decision; odd identifiers have a page too', async () => {
    const workspace = await server.workspace()
    await limitOften(workspace, 3, 'user_881')
    const odd = ['..', 'a/b?c#d', '=x', '<img src=x onerror=alert(1)>']
    for (const each of odd) await limitOften(workspace, 3, each)
    await signIn(workspace)
    await open(workspace, 'limits')
    await panel('Near their limit now').getByRole('link', { name: 'user_881' }).click()
    await panel('Windows now').getByText('2 of 2').waitFor()
    await panel('Last refusals').getByText('Rate limited').first().waitFor()
    await page.getByRole('button', { name: 'Override…' }).click()
    await field('Tokens in a window').fill('100')
    await page.getByRole('button', { name: 'Set override' }).click()
    await panel('Windows now').getByText('2 of 100').waitFor()
    expect(await limit(workspace, 'user_881')).toMatchObject({ success: true, limit: 100, remaining: 97 })
    await panel('Override').getByRole('button', { name: 'Delete…' }).click()
    await page.getByRole('button', { name: 'Delete override' }).click()
    await panel('Override').getByText('None: it gets').waitFor()
    expect(await limit(workspace, 'user_881')).toMatchObject({ success: false, limit: 2 })
    for (const each of odd) {
      await open(workspace, 'limits')
      await panel('Near their limit now').getByRole('link', { name: each, exact: true }).click()
      await page.getByRole('heading', { name: each, level: 1, exact: true }).waitFor()
      await panel('Windows now').getByText('2 of 2').waitFor()
    }
    expect(dashboard.complaints).toEqual([])
  })

  /** The acceptance of the dashboard: a refusal is explained from its request id in two clicks, right after it happened. */
  test('a refusal is explained from its request id in two clicks, and the button there ends it', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { key, keyId } = await makeKey(workspace, apiId, { name: 'web checkout', remaining: 1 })
    await server.post('keys.verifyKey', { key })
    await workspace.post('keys.updateKey', { keyId, enabled: false })
    await signIn(workspace)
    const { body } = await server.post('keys.verifyKey', { key })
    expect(body.code).toBe('DISABLED')
    const since = Date.now()
    await page.getByRole('link', { name: 'Why refused?' }).click() // one
    await field('Request id').fill(body.requestId)
    await page.getByRole('button', { name: 'Explain' }).click() // two
    await panel('The call').getByText('The key was disabled.').waitFor()
    expect(Date.now() - since).toBeLessThan(SLOW_MS)
    expect(await panel('The call').textContent()).toContain(keyId)
    const checks = page.getByRole('region', { name: /Would it pass now/ })
    await checks.getByText('No.', { exact: true }).waitFor()
    await panel('Changed in the last 7 days').getByText('key.update').first().waitFor()
    await checks.getByRole('button', { name: 'Enable' }).click()
    await checks.getByText('the key is enabled').waitFor()
    expect((await server.post('keys.verifyKey', { key })).body.code).toBe('USAGE_EXCEEDED')
    await checks.getByRole('button', { name: 'Add 1000 credits' }).click()
    await checks.getByText('Yes, as far as').waitFor()
    expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({ valid: true, remaining: 999 })
    expect((await workspace.get('keys.getKey', { keyId })).remaining).toBe(999)
    expect(await auditOf(workspace)).toContain('key.update')

    // Expired, and asked from a new address.
    await workspace.post('keys.updateKey', { keyId, expires: Date.now() - 1000 })
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['192.0.2.1'] })
    await server.post('keys.verifyKey', { key })
    await open(workspace, `why?key=${keyId}`)
    await checks.getByRole('button', { name: 'Extend by 30 days' }).click()
    await checks.getByRole('button', { name: 'Allow 127.0.0.1' }).click()
    await checks.getByText('Yes, as far as').waitFor()
    expect((await server.post('keys.verifyKey', { key })).body.valid).toBe(true)
    expect((await workspace.get('apis.getApi', { apiId })).ipWhitelist).toEqual(['192.0.2.1', '127.0.0.1'])

    // The same by the keyboard alone.
    for (const press of ['g', 'v']) await page.keyboard.press(press)
    await page.getByRole('heading', { name: 'Live', level: 1 }).waitFor()
    for (const press of ['g', 'y', 'Tab', 'Tab']) await page.keyboard.press(press)
    await page.keyboard.type(body.requestId)
    await page.keyboard.press('Enter')
    await panel('The call').getByText('The key was disabled.').waitFor()

    // Its own rate limit, then one that it shares.
    await workspace.post('keys.updateKey', { keyId, ratelimit: { limit: 1, duration: 3_600_000 } })
    for (const code of ['VALID', 'RATE_LIMITED'])
      expect((await server.post('keys.verifyKey', { key })).body.code).toBe(code)
    await open(workspace, `why?key=${keyId}`)
    await checks.getByRole('button', { name: 'Change limit…' }).click()
    await field('Verifications').fill('5')
    await page.getByRole('button', { name: 'Change limit', exact: true }).click()
    await checks.getByText('Yes, as far as').waitFor()
    expect((await server.post('keys.verifyKey', { key })).body.ratelimit).toMatchObject({
      limit: 5,
      remaining: 3,
    })
    // Also one of another name, which v2 made, and that alone.
    const named = { name: 'exports', limit: 1, duration: 3_600_000, autoApply: true }
    const kept = { name: 'default', limit: 5, duration: 3_600_000, autoApply: true }
    await workspace.post('/v2/keys.updateKey', { keyId, ratelimits: [kept, named] })
    for (const code of ['VALID', 'RATE_LIMITED'])
      expect((await server.post('keys.verifyKey', { key })).body.code).toBe(code)
    await page.reload()
    await checks.getByRole('button', { name: 'Change limit…' }).click()
    await page.getByRole('dialog', { name: 'The key’s limit exports' }).waitFor()
    await field('Verifications').fill('4')
    await page.getByRole('button', { name: 'Change limit', exact: true }).click()
    await checks.getByText('Yes, as far as').waitFor()
    const shown = (await workspace.post('/v2/keys.getKey', { keyId })).data.ratelimits
    expect(shown.sort((a: Json, b: Json) => a.name.localeCompare(b.name))).toMatchObject([
      kept,
      { ...named, limit: 4 },
    ])
    await workspace.post('/v2/keys.updateKey', { keyId, ratelimits: [kept] })
    const identity = await workspace.post('identities.createIdentity', {
      externalId: 'user_881',
      ratelimits: [{ name: 'requests', limit: 1, duration: 3_600_000 }],
    })
    await workspace.post('keys.updateKey', { keyId, ratelimit: null, externalId: 'user_881' })
    await server.post('keys.verifyKey', { key, ratelimits: [{ name: 'requests' }] })
    await open(workspace, `identities/${identity.identityId}`)
    await panel('Shared limits now').getByText('1 of 1').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  atNight('why takes an identifier, an identity and a forgotten request, and offers a watch', async () => {
    const workspace = await server.workspace()
    await workspace.post('identities.createIdentity', { externalId: 'user_7' })
    const apiId = await makeApi(workspace)
    const { keyId } = await makeKey(workspace, apiId, { name: 'of user 7', externalId: 'user_7' })
    await limitOften(workspace, 3, 'user_881')
    await signIn(workspace)
    await open(workspace, 'why')
    await page.getByText('Each answer of the API carries a request id').waitFor()
    await page.getByRole('combobox', { name: 'Look up by' }).selectOption('identifier')
    await field('Namespace').fill('email.send')
    await field('Identifier').fill('user_881')
    await page.getByRole('button', { name: 'Explain' }).click()
    await panel('Would it pass now?').getByText('2 of 2').waitFor()
    await panel('Last refusals').getByText('Rate limited').waitFor()
    await page.getByRole('button', { name: 'Override…' }).click()
    await field('Tokens in a window').fill('9')
    await page.getByRole('button', { name: 'Set override' }).click()
    await panel('Would it pass now?').getByText('2 of 9').waitFor()
    expect(await limit(workspace, 'user_881')).toMatchObject({ success: true, limit: 9 })
    await page.getByRole('button', { name: 'Watch for 15 min' }).click()
    await page.getByText('Watching until').waitFor()
    expect((await workspace.get('events.listWatches')).watches).toMatchObject([{ identifier: 'user_881' }])

    await page.getByRole('combobox', { name: 'Look up by' }).selectOption('identity')
    await field('Identity').fill('user_7')
    await page.keyboard.press('Enter')
    await panel('Its keys').getByRole('link', { name: 'of user 7' }).click()
    await page.getByRole('region', { name: 'Would it pass now?' }).getByText('Yes, as far as').waitFor()
    expect(page.url()).toContain(keyId)

    await field('Key id').fill('req_4aBcDeFgHjKmNpQr')
    await page.keyboard.press('Enter')
    await page.getByText('This request is not remembered.').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  test('live never moves a row under the reader, can be paused, and a watch is opened, saved and stopped', async () => {
    const workspace = await server.workspace()
    await limitOften(workspace, 3, 'first')
    await signIn(workspace)
    // Each round of polling is made to come at once.
    await page.clock.install()
    const later = () => page.clock.fastForward(2_000)
    await open(workspace, 'live')
    const rows = page.getByRole('table', { name: 'Events' }).locator('tbody tr')
    await rows.first().waitFor()
    expect(await rows.count()).toBe(1)
    await limitOften(workspace, 5, 'second')
    await later()
    await page.getByRole('button', { name: '3 new, show' }).waitFor()
    expect(await rows.allTextContents()).toEqual([expect.stringContaining('first')])
    await page.getByRole('button', { name: '3 new, show' }).click()
    expect(await rows.first().textContent()).toContain('second')
    expect(await rows.count()).toBe(4)
    await panel('Refused most, last minute').getByText('second').waitFor()
    await page.keyboard.press('p')
    await page.getByText(/^Paused at/).waitFor()
    await page.keyboard.press('p')
    await page.getByText(/^Again every 2 s/).waitFor()
    // Nothing above the rows moves them either.
    const top = async () => (await rows.first().boundingBox())?.y
    const before = await top()
    for (const each of ['third', 'fourth', 'fifth', 'sixth', 'seventh']) await limitOften(workspace, 3, each)
    await later()
    await page.getByRole('button', { name: '5 new, show' }).waitFor()
    expect(await top()).toBe(before)
    await page.getByRole('button', { name: '5 new, show' }).click()

    await page.getByRole('button', { name: 'Watch…' }).click()
    await page.getByRole('combobox', { name: 'What' }).selectOption('identifier')
    await field('Namespace').fill('email.send')
    await field('Identifier').fill('watched')
    await page.getByRole('button', { name: 'Watch for 15 min' }).click()
    await panel('Watches').getByText('watched', { exact: true }).waitFor()
    await limitOften(workspace, 3, 'watched')
    await panel('Watches')
      .getByText(/3 kept, 15 min left/)
      .waitFor()
    await page.getByRole('button', { name: /^Open/ }).click()
    await rows.nth(2).waitFor()
    expect(await rows.count()).toBe(3)
    expect(page.url()).toContain('watch=watch_')
    const download = page.waitForEvent('download')
    await page.getByRole('button', { name: /^CSV/ }).click()
    const csv = await Bun.file(await (await download).path()).text()
    expect(
      csv
        .split('\r\n')
        .slice(0, 4)
        .map((line) => line.split(',')[2]),
    ).toEqual(['outcome', 'PASSED', 'PASSED', 'RATE_LIMITED'])
    await page.getByRole('button', { name: /^Stop/ }).click()
    await panel('Watches').getByText('A busy server forgets').waitFor()
    expect(await workspace.get('events.listWatches')).toMatchObject({ watches: [] })
    await page.getByRole('button', { name: 'Show all events' }).click()
    await page.getByLabel('Outcome').selectOption('all')
    await rows.nth(25).waitFor()
    expect(await rows.count()).toBe(26)
    expect(dashboard.complaints).toEqual([])
  })

  atNight('a root key without the rights sees what they are, and its buttons are off', async () => {
    const workspace = await server.workspace()
    await limitOften(workspace, 3, 'user_881')
    const { namespaces } = await workspace.get('ratelimits.listNamespaces')
    await signIn({ rootKey: await workspace.rootKeyWith('ratelimit.*.read_namespace') })
    await open(workspace, `limits/${namespaces[0].id}/user_881`)
    await panel('Windows now').getByText('2 of 2').waitFor()
    const button = page.getByRole('button', { name: /^Override….*needs ratelimit\.\*\.set_override/ })
    expect(await button.getAttribute('aria-disabled')).toBe('true')
    await page.getByRole('button', { name: /Watch for 15 min.*needs api\.\*\.read_key/ }).waitFor()
    await panel('Last refusals').getByText('Not shown: missing permission').waitFor()
    await open(workspace, 'live')
    await panel('Watches').getByText('Not shown').waitFor()
    await panel('Near their limit now').getByRole('link', { name: 'user_881' }).waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  test.skipIf(!IS_NIGHTLY)(
    'axe finds nothing wrong with limits, live and why, in both themes, wide and on a phone',
    async () => {
      const { look, wrong } = looksAt(page)
      const workspace = await server.workspace()
      await signIn(workspace)
      for (const path of ['limits', 'live', 'why']) {
        await open(workspace, path)
        await page.getByRole('heading', { level: 1 }).waitFor()
        await page
          .locator('.empty')
          .first()
          .waitFor({ timeout: 2_000 })
          .catch(() => {})
        await look(`${path}, empty`)
      }
      const apiId = await makeApi(workspace)
      const { key, keyId } = await makeKey(workspace, apiId, { name: 'web checkout', remaining: 1 })
      await server.post('keys.verifyKey', { key })
      const { body } = await server.post('keys.verifyKey', { key })
      await limitOften(workspace, 3, 'user_881')
      await workspace.post('ratelimits.setOverride', {
        namespaceName: 'email.send',
        identifier: 'vip_*',
        limit: 5,
        duration: 60_000,
      })
      await workspace.post('events.watch', { keyId })
      const { namespaces } = await workspace.get('ratelimits.listNamespaces')
      const id = namespaces[0].id
      const filled = {
        limits: 'Namespaces',
        [`limits/${id}`]: 'Overrides',
        [`limits/${id}/user_881`]: 'Windows now',
        live: 'Watches',
        [`why?request=${body.requestId}`]: 'The call',
        [`why?${new URLSearchParams({ namespace: id, identifier: 'user_881' })}`]: 'Last refusals',
      }
      for (const [path, title] of Object.entries(filled)) {
        await open(workspace, path)
        await panel(title).locator('table, .rows, .of-refusal').first().waitFor()
        await look(path)
      }
      await open(workspace, `limits/${id}`)
      await page.getByRole('button', { name: 'Create override' }).click()
      await page.getByRole('dialog').waitFor()
      await look('a dialog')
      await page.route('**/dashboard/api/{ratelimits,events,analytics,audit,keys}.*', (route) =>
        route.abort(),
      )
      for (const path of Object.keys(filled)) {
        await open(workspace, path)
        await page.getByText('The server does not answer.').first().waitFor()
        await look(`${path}, failed`)
      }
      expect(wrong).toEqual([])
    },
  )
})
