import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Elysia } from 'elysia'
import { Hono, type MiddlewareHandler } from 'hono'
import packageJson from '../../package.json' with { type: 'json' }
import { baseObjects } from '../deploy/manifests.ts'
import { makeApi, makeKey } from '../support/fixtures.ts'
import { sendRaw } from '../support/raw.ts'
import {
  type Json,
  OPERATOR_KEY,
  startTestServer,
  type TestServer,
  type TestWorkspace,
} from '../support/server.ts'
import { batchesOf, hostileRequests } from '../support/spellings.ts'
import { SLOW_MS } from '../support/timeout.ts'
import { ALL_BLOCKS, type Block, blockWith, DOCS, PATIENT, ROOT } from './blocks.ts'

/** Compiles every TypeScript block of README and the docs, and runs it against a server. */
setDefaultTimeout(SLOW_MS)

let folder: string
let server: TestServer
let workspace: TestWorkspace
let apiId: string
const closing = new AsyncDisposableStack()
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tollgate-test-ts-'))
  closing.defer(() => rmSync(folder, { recursive: true, force: true }))
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  server = closing.use(
    await startTestServer({ env: { ...PATIENT, TOLLGATE_SOCKET: join(folder, 'tollgate.sock') } }),
  )
  workspace = await server.workspace()
  apiId = await makeApi(workspace)
  process.env.API_ID = apiId // read by the middlewares
})
afterAll(() => closing.disposeAsync())

const blocks = ALL_BLOCKS.filter(({ language }) => language === 'ts')
const nameOf = ({ doc, line }: Block) => `${doc}-${line}`

/**
 * Writes the block to a file with this server's address, and longer time limits, as a slow machine is not an error.
 * @returns its path.
 */
function save(block: Block): string {
  return saveAs(
    nameOf(block),
    block.text
      .replace(/AbortSignal\.timeout\(\d+\)/, 'AbortSignal.timeout(20_000)')
      .replace(/\b(timeoutMs|ms): \d+/, '$1: 20_000'),
    server.url,
  )
}

function saveAs(name: string, text: string, url: string): string {
  const path = join(folder, `${name}.ts`)
  writeFileSync(path, text.replaceAll('http://127.0.0.1:3000', url))
  return path
}

/** With this project's compiler options. The manifest is checked by types too. */
test('all of them compile, and the manifest is valid for Kubernetes', async () => {
  const files = blocks.map((block) => save(block))
  const manifest = join(folder, 'manifest.ts')
  writeFileSync(manifest, manifestAsCode())
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({
      extends: join(ROOT, 'tsconfig.json'),
      compilerOptions: { noUnusedLocals: false, typeRoots: [join(ROOT, 'node_modules')] },
      include: [],
      files: [...files, manifest],
    }),
  )
  const child = Bun.spawn([join(ROOT, 'node_modules/.bin/tsc'), '-p', folder], { stdout: 'pipe' })
  const problems = await new Response(child.stdout).text()
  expect({ problems, code: await child.exited }).toEqual({ problems: '', code: 0 })
})

/** The compiler knows the fields: a misspelt one is an excess property. */
function manifestAsCode(): string {
  const ingress = Bun.YAML.parse(blockWith('kubernetes', 'yaml', 'kind: Ingress').text)
  const types: Record<string, string> = {
    Ingress: 'networking.k8s.io/v1',
    NetworkPolicy: 'networking.k8s.io/v1',
    PodDisruptionBudget: 'policy/v1',
    Service: 'v1',
    StatefulSet: 'apps/v1',
  }
  const objects = [...baseObjects(), ingress as Json] // compiled
  return objects
    .map(
      (object, index) => `import type { I${object.kind} } from 'kubernetes-models/${types[object.kind]}'
export const object${index}: I${object.kind} = ${JSON.stringify(object)}
`,
    )
    .join('')
}

