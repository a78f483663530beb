import failures from '../../docs/explanation/failures.md' with { type: 'text' }
import rateLimits from '../../docs/explanation/rate-limits.md' with { type: 'text' }
import security from '../../docs/explanation/security.md' with { type: 'text' }
import sizing from '../../docs/explanation/sizing.md' with { type: 'text' }
import faq from '../../docs/faq.md' with { type: 'text' }
import glossary from '../../docs/glossary.md' with { type: 'text' }
import backups from '../../docs/how-to/backups.md' with { type: 'text' }
import billing from '../../docs/how-to/billing.md' with { type: 'text' }
import caddy from '../../docs/how-to/caddy.md' with { type: 'text' }
import clients from '../../docs/how-to/clients.md' with { type: 'text' }
import dashboard from '../../docs/how-to/dashboard.md' with { type: 'text' }
import elysia from '../../docs/how-to/elysia.md' with { type: 'text' }
import erasure from '../../docs/how-to/erasure.md' with { type: 'text' }
import express from '../../docs/how-to/express.md' with { type: 'text' }
import fastify from '../../docs/how-to/fastify.md' with { type: 'text' }
import forwardAuth from '../../docs/how-to/forward-auth.md' with { type: 'text' }
import fromUnkey from '../../docs/how-to/from-unkey.md' with { type: 'text' }
import haproxy from '../../docs/how-to/haproxy.md' with { type: 'text' }
import hono from '../../docs/how-to/hono.md' with { type: 'text' }
import install from '../../docs/how-to/install.md' with { type: 'text' }
import keyRotation from '../../docs/how-to/key-rotation.md' with { type: 'text' }
import kubernetes from '../../docs/how-to/kubernetes.md' with { type: 'text' }
import monitoring from '../../docs/how-to/monitoring.md' with { type: 'text' }
import nginx from '../../docs/how-to/nginx.md' with { type: 'text' }
import postgres from '../../docs/how-to/postgres.md' with { type: 'text' }
import runbook from '../../docs/how-to/runbook.md' with { type: 'text' }
import severalServers from '../../docs/how-to/several-servers.md' with { type: 'text' }
import sidecar from '../../docs/how-to/sidecar.md' with { type: 'text' }
import tenants from '../../docs/how-to/tenants.md' with { type: 'text' }
import tuning from '../../docs/how-to/tuning.md' with { type: 'text' }
import upgrade from '../../docs/how-to/upgrade.md' with { type: 'text' }
import bounds from '../../docs/reference/bounds.md' with { type: 'text' }
import cli from '../../docs/reference/cli.md' with { type: 'text' }
import configuration from '../../docs/reference/configuration.md' with { type: 'text' }
import errors from '../../docs/reference/errors.md' with { type: 'text' }
import logs from '../../docs/reference/logs.md' with { type: 'text' }
import metrics from '../../docs/reference/metrics.md' with { type: 'text' }
import tutorial from '../../docs/tutorial.md' with { type: 'text' }
import { STATUSES } from '../doors/v1/statuses.ts'
import { PROBLEMS } from '../doors/v2/problems.ts'
import { ALL_ERRORS, type AnyErrorCode } from '../errors.ts'
import type { OpenApiDocument } from './openapi.ts'
import { pageOf } from './page.ts'

/** A page of `docs/`, served at `/docs/<slug>`. `test/docs/` runs its commands and examples. */
export type Doc = {
  /** Name of its file, and last part of its path. */
  slug: string
  /** The Markdown: a `# Title`, a paragraph with the page's purpose, then `## Parts`. */
  text: string
  title: string
  /** The paragraph under the title, without markup. */
  about: string
}

