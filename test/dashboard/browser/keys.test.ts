import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Page } from 'playwright-core'
import { CHROMIUM, looksAt, SIZES } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import type { Json, TestServer, TestWorkspace } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/** Keys and APIs in a real browser: done in the page, proven by the API. */

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

const open = (workspace: TestWorkspace, path: string, rootKey?: string) =>
  dashboard.open(workspace, path, rootKey)
const button = (name: string | RegExp) => page.getByRole('button', { name })
const dialog = () => dashboard.dialog()
const codeOf = async (key: string): Promise<string> =>
  (await server.post('keys.verifyKey', { key })).body.code

/** Until a verification is counted. */
async function untilUsed(workspace: TestWorkspace, keyId: string): Promise<void> {
  for (;;) {
    const { keys } = await workspace.get('keys.getLastUsed', { keyId })
    if (keys[0].lastUsed !== undefined) return
    await Bun.sleep(20)
  }
}

describe.skipIf(CHROMIUM === null)('keys', () => {
  test('a key is made with the form, shown once, and is what the form said', async () => {
    const workspace = await server.workspace()
    await makeApi(workspace)
    await open(workspace, 'keys')
    await page.getByText('There are no keys yet').waitFor()
    await page.keyboard.press('c')
    await dialog().getByLabel('Name').fill('web checkout')
    await dialog().getByLabel('Prefix').fill('demo')
    await dialog().getByLabel('External id').fill('user_881')
    await dialog().getByLabel('Verifications').fill('100')
    await dialog().getByLabel('Credits left').fill('many')
    await dialog().getByLabel('Meta').fill('{"plan": "pro"}')
    await dialog().getByRole('button', { name: 'Create key' }).click()
    // The field that is wrong says so and has the focus; nothing was sent.
    await dialog().getByText('A whole number from 0 on').waitFor()
    expect(
      await dialog()
        .getByLabel('Credits left')
        .evaluate((e) => e.matches(':focus')),
    ).toBe(true)
    await dialog().getByLabel('Credits left').fill('5')
    expect(await dialog().locator('.by-api pre').textContent()).toContain('"remaining": 5')
    await dialog().getByRole('button', { name: 'curl' }).click()
    expect(await dialog().locator('.by-api pre').textContent()).toContain('$ROOT_KEY')
    await dialog().getByRole('button', { name: 'Create key' }).click()
    const secret = (await page.locator('.secret').textContent()) ?? ''
    await page.keyboard.press('Escape')
    await button('I have it').click()
    await page.getByRole('link', { name: 'web checkout' }).waitFor()
    const { body } = await server.post('keys.verifyKey', { key: secret })
    expect(body).toMatchObject({
      code: 'VALID',
      name: 'web checkout',
      remaining: 4,
      meta: { plan: 'pro' },
      identity: { externalId: 'user_881' },
      ratelimit: { limit: 100 },
    })
    expect(await page.content()).not.toContain(secret)
    expect(dashboard.complaints).toEqual([])
  })

  test('disabling shows the refusal, Undo takes it back, and the API says the same', async () => {
    const workspace = await server.workspace()
    const { keyId, key } = await makeKey(workspace, await makeApi(workspace), { name: 'ci' })
    await open(workspace, `keys/${keyId}`)
    await page.getByText('It would pass').waitFor()
    await button('Disable').click()
    await page.getByText('Checked: refused, DISABLED').waitFor()
    expect(await codeOf(key)).toBe('DISABLED')
    await page.getByText('It would be refused').waitFor()
    await button('Undo').click()
    await page.getByText('Checked: it would pass').waitFor()
    expect(await codeOf(key)).toBe('VALID')
    await page.getByText('enabled: false → true').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  test('a key is edited, rotated and deleted, and only what was changed is sent', async () => {
    const workspace = await server.workspace()
    const { keyId, key } = await makeKey(workspace, await makeApi(workspace), { name: 'ci', remaining: 7 })
    await open(workspace, `keys/${keyId}`)
    await button('Edit').click()
    await dialog().getByLabel('Name').fill('ci runner')
    expect(JSON.parse((await dialog().locator('.by-api pre').textContent()) ?? '')).toEqual({
      keyId,
      name: 'ci runner',
    })
    await dialog().getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'ci runner', level: 1 }).waitFor()
    expect(await workspace.get('keys.getKey', { keyId })).toMatchObject({ name: 'ci runner', remaining: 7 })

    await button('Rotate…').click()
    await dialog().getByLabel('The old key ends').selectOption('at once')
    await dialog().getByRole('button', { name: 'Rotate key' }).click()
    const secret = (await page.locator('.secret').textContent()) ?? ''
    await button('I have it').click()
    await page.getByText('Checked: refused, EXPIRED').waitFor()
    expect([await codeOf(key), await codeOf(secret)]).toEqual(['EXPIRED', 'VALID'])

    // In use: its name must be typed.
    await untilUsed(workspace, keyId)
    await page.reload()
    await page.getByText('hour of').waitFor()
    await button('Delete…').click()
    await dialog().getByRole('button', { name: 'Delete key' }).click({ force: true })
    expect((await server.get('keys.getKey', { keyId }, workspace.rootKey)).status).toBe(200)
    await dialog().getByLabel(/^Type/).fill('ci runner')
    await dialog().getByRole('button', { name: 'Delete key' }).click()
    await page.getByText('The key is deleted').waitFor()
    expect(await codeOf(key)).toBe('NOT_FOUND')
    expect(dashboard.complaints).toEqual([])
  })

  test('filters are in the address, rows are chosen by keyboard and changed together, and what fails stays chosen', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const made: { keyId: string; key: string }[] = []
    for (const name of ['alpha 1', 'alpha 2', 'beta'])
      made.push(await makeKey(workspace, apiId, { name: `${name} <b>`, externalId: 'user_1' }))
    await open(workspace, 'keys')
    await page.getByText('3 keys').waitFor()
    await page.getByLabel('Begins with').fill('ALPHA')
    await page.getByText('2 keys').waitFor()
    expect(page.url()).toContain('search=ALPHA')
    await page.reload()
    await page.getByText('2 keys').waitFor()
    await page.locator('h1').focus()
    await page.keyboard.press('j')
    await page.keyboard.press('x')
    await page.keyboard.press('j')
    await page.keyboard.press('x')
    await page.getByText('2 chosen').waitFor()
    await button('Disable').click()
    await page.getByText('Disabled 2 keys.').waitFor()
    const codes = async () => await Promise.all(made.map(({ key }) => codeOf(key)))
    expect(await codes()).toEqual(['DISABLED', 'DISABLED', 'VALID'])
    await button('Undo').click()
    await page.locator('.list .chip.bad').first().waitFor({ state: 'hidden' })
    expect(await codes()).toEqual(['VALID', 'VALID', 'VALID'])

    await page.getByLabel('Choose all shown').check()
    await workspace.post('keys.deleteKey', { keyId: made[0]?.keyId })
    await button('Set identity…').click()
    await dialog().getByLabel('External id').fill('user_2')
    await dialog().getByRole('button', { name: 'Set identity' }).click()
    await page.getByText('Connected to user_2: 1 key; 1 failed.').waitFor()
    expect((await workspace.get('keys.getKey', { keyId: made[1]?.keyId })).identity.externalId).toBe('user_2')

    // The list without the deleted key: nothing is chosen any more, so all that is shown is saved.
    await page.locator(`[data-id="${made[0]?.keyId}"]`).waitFor({ state: 'detached' })
    const download = page.waitForEvent('download')
    await button('CSV').click()
    const csv = await Bun.file(await (await download).path()).text()
    expect(csv).toMatch(/^id,start,name,api,external id/)
    expect(csv).toContain('alpha 2 <b>')
    expect(dashboard.complaints).toEqual([])
  })

  atNight('keys are filtered by when they were last used, and the address keeps it', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { keyId, key } = await makeKey(workspace, apiId, { name: 'busy' })
    await makeKey(workspace, apiId, { name: 'idle' })
    await server.post('keys.verifyKey', { key })
    await untilUsed(workspace, keyId)
    await open(workspace, 'keys')
    await page.getByText('2 keys').waitFor()
    const names = () => page.locator('.list tbody th a').allTextContents()
    await page.getByLabel('Used').selectOption('In the last hour')
    await page.getByText('1 key', { exact: true }).waitFor()
    expect(await names()).toEqual(['busy'])
    await page.getByLabel('Used').selectOption('Never')
    await page.getByRole('link', { name: 'idle' }).waitFor()
    await page.waitForURL(/used=never/)
    await page.reload()
    await page.getByRole('link', { name: 'idle' }).waitFor()
    expect(await names()).toEqual(['idle'])
    await button('Clear').click()
    await page.getByText('2 keys').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  /** Looking must not use up: it is a customer's credit, and a customer's limit. */
  test('a test of a key says how a verification would end and takes nothing; its refusals are listed and watched', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    await workspace.post('apis.updateApi', { apiId, ipWhitelist: ['127.0.0.1'] })
    const ratelimit = { limit: 2, duration: 3_600_000 }
    const { keyId, key } = await makeKey(workspace, apiId, { name: 'ci', remaining: 9, ratelimit })
    await server.post('keys.verifyKey', { key })
    await open(workspace, `keys/${keyId}`)
    await page.getByText('None is remembered.').waitFor()
    await button('Test this key').click()
    const answer = dialog().getByRole('region', { name: 'Answer' })
    await dialog().getByRole('button', { name: 'Test' }).click()
    await answer.getByText('It would pass').waitFor()
    await dialog().getByLabel('From address').fill('192.0.2.7')
    await dialog().getByRole('button', { name: 'Test again' }).click()
    await answer.getByText('FORBIDDEN').waitFor()
    await dialog().getByLabel('From address').fill('127.0.0.1')
    await dialog().getByLabel('Asking for permission').fill('documents.read')
    await page.keyboard.press('Enter')
    await answer.getByText('INSUFFICIENT_PERMISSIONS').waitFor()
    await dialog().getByLabel('Asking for permission').fill('')
    await dialog()
      .getByLabel('Tags')
      .fill(`web, ${'e'.repeat(129)}`)
    await page.keyboard.press('Enter')
    const refused = dialog().getByRole('alert')
    await refused.getByText('tags.1: String must contain at most 128 character(s)').waitFor()
    await dialog().getByLabel('Tags').fill('web, eu')
    await page.keyboard.press('Enter')
    await answer.getByText('It would pass').waitFor()
    await refused.waitFor({ state: 'detached' })
    await dialog().getByText('The same by the API').click()
    expect(JSON.parse((await dialog().locator('pre').textContent()) ?? '')).toMatchObject({
      ipAddress: '127.0.0.1',
      tags: ['web', 'eu'],
    })
    await dialog().getByLabel('From address').fill('no address')
    await page.keyboard.press('Enter')
    await refused.waitFor()
    await page.keyboard.press('Escape')
    expect((await server.post('keys.verifyKey', { key })).body).toMatchObject({
      remaining: 7,
      ratelimit: { remaining: 0 },
    })
    expect(await codeOf(key)).toBe('RATE_LIMITED')
    const refusals = page.getByRole('region', { name: 'Last refusals' })
    await refusals.getByText('Rate limited').waitFor()
    await refusals.getByRole('button', { name: 'Watch for 15 min' }).click()
    await refusals.getByText('Watching until').waitFor()
    expect((await workspace.get('events.listWatches')).watches).toMatchObject([{ keyId }])
    await refusals.getByRole('link', { name: /^Why\? req_/ }).click()
    await page.getByText('A rate limit had fewer tokens left').waitFor()
    expect(dashboard.complaints).toEqual([])
  })

  atNight('on a phone a row opens as a card with what the table has no room for', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const ratelimit = { limit: 5, duration: 60_000 }
    await makeKey(workspace, apiId, { name: 'web', externalId: 'user_881', remaining: 12, ratelimit })
    await open(workspace, 'keys')
    await page.setViewportSize(SIZES.phone)
    await page.reload()
    const more = button('More of web')
    await more.press('Enter')
    expect(await page.locator('.card-row :is(dt, dd)').allTextContents()).toEqual([
      ...['API', 'test api', 'Identity', 'user_881', 'Credits', '12', 'Limit', '5 a minute'],
    ])
    expect(await more.getAttribute('aria-expanded')).toBe('true')
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    // Nothing is lost: it is chosen and disabled here too.
    await page.getByLabel('Choose web').check()
    await button('Disable').click()
    await page.getByText('Disabled 1 key.').waitFor()
    await more.click()
    expect(await page.locator('.card-row').count()).toBe(0)
    // What a wide screen shows in columns has no button there.
    await page.setViewportSize(SIZES.wide)
    expect(await more.isVisible()).toBe(false)
    expect(dashboard.complaints).toEqual([])
  })

  test('a pasted key opens its page from a body, its text in no address; ids open theirs; a name is searched', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { keyId, key } = await makeKey(workspace, apiId, { name: 'web checkout', prefix: 'demo' })
    await open(workspace, 'overview')
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    const search = page.getByLabel('Search', { exact: true })
    await page.locator('h1').focus()
    await page.keyboard.press('/')
    await page.keyboard.insertText(key)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'web checkout', level: 1 }).waitFor()
    expect(page.url()).toEndWith(`/keys/${keyId}`)
    expect(await search.inputValue()).toBe('')
    expect(asked.join()).not.toContain(key)
    await search.fill(apiId)
    await search.press('Enter')
    await page.getByRole('heading', { name: 'test api', level: 1 }).waitFor()
    await search.fill('web ch')
    await page.locator('.hits a').first().waitFor()
    await search.press('ArrowDown')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'web checkout', level: 1 }).waitFor()
    await search.fill('nobody at all')
    await page.getByText('Nothing begins with this.').waitFor()
    await search.press('Escape')
    expect(dashboard.complaints).toEqual([])
  })

  atNight('a root key without rights finds buttons off, with the right that they need', async () => {
    const workspace = await server.workspace()
    const apiId = await makeApi(workspace)
    const { keyId, key } = await makeKey(workspace, apiId, { name: 'ci' })
    await open(workspace, `keys/${keyId}`, await workspace.rootKeyWith('api.*.read_key'))
    await page.getByText('It would pass').waitFor()
    for (const [name, right] of [
      [/^Edit/, 'update_key'],
      [/^Rotate/, 'create_key'],
      [/^Disable/, 'update_key'],
      [/^Delete/, 'delete_key'],
    ] as const) {
      const off = button(name)
      expect(await off.getAttribute('aria-disabled')).toBe('true')
      expect(await off.getAttribute('title')).toBe(`needs api.*.${right}`)
      await off.click({ force: true })
    }
    expect(await dialog().count()).toBe(0)
    expect(await codeOf(key)).toBe('VALID')
    await page.getByText('Not shown: missing permission').first().waitFor()
    expect(await page.getByRole('link', { name: 'APIs' }).count()).toBe(0)
  })
})

