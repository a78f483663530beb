import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { VARIABLES } from '../../src/config.ts'
import { PROBLEMS, TYPE_BASE } from '../../src/doors/v2/problems.ts'
import { ALL_ERRORS } from '../../src/errors.ts'
import { DOCS as PAGES } from '../../src/pages/docs.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { runHere } from '../support/command-line.ts'
import { startTestServer, type TestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ALL_BLOCKS, DOCS, PATHS, ROOT } from './blocks.ts'
import { METRIC_FAMILIES } from './made.ts'

setDefaultTimeout(SLOW_MS)

/** Codes of v1, and types of v2. */
const ERROR_NAMES = [...Object.keys(ALL_ERRORS), ...Object.keys(PROBLEMS)]

let server: TestServer
/** Every page of the server, by path. */
const pages = new Map<string, string>()
beforeAll(async () => {
  server = await startTestServer()
  const paths = [
    '/docs',
    '/docs/api',
    '/docs/guides', // earlier address of the list of pages
    ...PAGES.map(({ slug }) => `/docs/${slug}`),
    ...ERROR_NAMES.map((name) => `/errors/${name}`),
  ]
  for (const path of paths) {
    const response = await fetch(`${server.url}${path}`)
    expect([path, response.status, response.headers.get('content-type')]).toEqual([
      path,
      200,
      'text/html; charset=utf-8',
    ])
    pages.set(path, await response.text())
  }
})
afterAll(() => server[Symbol.asyncDispose]())

test('every page in the folders is served, and another path is a 404 that says so', async () => {
  // The page of the API is the reference itself.
  const names = Object.keys(DOCS).filter((doc) => doc !== 'README' && doc !== 'api')
  expect(PAGES.map(({ slug }) => slug).sort()).toEqual(names.sort())
  for (const name of ['nothing', 'constructor', '..%2Fdocs']) {
    const response = await fetch(`${server.url}/docs/${name}`)
    expect(response.status).toBe(404)
    expect(await response.json()).toMatchObject({ error: { code: 'NOT_FOUND' } })
  }
})