/** Pages by the reader's purpose, in the order in which they are shown. */
export const PURPOSES: readonly { name: string; about: string; docs: readonly Doc[] }[] = [
  {
    name: 'Start',
    about: 'Learn Tollgate step by step.',
    docs: [readDoc('tutorial', tutorial), readDoc('faq', faq), readDoc('glossary', glossary)],
  },
  {
    name: 'Install and move',
    about: 'How-to guides: install Tollgate, or move to it.',
    docs: [
      readDoc('install', install),
      readDoc('from-unkey', fromUnkey),
      readDoc('postgres', postgres),
      readDoc('kubernetes', kubernetes),
      readDoc('several-servers', severalServers),
      readDoc('sidecar', sidecar),
    ],
  },
  {
    name: 'Connect your code',
    about: 'How-to guides: call Tollgate from a program or a proxy.',
    docs: [
      readDoc('clients', clients),
      readDoc('express', express),
      readDoc('fastify', fastify),
      readDoc('hono', hono),
      readDoc('elysia', elysia),
      readDoc('forward-auth', forwardAuth),
      readDoc('billing', billing),
      readDoc('tenants', tenants),
    ],
  },
  {
    name: 'Put a proxy in front',
    about: 'How-to guides: TLS, a public address, and key checks in front of your application.',
    docs: [readDoc('nginx', nginx), readDoc('haproxy', haproxy), readDoc('caddy', caddy)],
  },
  {
    name: 'Operate',
    about: 'How-to guides: run Tollgate in production.',
    docs: [
      readDoc('dashboard', dashboard),
      readDoc('monitoring', monitoring),
      readDoc('runbook', runbook),
      readDoc('backups', backups),
      readDoc('upgrade', upgrade),
      readDoc('key-rotation', keyRotation),
      readDoc('erasure', erasure),
      readDoc('tuning', tuning),
    ],
  },
  {
    name: 'Reference',
    about: 'Every name, default and bound.',
    docs: [
      readDoc('configuration', configuration),
      readDoc('bounds', bounds),
      readDoc('metrics', metrics),
      readDoc('logs', logs),
      readDoc('errors', errors),
      readDoc('cli', cli),
    ],
  },
  {
    name: 'Explanation',
    about: 'How it works, and why.',
    docs: [
      readDoc('rate-limits', rateLimits),
      readDoc('failures', failures),
      readDoc('sizing', sizing),
      readDoc('security', security),
    ],
  },
]
export const DOCS: readonly Doc[] = PURPOSES.flatMap(({ docs }) => docs)

/** The page at `/docs/<slug>`; null = there is none. */
export function docPage(slug: string, api: OpenApiDocument): string | null {
  const index = DOCS.findIndex((doc) => doc.slug === slug)
  const doc = DOCS[index]
  if (doc === undefined) return null
  return pageOf({
    title: doc.title,
    section: '/docs',
    side: sideOf(doc),
    main: `<article class="prose">\n${atHome(htmlOf(doc, methodsOf(api)), api)}${neighbours(index)}</article>`,
  })
}