describe.skipIf(CHROMIUM === null)('APIs', () => {
  test('an API is made, changed and deleted; a refused setting is said at its field', async () => {
    const workspace = await server.workspace()
    await open(workspace, 'apis')
    await page.getByText('There are no APIs yet').waitFor()
    await button('Create API').click()
    await dialog().getByLabel('Name').fill('x')
    await dialog().getByRole('button', { name: 'Create API' }).click()
    await dialog()
      .getByText(/^name: .*req_/)
      .waitFor()
    await dialog().getByLabel('Name').fill('my-api')
    await dialog().getByRole('button', { name: 'Create API' }).click()
    await page.getByRole('heading', { name: 'my-api', level: 1 }).waitFor()
    const apiId = page.url().split('/').at(-1) ?? ''
    await button('Edit').click()
    await dialog().getByLabel('Prefix of new keys').fill('demo')
    await dialog().getByLabel('Allowed addresses').fill('10.0.0.0/8\nhome')
    await dialog().getByLabel('Delete protection').check()
    await dialog().getByRole('button', { name: 'Save' }).click()
    await dialog()
      .getByText(/^ipWhitelist.1: /)
      .waitFor()
    await dialog().getByLabel('Allowed addresses').fill('10.0.0.0/8')
    await dialog().getByRole('button', { name: 'Save' }).click()
    await dialog().waitFor({ state: 'hidden' })
    await page.locator('.tags').getByText('10.0.0.0/8').waitFor()
    const api: Json = await workspace.get('apis.getApi', { apiId })
    expect(api).toMatchObject({ defaultPrefix: 'demo', ipWhitelist: ['10.0.0.0/8'], deleteProtection: true })
    expect(await page.locator('.panels pre').textContent()).toBe(JSON.stringify(api, null, 2))
    expect(await button(/^Delete/).getAttribute('title')).toMatch(/protected/)
    await workspace.post('apis.updateApi', { apiId, deleteProtection: false })
    await page.reload()
    await button(/^Delete/).click()
    await dialog().getByRole('button', { name: 'Delete API' }).click()
    await page.getByText('There are no APIs yet').waitFor()
    expect((await server.get('apis.getApi', { apiId }, workspace.rootKey)).status).toBe(404)
    expect(dashboard.complaints).toEqual([])
  })
})