/** An Express or Fastify application in its own file beside the middleware. */
const APPLICATIONS = {
  express: `import express from 'express'
export const listen = (middleware) => new Promise((resolve) => {
  const app = express()
  app.use('/documents', middleware)
  let reached = 0
  app.get('/documents/1', (_, res) => { reached++; res.send(res.locals.verdict.keyId ?? 'nobody') })
  const server = app.listen(0, '127.0.0.1', () =>
    resolve({ port: server.address().port, reached: () => reached, close: () => server.close() }))
})
`,
  fastify: `import Fastify from 'fastify'
export const listen = async (hook) => {
  const app = Fastify()
  app.decorateRequest('verdict', null)
  app.addHook('onRequest', hook)
  let reached = 0
  app.get('/documents/1', (request) => { reached++; return request.verdict?.keyId ?? 'nobody' })
  const port = Number(new URL(await app.listen({ port: 0, host: '127.0.0.1' })).port)
  return { port, reached: () => reached, close: () => app.close() }
}
`,
}

/**
 * @param path Path of the middleware.
 * @returns a function that sends requests to the application behind it over the network.
 */
async function appOf(name: keyof typeof APPLICATIONS, path: string, whenUnknown: WhenUnknown): Promise<App> {
  type Running = { port: number; reached: () => number; close: () => unknown }
  const application: { listen: (middleware: unknown) => Promise<Running> } = await import(
    saveAs(`${name}-application`, APPLICATIONS[name], server.url)
  )
  const module: { tollgate: (whenUnknown: WhenUnknown) => unknown } = await import(path)
  const { port, reached, close } = await application.listen(module.tollgate(whenUnknown))
  closing.defer(async () => {
    await close()
  })
  const ask = async (request: Request) => {
    const { pathname, search } = new URL(request.url)
    return await fetch(`http://127.0.0.1:${port}${pathname}${search}`, {
      headers: request.headers,
      redirect: 'manual',
    })
  }
  return Object.assign(ask, { own: { url: `http://127.0.0.1:${port}/`, reached } })
}

/** Serves an application without a server of its own with Bun's. */
function serve(app: App, closing: AsyncDisposableStack): NonNullable<App['own']> {
  let reached = 0
  const served = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async (request) => {
      const answer = await app(request)
      if (answer.status < 300) reached++
      return answer
    },
  })
  closing.defer(() => served.stop(true))
  return { url: served.url.href, reached: () => reached }
}

/** Documents whose block is a program, and its output. */
const PROGRAMS: [string, string, RegExp][] = [
  ['README', '@unkey/api', /^VALID$/m],
  ['clients', "from '@unkey/api'", /^true VALID user_123\nkey key_unknown not found$/m],
  ['clients', '@unkey/ratelimit', /^true$/m],
  ['from-unkey', "from '@unkey/api'", /^true$/m],
  ['from-unkey', '@unkey/hono', /^200 hello$/m],
  ['sidecar', 'unix:', /^go on$/m],
]
/** The tutorial's program is a server: `commands.test.ts` runs it with its commands. */
const RUN_WITH_ITS_COMMANDS = blockWith('tutorial', 'ts', 'Bun.serve')
test.each(PROGRAMS)('%s: the program with %s does its job', async (doc, text, expected) => {
  const { key } = await makeKey(workspace, apiId)
  const child = Bun.spawn([process.execPath, save(blockWith(doc, 'ts', text))], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', ROOT_KEY: workspace.rootKey, KEY: key },
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const [written, problems] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ])
  expect({ problems, code: await child.exited }).toEqual({ problems: '', code: 0 })
  expect(written).toMatch(expected)
})

/** A client of another version may call paths that this server does not have. */
test('wherever the docs install a client, its version is one that is tested', () => {
  const { '@unkey/api': newest, 'unkey-api-v1': first } = packageJson.devDependencies
  const named = Object.values(DOCS).flatMap((text) => [...text.matchAll(/@unkey\/api@([\d.]*\d)/g)])
  expect(named.length).toBeGreaterThan(0)
  for (const [, version] of named) expect(first).toStartWith(`npm:@unkey/api@${version}.`)
  // Without a version the reader gets the newest.
  expect(newest).toStartWith('2.')
  expect(Object.values(DOCS).filter((text) => text.includes('`npm install @unkey/api`')).length).toBe(2)
})

