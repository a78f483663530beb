import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import type { Browser } from 'playwright-core'
import { CHROMIUM, SIZES, startBrowser } from '../../support/browser.ts'
import { openTestDatabase, TEST_DATABASE_URL } from '../../support/database.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { spawnServer } from '../../support/process.ts'
import { OPERATOR_KEY } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { openWire } from '../../support/wire.ts'

setDefaultTimeout(SLOW_MS)

/** At night only: the page asks again every ten seconds. */
describe.skipIf(CHROMIUM === null || TEST_DATABASE_URL === null || !IS_NIGHTLY)('an open page', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await startBrowser()
  })
  afterAll(() => browser?.close())

  test('says what still works while Postgres is away, keeps what it shows, marks it as old, and recovers by itself', async () => {
    await using database = await openTestDatabase()
    await using wire = await openWire({ kind: 'url', url: database.databaseUrl ?? '' })
    await using server = await spawnServer({
      DATABASE_URL: wire.address.kind === 'url' ? wire.address.url : '',
      TOLLGATE_DATA_DIR: database.dataDir,
      TOLLGATE_DB_TIMEOUT_MS: '2000',
    })
    const page = await (await browser.newContext({ viewport: SIZES.wide })).newPage()
    await page.goto(`${server.url}/dashboard`)
    await page.getByLabel('Root key').fill(OPERATOR_KEY)
    await page.keyboard.press('Enter')
    await page.getByText('All well').waitFor()
    const empty = page.getByText('No key was verified in this time.')
    await empty.waitFor()

    await wire.cut()
    await page.getByText('The database is away.').waitFor()
    const stale = page.locator('.stale')
    await stale.first().waitFor()
    expect(await empty.isVisible()).toBe(true)

    await wire.open()
    await page.getByText('All well').waitFor()
    await stale.first().waitFor({ state: 'detached' })
    expect(await page.getByText('The database is away.').count()).toBe(0)
  })
})