/** Titles, purposes and headings of all pages, for the filter of the API reference. */
export const guideWords = (): { href: string; title: string; words: string }[] =>
  DOCS.map((doc) => ({
    href: `/docs/${doc.slug}`,
    title: doc.title,
    words: [
      doc.slug,
      doc.title,
      doc.about,
      ...doc.text.matchAll(/^#{2,3} (.*)$/gm).map(([, heading]) => heading),
    ]
      .join(' ')
      .toLowerCase(),
  }))

/** The page at `/docs`: search, all pages by purpose, all methods, all sections. */
export function homePage(api: OpenApiDocument): string {
  return pageOf({
    title: 'Documentation',
    section: '/docs',
    side: sideOf(null),
    main: `<h1>Documentation</h1>
<p class="lead">API keys, rate limits and usage: how to run Tollgate, and how to call it.</p>
<div class="search" id="search" hidden><input type="search" placeholder="Search everything  /" aria-label="Search the documentation"><output></output></div>
<ol class="hits" id="hits" hidden></ol>
<div id="contents">
${PURPOSES.map(
  ({ name, about, docs }) =>
    `<h2 class="purpose" id="${idOf(name)}">${name}</h2>\n<p class="about">${about}</p>\n${cardsOf(docs)}`,
).join('\n')}
<h2 class="purpose" id="api">API methods</h2>
<p class="about">Fields, answers, errors and an example of each are in the <a href="/docs/api">API reference</a>.</p>
${methodList(api)}
<details class="index"><summary>All sections of all pages</summary>
<ul>
${entriesOf(api).map(indexItem).join('\n')}
</ul>
</details>
</div>`,
  })
}

/** @throws Error when the text does not begin like a page of the documentation. */
function readDoc(slug: string, text: string): Doc {
  const [, title, about] = /^# (.+)\n\n((?:.+\n)+)/.exec(text) ?? []
  if (title === undefined || about === undefined)
    throw new Error(`docs: ${slug}.md needs a title and a paragraph`)
  return { slug, text, title, about: about.trim().replaceAll('\n', ' ').replaceAll('`', '') }
}

/** Commands to copy ask this server, not the port that the texts are written for. */
function atHome(html: string, { servers }: OpenApiDocument): string {
  const base = servers[0]?.url ?? ''
  const { protocol, port } = new URL(base)
  const here = html.replaceAll(/http:\/\/(127\.0\.0\.1|localhost):3000/g, base)
  // Behind a public address, what proxies ask is another one, which only the operator knows.
  return protocol === 'http:' && port !== ''
    ? here.replaceAll(/(127\.0\.0\.1|localhost):3000\b/g, `$1:${port}`)
    : here
}

const methodsOf = ({ paths }: OpenApiDocument): ReadonlySet<string> =>
  new Set(Object.values(paths).flatMap((path) => Object.values(path).map(({ operationId }) => operationId)))

function htmlOf({ text }: Doc, methods: ReadonlySet<string>): string {
  return render(text)
    .replace('<p>', '<p class="lead">')
    .replace(HEADING_LINK_OR_CODE, (part, prefix?: string, name?: string) => {
      // A method that only the v2 API has is named without its path too.
      const id = [prefix === '/v2/' ? '' : name, `v2.${name}`].find((each) => methods.has(each ?? ''))
      return id === undefined ? part : `<a href="/docs/api#${id}">${part}</a>`
    })
}

/** Finds names of methods, to link them. Headings and links are skipped, as they lead somewhere already. */
const HEADING_LINK_OR_CODE =
  /<h[1-6].*?<\/h[1-6]>|<a .*?<\/a>|<code>(\/v[12]\/)?([a-zA-Z]+\.[a-zA-Z]+)<\/code>/g

/** Turns links between files into links between pages. The id of a heading that is one name of a log event is that name. */
const render = (text: string): string =>
  Bun.markdown
    .html(text, { headings: true })
    .replaceAll(
      /<h3 id="[^"]+"><a href="[^"]+"><code>([a-z_]+)<\/code>/g,
      '<h3 id="$1"><a href="#$1"><code>$1</code>',
    )
    .replaceAll(/href="(?:[\w-]+\/|\.\.\/)*([\w-]+)\.md(#[^"]*)?"/g, 'href="/docs/$1$2"')

const cardsOf = (docs: readonly Doc[]): string =>
  `<ul class="cards">\n${docs
    .map(
      ({ slug, title, about }) =>
        `<li><a href="/docs/${slug}"><b>${escapeHtml(title)}</b><span>${escapeHtml(about)}</span></a></li>`,
    )
    .join('\n')}\n</ul>`

/** Each method has the same id as in the reference, so a link that leads here by mistake is one click away from it. */
function methodList({ 'x-tagGroups': apis, tags, paths }: OpenApiDocument): string {
  const operations = Object.values(paths).flatMap((path) => Object.values(path).slice(0, 1))
  return apis
    .map(({ name, tags: own }) => {
      const groups = tags.filter((tag) => own.includes(tag.name))
      return `<h3>${name}</h3>\n<dl class="methods">\n${groups
        .map(
          (tag) =>
            `<dt>${escapeHtml(tag.name)}</dt><dd>${operations
              .filter((operation) => operation.tags.includes(tag.name))
              .map(
                ({ operationId }) =>
                  `<a id="${operationId}" href="/docs/api#${operationId}">${operationId.split('.').at(-1)}</a>`,
              )
              .join(' ')}</dd>`,
        )
        .join('\n')}\n</dl>`
    })
    .join('\n')
}

/** A result of the search: a section of a page, a method, an error code. */
type Entry = { href: string; page: string; title: string; text: string }