test('every block is run as a program or as a middleware', () => {
  const run = [
    ...PROGRAMS.map(([doc, text]) => nameOf(blockWith(doc, 'ts', text))),
    ...FRAMEWORKS.map(({ block }) => nameOf(block)),
    nameOf(RUN_WITH_ITS_COMMANDS),
  ]
  expect(run.sort()).toEqual(blocks.map(nameOf).sort())
})

type WhenUnknown = 'pass' | 'refuse'
/** `own`: its own server, which counts how often the protected part was reached. */
type App = ((request: Request) => Promise<Response>) & { own?: { url: string; reached: () => number } }
type Ask = (headers?: Record<string, string>) => Promise<Response>
const asking =
  (app: App): Ask =>
  (headers = {}) =>
    app(new Request('http://localhost/documents/1', { headers }))
type Framework = {
  name: string
  block: Block
  /** An application that answers with the key's id, behind the middleware of that file. */
  appWith: (path: string, whenUnknown: WhenUnknown) => Promise<App>
}
const FRAMEWORKS: Framework[] = [
  {
    name: 'Express',
    block: blockWith('express', 'ts', "from 'express'"),
    appWith: (path, whenUnknown) => appOf('express', path, whenUnknown),
  },
  {
    name: 'Fastify',
    block: blockWith('fastify', 'ts', "from 'fastify'"),
    appWith: (path, whenUnknown) => appOf('fastify', path, whenUnknown),
  },
  {
    name: 'Hono',
    block: blockWith('hono', 'ts', 'hono/factory'),
    appWith: async (path, whenUnknown) => {
      type Middleware = MiddlewareHandler<{ Variables: { verdict: { keyId?: string } } }>
      const module: { tollgate: (whenUnknown: WhenUnknown) => Middleware } = await import(path)
      const app = new Hono().use('/documents/*', module.tollgate(whenUnknown))
      const routed = app.get('/documents/1', (c) => {
        const verdict: { keyId?: string } = c.get('verdict')
        return c.text(verdict.keyId ?? 'nobody')
      })
      return async (request) => await routed.fetch(request)
    },
  },
  {
    name: 'Elysia',
    block: blockWith('elysia', 'ts', "from 'elysia'"),
    appWith: async (path, whenUnknown) => {
      const module: { tollgate: (whenUnknown: WhenUnknown) => Elysia } = await import(path)
      const app = new Elysia()
        .use(module.tollgate(whenUnknown))
        .get(
          '/documents/1',
          (context) => ('verdict' in context ? Object(context.verdict).keyId : null) ?? 'nobody',
        )
      return async (request) => await app.handle(request)
    },
  },
]