test('a page shows its title, its parts in the column of links, and links to other pages', () => {
  for (const [index, { slug, title, text }] of PAGES.entries()) {
    const page = pages.get(`/docs/${slug}`) ?? ''
    expect(page).toContain(`<title>${Bun.escapeHTML(title)} · Tollgate</title>`)
    expect(page.match(/<h1\b/g)).toHaveLength(1)
    for (const [, part = ''] of text.matchAll(/^## (.+)$/gm))
      expect(page).toMatch(
        new RegExp(`<a class="sub" href="#[^"]+">${RegExp.escape(Bun.escapeHTML(part))}</a>`),
      )
    for (const other of [PAGES[index - 1], PAGES[index + 1]])
      if (other !== undefined) expect(page).toContain(`<a href="/docs/${other.slug}">`)
  }
})

const OTHER_PAGES = ['/openapi.json', '/dashboard']

test('every link on every page leads to an existing page and section', () => {
  const broken: string[] = []
  for (const [path, page] of pages) {
    for (const [, href = ''] of page.matchAll(/\bhref="([^"]*)"/g)) {
      const { origin, pathname, hash } = new URL(href, `${server.url}${path}`)
      const target = OTHER_PAGES.includes(pathname) ? '' : pages.get(pathname)
      const isThere = target !== undefined && (hash === '' || target.includes(`id="${hash.slice(1)}"`))
      if (origin !== server.url || !isThere) broken.push(`${path}: ${href}`)
    }
  }
  expect(broken).toEqual([])
})

/** The same texts are read in the repository, where links lead from file to file. */
test('every link in README and the docs leads to an existing file', () => {
  const broken = Object.entries(DOCS).flatMap(([doc, text]) =>
    [...text.matchAll(/\]\((?!https?:|#)([^)#]*)(#[^)]*)?\)/g)].flatMap(([link, target = '']) =>
      existsSync(join(ROOT, dirname(PATHS[doc] ?? ''), target)) ? [] : [`${doc}: ${link}`],
    ),
  )
  expect(broken).toEqual([])
})

describe('search', () => {
  const items = () => [
    ...(pages.get('/docs') ?? '').matchAll(
      /<li data-text="([^"]*)"><a href="([^"]+)">(.*?)<\/a> <small>(.*?)<\/small><\/li>/g,
    ),
  ]

  test('finds every section of every page, every method and every error', () => {
    const places = new Set(items().map(([, , href]) => href))
    for (const [path, page] of pages)
      if (PAGES.some(({ slug }) => path === `/docs/${slug}`))
        for (const [, id] of page.matchAll(/<h[23] id="([^"]+)">/g)) expect(places).toContain(`${path}#${id}`)
    for (const { path } of allEndpoints)
      expect(places).toContain(`/docs/api#${path.slice(1).replace(/^v1\//, '').replace('/', '.')}`)
    for (const name of ERROR_NAMES) expect(places).toContain(`/errors/${name}`)
  })

  test('covers all words of a page, and no markup', () => {
    const texts = items().map(([, text = '']) => text)
    expect(texts.filter((text) => /&lt;\/?(p|code|td|a|h2)\b/.test(text))).toEqual([])
    for (const { slug, text } of PAGES) {
      const said = items()
        .filter(([, , href]) => href?.replace(/#.*/, '') === `/docs/${slug}`)
        .map(([, words, , title]) => `${title} ${words}`)
        .join(' ')
      const plain = text.replaceAll(/^(```|<!--).*$/gm, '').replaceAll(/\]\([^)]*\)/g, ' ')
      for (const word of new Set(plain.match(/[a-z]{4,}/g)))
        expect([slug, word, said.includes(word)]).toEqual([slug, word, true])
    }
  })
})

/** Pages must work without internet access. */
test('no page loads anything, and no id is used twice', () => {
  for (const [path, page] of pages) {
    expect([path, page.match(/<(link|img|iframe|base)\b|\bsrc=|@import|url\(/g)]).toEqual([path, null])
    const ids = [...page.matchAll(/\bid="([^"]+)"/g)].map(([, id]) => id)
    expect([path, ids.filter((id, index) => ids.indexOf(id) !== index)]).toEqual([path, []])
  }
})

test('the page of an error has an example in the form that the server answers', async () => {
  const { body } = await server.get('apis.getApi', { apiId: 'api_1' })
  const { code, docs } = body.error
  const page = pages.get(`/errors/${code}`) ?? ''
  expect(page).toContain(Bun.escapeHTML(`"code": "${code}"`))
  expect(page).toContain(Bun.escapeHTML(`"docs": "${docs}"`))
})

test('the page of a type of v2 is at its last three parts, with an example in the form that the server answers', async () => {
  const { rootKey } = await server.workspace()
  const { body } = await server.post('/v2/apis.getApi', { apiId: 'api_12345678' }, rootKey)
  const { type, title } = body.error
  const page = pages.get(`/errors/${type.slice(TYPE_BASE.length)}`) ?? ''
  for (const line of [`"type": "${type}"`, `"title": "${title}"`])
    expect(page).toContain(Bun.escapeHTML(line))
  for (const path of ['unkey/data/nothing', 'unkey/data', 'unkey/data/key_not_found/more'])
    expect((await fetch(`${server.url}/errors/${path}`)).status).toBe(404)
})

/** An outdated name sends the reader looking for something that does not exist. */
describe('things named in README and the docs exist', () => {
  const texts = Object.entries(DOCS)
  const unknownIn = (pattern: RegExp, isKnown: (name: string) => boolean) =>
    texts.flatMap(([doc, text]) =>
      [...text.matchAll(pattern)].flatMap(([, name = '']) => (isKnown(name) ? [] : [`${doc}: ${name}`])),
    )

  test('methods', () => {
    const paths = allEndpoints.map(({ path }): string => path)
    const methods = paths.map((path) => path.slice('/v1/'.length))
    const groups = new Set(methods.map((name) => name.split('.')[0] ?? ''))
    const isKnown = (name: string) => methods.includes(name) || !groups.has(name.split('.')[0] ?? '')
    expect(unknownIn(/`([a-zA-Z]+\.[a-zA-Z]+)`/g, isKnown)).toEqual([])
    expect(unknownIn(/(\/v[12]\/[a-zA-Z]+\.[a-zA-Z]+)/g, (path) => paths.includes(path))).toEqual([])
  })

  test('variables', () => {
    expect(unknownIn(/\b(TOLLGATE_[A-Z_]*[A-Z])\b/g, (name) => name in VARIABLES)).toEqual([])
  })

  test('metrics', () => {
    const names = METRIC_FAMILIES.map(({ name }) => name)
    expect(
      unknownIn(/\b(tollgate_(?:[a-z]+_)+(?:total|bytes|seconds|ratio|up|budget|info|writable))\b/g, (name) =>
        names.includes(name),
      ),
    ).toEqual([])
    expect(unknownIn(/`(tollgate_(?!…)[a-z_]+[a-z])`/g, (name) => names.includes(name))).toEqual([])
  })

  test('commands and their options', async () => {
    const isKnown = async (words: string): Promise<boolean> => {
      const [command = '', ...options] = words.split(/ (?=--)/)
      const names = command.split(' ').filter((word) => /^[a-z-]+$/.test(word))
      const text = (await runHere([...names, '--help'])).out
      const isCommand =
        names[0] === '--help' || text.startsWith(`usage: tollgate ${names.slice(0, 1).join(' ')}`)
      return isCommand && options.every((option) => text.includes(option.split(' ')[0] ?? ''))
    }
    const named = new Set(
      texts.flatMap(([, text]) =>
        [...text.matchAll(/`(?:bun run )?tollgate ([a-z][^`]*)`/g)].map(([, words = '']) => words),
      ),
    )
    expect(named.size).toBeGreaterThan(5)
    const unknown = await Promise.all(
      [...named].map(async (words) => ((await isKnown(words)) ? [] : [words])),
    )
    expect(unknown.flat()).toEqual([])
  })
})

/** The rest of the suite runs them, but would miss blocks in an unknown language. */
test('blocks are only in languages that the tests beside this one run', () => {
  const known = ['sh', 'ts', 'nginx', 'caddyfile', 'haproxy', 'lua', 'yaml', 'ini']
  expect(ALL_BLOCKS.filter(({ language }) => !known.includes(language))).toEqual([])
})