test.skipIf(CHROMIUM === null || !IS_NIGHTLY)(
  'axe finds nothing wrong with keys and APIs, empty, filled, in a dialog and failed',
  async () => {
    const { look, wrong } = looksAt(page)
    const workspace = await server.workspace()
    await open(workspace, 'keys')
    await page.getByText('There are no keys yet').waitFor()
    await look('keys, empty')
    const apiId = await makeApi(workspace)
    const ratelimit = { limit: 100, duration: 60_000 }
    const shown = {
      name: 'web checkout',
      prefix: 'demo',
      externalId: 'user_881',
      meta: { plan: 'pro' },
      ratelimit,
    }
    const { keyId, key } = await makeKey(workspace, apiId, { ...shown, remaining: 12 })
    await makeKey(workspace, apiId, { name: 'ci', enabled: false })
    await makeKey(workspace, apiId, { remaining: 3, expires: Date.now() + 86_400_000 })
    for (let at = 0; at < 3; at++) await server.post('keys.verifyKey', { key })
    await server.post('keys.verifyKey', { key, remaining: { cost: 100 } }) // refused
    await page.reload()
    await page.getByText('3 keys').waitFor()
    await page.getByLabel('Choose web checkout').check()
    await look('keys')
    await page.setViewportSize(SIZES.phone)
    await button('More of web checkout').click()
    await look('keys, a card')
    await button('Create key').click()
    await dialog().waitFor()
    await look('form of a key')
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name: 'web checkout' }).click()
    await page.getByText('It would pass').waitFor()
    await page.getByRole('slider').waitFor()
    await look('key')
    await button('Test this key').click()
    await dialog().getByRole('button', { name: 'Test' }).click()
    await dialog().getByText('It would pass').waitFor()
    await look('test of a key')
    await page.keyboard.press('Escape')
    await button('Rotate…').click()
    await dialog().waitFor()
    await look('rotate')
    await page.keyboard.press('Escape')
    await page.setViewportSize(SIZES.wide)
    await page.getByRole('link', { name: 'APIs' }).click()
    await page.getByRole('link', { name: 'test api', exact: true }).waitFor()
    await look('apis')
    await page.getByRole('link', { name: 'test api', exact: true }).click()
    await page.locator('.panels pre').waitFor()
    await look('api')
    await page.route('**/dashboard/api/**', (route) => route.abort())
    await page.goto(`${server.url}/dashboard`).catch(() => {})
    await page.unrouteAll()
    await page.goto(`${server.url}/dashboard/w/${workspace.workspaceId}/keys/${keyId}`)
    await page.getByText('It would pass').waitFor()
    await page.route('**/dashboard/api/**', (route) => route.abort())
    await button('Ask again').click()
    // The state of the server is asked for every ten seconds.
    await page.getByText('The server does not answer.').first().waitFor({ timeout: 30_000 })
    await look('key, failed')
    expect(wrong).toEqual([])
  },
)