describe.each(FRAMEWORKS.map((each) => [each.name, each] as const))(
  'the middleware for %s',
  (_, framework) => {
    const { block, appWith } = framework
    const bearer = (key: string) => ({ authorization: `Bearer ${key}` })
    const choices: WhenUnknown[] = ['pass', 'refuse']

    test('has at most 25 lines and a page of its own', () => {
      expect(block.text.trimEnd().split('\n').length).toBeLessThanOrEqual(25)
      expect(DOCS[block.doc]).toStartWith(`# Check keys in ${framework.name}\n`)
    })

    test('lets a valid key pass and names its owner; refuses a missing, a wrong and a limited key', async () => {
      for (const whenUnknown of choices) {
        const ask = asking(await appWith(save(block), whenUnknown))
        const { key, keyId } = await makeKey(workspace, apiId, {
          ratelimit: { limit: 1, duration: 3_600_000 },
        })
        const good = await ask(bearer(key))
        expect([good.status, await good.text()]).toEqual([200, keyId])
        expect((await ask(bearer(key))).status).toBe(429)
        expect((await ask()).status).toBe(401)
        const wrong = await ask(bearer('wrong'))
        expect([wrong.status, await wrong.json()]).toEqual([403, { error: 'NOT_FOUND' }])
      }
    })

    /** Otherwise anyone who finds such a text needs no key. */
    test('no text in place of a key makes the fail-open one let it pass, and the scheme is case-insensitive', async () => {
      const ask = asking(await appWith(save(block), 'pass'))
      const texts = [
        'k\u00e9y',
        'a b',
        'a\tb',
        '"',
        '\\',
        '{}',
        'null',
        '%00',
        'a, Bearer b',
        'x'.repeat(7000),
        'Bearer x',
      ]
      for (const text of texts)
        expect([text, (await ask({ authorization: `Bearer ${text}` })).status]).toEqual([text, 403])
      for (const text of ['Bearer', 'Bearer ', `Basic ${btoa('a:b')}`, 'x', 'Bearerx', ', Bearer'])
        expect([text, (await ask({ authorization: text })).status]).toEqual([text, 401])
      const forged = {
        'x-tollgate-key-id': 'key_1',
        verdict: '{"valid":true}',
        'x-verdict': '{"valid":true}',
      }
      expect((await ask(forged)).status).toBe(401)
      const { key, keyId } = await makeKey(workspace, apiId)
      for (const scheme of ['bearer', 'BEARER', 'Bearer ']) {
        const answer = await ask({ authorization: `${scheme} ${key}`, ...forged })
        expect([scheme, answer.status, await answer.text()]).toEqual([scheme, 200, keyId])
      }
    })

    test('however the path is written, the application is not reached without a key', async () => {
      const app = await appWith(save(block), 'refuse')
      await using closing = new AsyncDisposableStack()
      const { url, reached } = app.own ?? serve(app, closing)
      for (const batch of batchesOf(hostileRequests({ method: 'GET', path: '/documents/1' }, '/other'), 25))
        await Promise.all(batch.map(({ bytes }) => sendRaw(url, bytes, { patienceMs: 1500 })))
      expect(reached()).toBe(0)
      const { key } = await makeKey(workspace, apiId)
      await fetch(`${url}documents/1`, { headers: bearer(key) })
      expect(reached()).toBe(1)
    })

    /** A 403 for a disabled workspace is a refusal, not an outage: failing open must not let it pass. */
    test('a key of a disabled workspace is refused, also by the fail-open one', async () => {
      const other = await server.workspace()
      const { key } = await makeKey(other, await makeApi(other))
      await server.post(
        'workspaces.updateWorkspace',
        { workspaceId: other.workspaceId, enabled: false },
        OPERATOR_KEY,
      )
      const ask = asking(await appWith(save(block), 'pass'))
      expect((await ask(bearer(key))).status).toBe(403)
    })

    test('while the server is gone, frozen or failing, the fail-open one lets pass and the other refuses, both without a long wait', async () => {
      await using stand = new AsyncDisposableStack()
      const failing = Bun.serve({ port: 0, fetch: () => new Response('{}', { status: 500 }) })
      const frozen = Bun.serve({ port: 0, fetch: () => new Promise<Response>(() => {}) })
      const gone = Bun.serve({ port: 0, fetch: () => new Response() })
      stand.defer(async () => {
        await Promise.all([failing.stop(true), frozen.stop(true)])
      })
      await gone.stop(true)
      for (const [name, { url }] of Object.entries({ failing, frozen, gone })) {
        const path = saveAs(`${nameOf(block)}-${name}`, block.text, url.origin)
        const began = performance.now()
        const statuses = await Promise.all(
          choices.map(
            async (whenUnknown) => (await asking(await appWith(path, whenUnknown))(bearer('any'))).status,
          ),
        )
        expect({ name, statuses }).toEqual({ name, statuses: [200, 503] })
        expect(performance.now() - began).toBeLessThan(5000)
      }
    })
  },
)
