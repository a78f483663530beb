import { Content } from '../doors/http/content.ts'
import { FAVICON } from '../pages/favicon.ts'
import { makeBundle } from './bundle.ts'
import { BUNDLED } from './bundled.ts'

/** What `/dashboard` serves: one HTML page for all screens, and its files by name. */
export type Assets = { html: Content; files: ReadonlyMap<string, Content> }

let made: Promise<Assets> | null = null

/** Made once for each thread, at the first request. */
export function dashboardAssets(): Promise<Assets> {
  made ??= makeAssets().catch((cause: unknown) => {
    made = null // the next request tries again
    throw cause
  })
  return made
}

async function makeAssets(): Promise<Assets> {
  const { scripts, entry, first, style } = BUNDLED ?? (await makeBundle())
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tollgate</title>
<link rel="icon" href="${FAVICON.path}">
<link rel="stylesheet" href="${PATH}${style.name}">
<script type="module" src="${PATH}${entry}"></script>
${first.map((name) => `<link rel="modulepreload" href="${PATH}${name}">\n`).join('')}</head>
<body>
<div id="app"></div>
<noscript><p>The dashboard needs JavaScript. The <a href="/docs">documentation</a> does not.</p></noscript>
</body>
</html>
`
  return {
    html: new Content('text/html; charset=utf-8', html),
    files: new Map([
      ...scripts.map(
        ({ name, text }) => [name, new Content('text/javascript; charset=utf-8', text)] as const,
      ),
      [style.name, new Content('text/css; charset=utf-8', style.text)],
    ]),
  }
}

const PATH = '/dashboard/assets/'
