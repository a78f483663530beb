import { VERSION } from '../lib/version.ts'
import { SCRIPT, STYLE } from './page-assets.ts'
import { SEND_SCRIPT } from './send-script.ts'

export type Page = {
  /** Title of the browser's tab, before the server's name. */
  title: string
  /** Path of the current entry of the navigation bar; null = none. */
  section: '/docs' | '/docs/api' | null
  /** HTML of the column of links on the left; null = none. */
  side: string | null
  /** HTML. */
  main: string
  /** True = methods can be sent from it, through the dashboard. */
  isSending?: boolean
}

/** A whole HTML document with the bar, style and script that all pages share. */
export const pageOf = ({ title, section, side, main, isSending = false }: Page): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policyOf(isSending)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${Bun.escapeHTML(title)} · Tollgate</title>
<style>${STYLE}</style>
<script>${SCRIPT}</script>${isSending ? `\n<script>${SEND_SCRIPT}</script>` : ''}
</head>
<body>
<a class="skip" href="#top">Skip to the text</a>
<header class="bar">
<button id="menu" aria-controls="side" aria-expanded="false">Menu</button>
<a class="home" href="/docs">Tollgate <small>${Bun.escapeHTML(VERSION)}</small></a>
<nav aria-label="Pages">
${SECTIONS.map(({ path, name }) => `<a href="${path}"${path === section ? ' aria-current="page"' : ''}>${name}</a>`).join('\n')}
<a class="extra" href="/openapi.json">openapi.json</a>
</nav>
<button id="theme" hidden></button>
</header>
${side === null ? '' : `<div class="layout">\n<nav class="side" id="side" aria-label="On this page">\n${side}\n</nav>`}
<main id="top">
${main}
</main>
${side === null ? '' : '</div>'}
</body>
</html>
`

const SECTIONS = [
  { path: '/docs', name: 'Docs' },
  { path: '/docs/api', name: 'API' },
] as const

/** Allows these scripts only, and loading nothing. Also in the page itself, for copies that people save. */
const policyOf = (isSending: boolean): string =>
  [
    "default-src 'none'",
    `script-src '${hashOf(SCRIPT)}'${isSending ? ` '${hashOf(SEND_SCRIPT)}'` : ''}`,
    `style-src '${hashOf(STYLE)}'`,
    "img-src 'self'",
    ...(isSending ? ["connect-src 'self'"] : []),
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ')

const headerOf = (isSending: boolean) => `${policyOf(isSending)}; frame-ancestors 'none'`

/** The policy as a header, which can also forbid frames. */
export const PAGE_POLICY = headerOf(false)
export const SENDING_PAGE_POLICY = headerOf(true)

function hashOf(text: string): string {
  return `sha256-${new Bun.CryptoHasher('sha256').update(text).digest('base64')}`
}
