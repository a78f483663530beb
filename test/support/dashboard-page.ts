import type { Browser, Locator, Page } from 'playwright-core'
import { SIZES, startBrowser } from './browser.ts'
import { startTestServer, type TestServer, type TestWorkspace } from './server.ts'

/** Refused calls are logged by the browser itself; the page shows them. */
const REFUSED = /Failed to load resource: (the server responded with a status of 4\d\d|net::ERR_FAILED)/

/** One page in a browser with a profile of its own, on a server: what the browser tests of the dashboard share. */
export class DashboardPage implements AsyncDisposable {
  private constructor(
    private readonly browser: Browser,
    readonly page: Page,
    readonly url: string,
    /** What scripts, the policy and failed loads complained of since the last `open`. Each test leaves none. */
    readonly complaints: string[],
  ) {}

  /** @param url Of the server. */
  static async start(url: string): Promise<DashboardPage> {
    const browser = await startBrowser()
    const context = await browser.newContext({ viewport: SIZES.wide, acceptDownloads: true })
    const page = await context.newPage()
    const complaints: string[] = []
    page.on('pageerror', (cause) => complaints.push(`error: ${cause.message}`))
    page.on('console', (message) => {
      if (message.type() === 'error' && !REFUSED.test(message.text())) complaints.push(message.text())
    })
    page.on('request', (request) => {
      const { origin, protocol } = new URL(request.url())
      if (origin !== new URL(url).origin && !/^(data|blob):$/.test(protocol))
        complaints.push(`asked ${request.url()}`)
    })
    return new DashboardPage(browser, page, url, complaints)
  }

  /** Makes the browser forget everything: cookies, storage, size, routes, complaints. */
  async forget(): Promise<void> {
    const { page } = this
    await page.unrouteAll()
    if (page.url() !== 'about:blank') {
      await page.evaluate('localStorage.clear()')
      // A page that still asks would get its cookie again.
      await page.goto('about:blank')
    }
    await page.context().clearCookies()
    await page.setViewportSize(SIZES.wide)
    this.complaints.length = 0
  }

  /** Signs in, in a browser that knows nothing, and opens a screen of the workspace. */
  async open(
    workspace: Pick<TestWorkspace, 'workspaceId' | 'rootKey'>,
    screen = 'overview',
    rootKey = workspace.rootKey,
  ): Promise<void> {
    await this.forget()
    await this.page.goto(`${this.url}/dashboard/w/${workspace.workspaceId}/${screen}`)
    await this.page.getByLabel('Root key').fill(rootKey)
    await this.page.keyboard.press('Enter')
    await this.page.locator('.frame h1').waitFor()
  }

  /** Signs in, as somebody who types the address of the server. */
  async signIn({ rootKey }: { rootKey: string }): Promise<void> {
    await this.page.goto(`${this.url}/dashboard`)
    await this.page.getByLabel('Root key').fill(rootKey)
    await this.page.keyboard.press('Enter')
    await this.heading('Overview').waitFor()
  }

  /** Opens a screen, signed in already. */
  async visit({ workspaceId }: Pick<TestWorkspace, 'workspaceId'>, screen: string): Promise<void> {
    await this.page.goto(`${this.url}/dashboard/w/${workspaceId}/${screen}`)
  }

  dialog(): Locator {
    return this.page.getByRole('dialog')
  }

  panel(title: string | RegExp): Locator {
    return this.page.getByRole('region', { name: title })
  }

  heading(name: string | RegExp): Locator {
    return this.page.getByRole('heading', { level: 1, name, exact: true })
  }

  /** Does what makes the browser save a file. @returns its text. */
  async saved(press: () => Promise<void>): Promise<string> {
    const download = this.page.waitForEvent('download')
    await press()
    return await Bun.file(await (await download).path()).text()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.browser.close()
  }
}

/** A server and a page for the tests of one file, which stops them after the last one. */
export async function startDashboard(): Promise<Running> {
  const server = await startTestServer()
  const dashboard = await DashboardPage.start(server.url)
  return {
    ...{ server, dashboard, page: dashboard.page },
    stop: async () => {
      await dashboard[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

export type Running = {
  server: TestServer
  dashboard: DashboardPage
  page: Page
  stop: () => Promise<void>
}
