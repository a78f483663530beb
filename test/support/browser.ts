import { existsSync, readFileSync } from 'node:fs'
import { type Browser, chromium, type Page } from 'playwright-core'
import { IS_NIGHTLY } from './nightly.ts'

/** The installed Chromium: $CHROMIUM, or Debian's; null = tests that need it are skipped. */
export const CHROMIUM =
  [process.env.CHROMIUM, '/usr/bin/chromium', Bun.which('chromium'), Bun.which('google-chrome')].find(
    (path): path is string => path !== undefined && path !== null && path !== '' && existsSync(path),
  ) ?? null
if (CHROMIUM === null)
  console.warn('skipped: no chromium. Install it (apt-get install chromium), or name one in CHROMIUM')

export const startBrowser = (): Promise<Browser> =>
  chromium.launch({
    executablePath: CHROMIUM ?? '',
    // As root, in containers, its sandbox cannot be used; these pages are our own.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
    timeout: 60_000,
  })

export const SIZES = { wide: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } } as const

let axeSource: string | null = null

/** What axe finds wrong with a page as it is, each with its elements. */
export async function violationsOf(page: Page): Promise<string[]> {
  axeSource ??= readFileSync(Bun.resolveSync('axe-core/axe.min.js', import.meta.dir), 'utf8')
  if (!(await page.evaluate('"axe" in globalThis'))) await page.evaluate(axeSource)
  return await page.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ target, html }) => id + ': ' + target.join(' ') + ' ' + html.slice(0, 120))))`)
}

/** Runs `look` for each size and each theme; by day only for each size with one of the themes. */
export async function eachLook(page: Page, look: (name: string) => Promise<void>): Promise<void> {
  for (const [size, viewport] of Object.entries(SIZES))
    for (const colorScheme of ['light', 'dark'] as const) {
      if (!IS_NIGHTLY && (size === 'wide') !== (colorScheme === 'light')) continue
      await page.setViewportSize(viewport)
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      // What a page does about its new size, it does in the frame that shows it.
      await page.evaluate('new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))')
      await look(`${size} ${colorScheme}`)
    }
}

/** Looks at a page in each size and theme, and gathers in `wrong` what axe finds and what is wider than the screen. */
export function looksAt(page: Page): { look: (what: string) => Promise<void>; wrong: string[] } {
  const wrong: string[] = []
  const look = (what: string) =>
    eachLook(page, async (name) => {
      const faults = [...(await overflowOf(page)), ...(await violationsOf(page))]
      for (const each of faults) wrong.push(`${what}, ${name}: ${each}`)
    })
  return { look, wrong }
}

export async function overflowOf(page: Page): Promise<string[]> {
  const WIDE = 'document.documentElement.scrollWidth - innerWidth'
  // Charts are drawn again to a new width, some frames later.
  await page.waitForFunction(`${WIDE} <= 0`, undefined, { timeout: 5_000 }).catch(() => {}) // said below
  const wide = Number(await page.evaluate(WIDE))
  return wide > 0 ? [`${wide} pixels wider than the screen`] : []
}
