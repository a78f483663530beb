import backups from './guides/backups.md' with { type: 'text' }
import bounds from './guides/bounds.md' with { type: 'text' }
import caddy from './guides/caddy.md' with { type: 'text' }
import clients from './guides/clients.md' with { type: 'text' }
import erasure from './guides/erasure.md' with { type: 'text' }
import failures from './guides/failures.md' with { type: 'text' }
import fromUnkey from './guides/from-unkey.md' with { type: 'text' }
import haproxy from './guides/haproxy.md' with { type: 'text' }
import kubernetes from './guides/kubernetes.md' with { type: 'text' }
import logs from './guides/logs.md' with { type: 'text' }
import nginx from './guides/nginx.md' with { type: 'text' }
import postgres from './guides/postgres.md' with { type: 'text' }
import security from './guides/security.md' with { type: 'text' }
import sidecar from './guides/sidecar.md' with { type: 'text' }
import tuning from './guides/tuning.md' with { type: 'text' }
import { pageOf } from './page.ts'

/** A text to read from start to end, beside the reference. Its commands and examples are run by `test/docs/`. */
export type Guide = {
  /** Last part of its path, `/docs/<slug>`. */
  slug: string
  /** The Markdown: a `# Title`, a paragraph that says what it is for, then `## Parts`. */
  text: string
  title: string
  /** The paragraph under the title, without markup. */
  about: string
}

/** In the order in which they are shown. */
export const GUIDES: readonly Guide[] = [
  readGuide('clients', clients),
  readGuide('from-unkey', fromUnkey),
  readGuide('sidecar', sidecar),
  readGuide('nginx', nginx),
  readGuide('haproxy', haproxy),
  readGuide('caddy', caddy),
  readGuide('kubernetes', kubernetes),
  readGuide('postgres', postgres),
  readGuide('backups', backups),
  readGuide('failures', failures),
  readGuide('logs', logs),
  readGuide('security', security),
  readGuide('erasure', erasure),
  readGuide('tuning', tuning),
  readGuide('bounds', bounds),
]

/** The page at `/docs/<slug>`; `guides` is the list of them all. Null = no such guide. */
export function guidePage(slug: string): string | null {
  if (slug === 'guides')
    return pageOf({ title: 'Guides', section: '/docs/guides', side: sideOf(null), main: listOf() })
  const index = GUIDES.findIndex((guide) => guide.slug === slug)
  const guide = GUIDES[index]
  if (guide === undefined) return null
  return pageOf({
    title: guide.title,
    section: '/docs/guides',
    side: sideOf(guide),
    main: `<article class="prose">\n${htmlOf(guide)}${neighbours(index)}</article>`,
  })
}

/** Links to all guides, each with what it is for. */
export const guideCards = (): string =>
  `<ul class="cards">\n${GUIDES.map(
    ({ slug, title, about }) =>
      `<li><a href="/docs/${slug}"><b>${escapeHtml(title)}</b><span>${escapeHtml(about)}</span></a></li>`,
  ).join('\n')}\n</ul>`

/** @throws Error when the text does not begin as a guide does. */
function readGuide(slug: string, text: string): Guide {
  const [, title, about] = /^# (.+)\n\n((?:.+\n)+)/.exec(text) ?? []
  if (title === undefined || about === undefined)
    throw new Error(`the guide ${slug} wants a title and a paragraph`)
  return { slug, text, title, about: about.trim().replaceAll('\n', ' ').replaceAll('`', '') }
}

const render = (text: string) => Bun.markdown.html(text, { headings: true })

function htmlOf({ text }: Guide): string {
  return render(text).replace('<p>', '<p class="lead">')
}

const listOf = (): string => `<h1>Guides</h1>
<p class="lead">Their commands and examples are run by the tests, but for those that want Docker or a cluster.</p>
${guideCards()}`

/** All guides, and under the current one its parts. */
function sideOf(current: Guide | null): string {
  const links = GUIDES.map((guide) => {
    const isCurrent = guide === current
    const link = `<a href="/docs/${guide.slug}"${isCurrent ? ' aria-current="page"' : ''}>${escapeHtml(guide.title)}</a>`
    return isCurrent ? [link, ...partsOf(guide)].join('\n') : link
  })
  return `<h2>Guides</h2>\n${links.join('\n')}\n<h2>Reference</h2>\n<a href="/docs">All methods</a>`
}

/** The renderer itself says which id it gave a heading. */
const partsOf = ({ text }: Guide): string[] =>
  [...render(text).matchAll(/<h2 id="([^"]+)"><a [^>]+>(.*?)<\/a><\/h2>/g)].map(
    ([, id, title]) => `<a class="sub" href="#${id}">${title}</a>`,
  )

function neighbours(index: number): string {
  const [before, after] = [GUIDES[index - 1], GUIDES[index + 1]]
  return `<div class="next">
<span>${before === undefined ? '' : `← <a href="/docs/${before.slug}">${escapeHtml(before.title)}</a>`}</span>
<span>${after === undefined ? '' : `<a href="/docs/${after.slug}">${escapeHtml(after.title)}</a> →`}</span>
</div>`
}

const escapeHtml = (text: string) => Bun.escapeHTML(text)