function entriesOf(api: OpenApiDocument): Entry[] {
  const methods = Object.entries(api.paths).flatMap(([path, operations]) =>
    Object.values(operations)
      .slice(0, 1)
      .map(({ operationId, summary, description = '', parameters = [], requestBody }) => ({
        href: `/docs/api#${operationId}`,
        page: `API ${operationId.startsWith('v2.') ? 'v2' : 'v1'}`,
        title: operationId.replace(/^v2\./, ''),
        text: [
          `${summary}.`,
          description,
          path,
          ...parameters.map(({ name }) => name),
          ...Object.keys(requestBody?.content['application/json'].schema.properties ?? {}),
        ]
          .join(' ')
          .replaceAll('`', ''),
      })),
  )
  const errors = Object.entries(ALL_ERRORS).map(([code, { about, remedy }]) => ({
    href: `/errors/${code}`,
    page: 'Errors',
    title: code,
    text: `${STATUSES[code as AnyErrorCode]}. ${about} ${remedy}`, // a code of the object
  }))
  const problems = Object.entries(PROBLEMS).map(([type, { status, about, remedy }]) => ({
    href: `/errors/${type}`,
    page: 'Errors of v2',
    title: type,
    text: `${status}. ${about} ${remedy}`.replaceAll('`', ''),
  }))
  return [...DOCS.flatMap(sectionsOf), ...methods, ...errors, ...problems]
}

/** The page up to its first heading, then each part and each section. */
function sectionsOf({ slug, title, text }: Doc): Entry[] {
  const [head = '', ...parts] = render(text).split(/(?=<h[23] id=)/)
  const href = `/docs/${slug}`
  return [
    { href, page: title, title, text: textOf(head.replace(/<h1.*?<\/h1>/, '')) },
    ...parts.map((part) => {
      const [heading = '', id = ''] = /^<h[23] id="([^"]+)">.*?<\/h[23]>/.exec(part) ?? []
      return {
        href: `${href}#${id}`,
        page: title,
        title: textOf(heading),
        text: textOf(part.slice(heading.length)),
      }
    }),
  ]
}

const indexItem = ({ href, page, title, text }: Entry): string =>
  `<li data-text="${escapeHtml(text)}"><a href="${href}">${escapeHtml(title)}</a> <small>${escapeHtml(page)}</small></li>`

/** The text of rendered HTML, on one line. */
function textOf(html: string): string {
  return html
    .replaceAll(/<\/?(code|a|b|strong|em|i)\b[^>]*>/g, '')
    .replaceAll(/<[^>]+>/g, ' ')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
    .replaceAll(/\s+/g, ' ')
    .trim()
}

/** All pages by purpose. The parts of the current page are below it. */
function sideOf(current: Doc | null): string {
  const groups = PURPOSES.map(({ name, docs }) =>
    [
      `<h2>${name}</h2>`,
      ...docs.flatMap((doc) => {
        const isCurrent = doc === current
        const link = `<a href="/docs/${doc.slug}"${isCurrent ? ' aria-current="page"' : ''}>${escapeHtml(doc.title)}</a>`
        return isCurrent ? [link, ...partsOf(doc)] : [link]
      }),
    ].join('\n'),
  )
  const search = current === null ? '' : '<a class="find" href="/docs#search">Search <i>/</i></a>\n'
  return `${search}${groups.join('\n')}\n<h2>API</h2>\n<a href="/docs/api">All methods</a>`
}

/** Headings with the ids that the renderer gave them. */
const partsOf = ({ text }: Doc): string[] =>
  [...render(text).matchAll(/<h2 id="([^"]+)"><a [^>]+>(.*?)<\/a><\/h2>/g)].map(
    ([, id, title]) => `<a class="sub" href="#${id}">${title}</a>`,
  )

function neighbours(index: number): string {
  const [before, after] = [DOCS[index - 1], DOCS[index + 1]]
  return `<div class="next">
<span>${before === undefined ? '' : `← <a href="/docs/${before.slug}">${escapeHtml(before.title)}</a>`}</span>
<span>${after === undefined ? '' : `<a href="/docs/${after.slug}">${escapeHtml(after.title)}</a> →`}</span>
</div>`
}

const idOf = (name: string) => name.toLowerCase().replaceAll(' ', '-')

const escapeHtml = (text: string) => Bun.escapeHTML(text)
