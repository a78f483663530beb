import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { CHROMIUM, eachLook, overflowOf, violationsOf } from '../../support/browser.ts'
import { type DashboardPage, startDashboard } from '../../support/dashboard-page.ts'
import { fillWorkspace, SCREENS } from '../../support/dashboard-screens.ts'
import { IS_NIGHTLY } from '../../support/nightly.ts'
import { OPERATOR_KEY, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

/**
 * Every screen, empty, filled and failed, in each theme and size. At night axe looks at each, and a picture of each is
 * kept in `dist/screenshots`, to be looked at before a release. `bun run screenshots` makes the pictures alone.
 * `docs/dashboard.png`, which README shows, is `readme.png` of these.
 */

/** At night axe takes half a second for each of some 250. */
setDefaultTimeout(IS_NIGHTLY ? 15 * 60_000 : 2 * SLOW_MS)

/** Where pictures go; null = by day, when all this is left out. */
const folder =
  process.env.SCREENSHOTS ?? (IS_NIGHTLY ? join(import.meta.dir, '../../../dist/screenshots') : null)

let server: TestServer
let dashboard: DashboardPage
let page: Page
let workspace: { workspaceId: string; rootKey: string }
let stop: (() => Promise<void>) | undefined
beforeAll(async () => {
  if (CHROMIUM === null) return
  ;({ server, dashboard, page, stop } = await startDashboard())
  const { body } = await server.get('rootKeys.whoami', {}, OPERATOR_KEY)
  workspace = { workspaceId: body.workspaceId, rootKey: OPERATOR_KEY }
})
afterAll(() => stop?.())

describe.skipIf(CHROMIUM === null || folder === null)('every screen fits and is accessible', () => {
  test('with nothing in the workspace, and for what does not exist', async () => {
    await dashboard.open(workspace)
    expect(await lookAtAll('empty', (screen) => screen.replaceAll(/:\w+/g, 'none_4aBcDeFgHjKmNpQr'))).toEqual(
      [],
    )
    expect(dashboard.complaints).toEqual([])
  })

  test('with one of everything in it', async () => {
    const { pathOf } = await fillWorkspace(server, OPERATOR_KEY)
    await server.server.deps.usage.flush()
    await dashboard.open(workspace)
    await dashboard.panel('Used most').getByText('web checkout').first().waitFor()
    // All first steps are done, with keys of whichever API.
    await page.locator('.checklist').waitFor({ state: 'detached' })
    expect(await lookAtAll('filled', pathOf)).toEqual([])
    expect(dashboard.complaints).toEqual([])
    if (folder !== null) await takeReadmePicture(pathOf('keys/:id'), join(folder, 'readme.png'))
  })

  test('while the server does not answer', async () => {
    await dashboard.open(workspace)
    await page.route(/\/dashboard\/api\/(?!session\.|liveness)/, (route) => route.abort())
    expect(
      await lookAtAll('failed', (screen) => screen.replaceAll(/:\w+/g, 'none_4aBcDeFgHjKmNpQr')),
    ).toEqual([])
  })
})

/** @returns what is wrong. */
async function lookAtAll(state: string, pathOf: (screen: string) => string): Promise<string[]> {
  const wrong: string[] = []
  for (const screen of SCREENS) {
    await dashboard.visit(workspace, pathOf(screen))
    await page.locator('.frame h1').waitFor()
    await page.waitForLoadState('networkidle')
    await eachLook(page, async (look) => {
      const what = `${screen}, ${state}, ${look}`
      const faults = await overflowOf(page)
      if (folder !== null) await page.screenshot({ path: pictureOf(folder, what), fullPage: true })
      if (IS_NIGHTLY) faults.push(...(await violationsOf(page)))
      for (const each of faults) wrong.push(`${what}: ${each}`)
    })
  }
  return wrong
}

async function takeReadmePicture(screen: string, path: string): Promise<void> {
  await page.setViewportSize({ width: 1280, height: 840 })
  await page.emulateMedia({ colorScheme: 'light' })
  await dashboard.visit(workspace, screen)
  await page.getByText('It would be refused').waitFor()
  await page.waitForLoadState('networkidle')
  await page.screenshot({ path })
}

const pictureOf = (to: string, what: string) =>
  join(to, `${what.replaceAll(':', '').replaceAll(/[^\w-]+/g, '-')}.png`)
