import { Value } from '@sinclair/typebox/value'
import { type Config, readConfig } from '../../src/config.ts'
import type { Envelope } from '../../src/doors/http/dialect.ts'
import { v2 } from '../../src/doors/v2/dialect.ts'
import { ApiError, type ErrorCode } from '../../src/errors.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { allEndpoints } from '../../src/server/app.ts'
import { type Server, startServer } from '../../src/server/server.ts'
import { openTestDatabase, type TestDatabase } from './database.ts'

/** Operator root key of the test server. */
export const OPERATOR_KEY = 'tollgate_operator_key_of_the_tests'
/** Vault key of the test server. An empty text in `env` removes it. */
export const VAULT_KEY = Buffer.alloc(32, 'vault of the tests').toString('base64')

// biome-ignore lint/suspicious/noExplicitAny: a test asserts the shape of what it gets; any reply is read field by field
export type Json = any // see above

export type Answer = { status: number; body: Json; headers: Headers }

export type TestServer = AsyncDisposable & {
  server: Server
  url: string
  /** A GET when `input` is a query and the method a read, otherwise a POST. Without a root key unless one is given. */
  get(
    method: string,
    query?: Record<string, unknown>,
    rootKey?: string | null,
    headers?: Record<string, string>,
  ): Promise<Answer>
  post(
    method: string,
    body?: unknown,
    rootKey?: string | null,
    headers?: Record<string, string>,
  ): Promise<Answer>
  /** Calls `listener` with each statement of the main thread's requests until the returned function is called. */
  onStatement(listener: (text: string) => void): () => void
  /** Creates a workspace with a root key that holds `*`, which isolates tests on one server. */
  workspace(): Promise<TestWorkspace>
}

export type TestWorkspace = {
  workspaceId: string
  /** Holds `*`. */
  rootKey: string
  rootKeyId: string
  /** Creates a root key that holds exactly these permissions. */
  rootKeyWith(...permissions: string[]): Promise<string>
  /** Calls with the workspace's root key. Throws when the answer is not a success. */
  get(method: string, query?: Record<string, unknown>): Promise<Json>
  post(method: string, body?: unknown): Promise<Json>
}

/**
 * A complete server in this process, with real shards and a fresh database, on a free port.
 * @param options.env Variables besides the usual ones, as an operator would set them.
 * @param options.clock The test's own time.
 * @param options.database A database that other servers use too. Its opener closes it, and it must be a Postgres.
 */
export async function startTestServer(
  options: { env?: Record<string, string>; clock?: Clock; database?: TestDatabase } = {},
): Promise<TestServer> {
  const database = options.database ?? (await openTestDatabase())
  const config: Config = readConfig({
    PORT: '0',
    DATABASE_URL: database.databaseUrl ?? '',
    TOLLGATE_DATA_DIR: database.dataDir,
    TOLLGATE_ROOT_KEY: OPERATOR_KEY,
    TOLLGATE_VAULT_KEY: VAULT_KEY,
    TOLLGATE_FLUSH_MS: '100',
    TOLLGATE_SHARDS: '2',
    TOLLGATE_HTTP_THREADS: '1',
    // Long, because a slow machine is not an outage. Tests of outages set their own.
    TOLLGATE_DB_TIMEOUT_MS: '20000',
    ...options.env,
  })
  const listeners = new Set<(text: string) => void>()
  const server = await startServer(config, {
    ...(options.clock === undefined ? {} : { clock: options.clock }),
    onStatement: (text) => {
      for (const listener of listeners) listener(text)
    },
  })
  const calls = callsTo(server.url)
  return {
    server,
    url: server.url,
    ...calls,
    onStatement: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    workspace: () => makeWorkspace(calls),
    [Symbol.asyncDispose]: async () => {
      await server.stop()
      if (options.database === undefined) await database[Symbol.asyncDispose]()
    },
  }
}

type Calls = Pick<TestServer, 'get' | 'post'>

/** HTTP calls to any server, as a client makes them. */
export function callsTo(url: string): Calls {
  const send = async (path: string, init: RequestInit, rootKey: string | null): Promise<Answer> => {
    const headers = new Headers(init.headers)
    if (rootKey !== null) headers.set('authorization', `Bearer ${rootKey}`)
    const response = await fetch(`${url}${path}`, { ...init, headers })
    const text = await response.text()
    const isJson = /^application\/(problem\+)?json/.test(response.headers.get('content-type') ?? '')
    const body = isJson ? JSON.parse(text) : text
    requireDescribed(path, init.method ?? 'GET', response.status, body)
    return { status: response.status, body, headers: response.headers }
  }
  return {
    get: (method, query = {}, rootKey = null, headers = {}) =>
      send(`${pathOf(method)}${searchOf(query)}`, { headers }, rootKey),
    post: (method, body = {}, rootKey = null, headers = {}) =>
      send(
        pathOf(method),
        {
          method: 'POST',
          body: typeof body === 'string' ? body : JSON.stringify(body),
          headers: { 'content-type': 'application/json', ...headers },
        },
        rootKey,
      ),
  }
}

/** Checks every answer in every test against /openapi.json. */
function requireDescribed(path: string, method: string, status: number, body: Json): void {
  const endpoint = allEndpoints.find((each) => each.method === method && each.path === path.split('?')[0])
  if (endpoint === undefined) return
  const isDescribed =
    status < 300
      ? status === endpoint.status && Value.Check(endpoint.reply, body)
      : endpoint.dialect === v2
        ? endpoint.errors.some((code) => v2StatusesOf(code).includes(status))
        : endpoint.errors.includes(body.error?.code)
  if (!isDescribed)
    throw new Error(`${endpoint.path} is not described to answer ${status} ${JSON.stringify(body)}`)
}

/** In the v2 API a code is a status, and several types. */
function v2StatusesOf(code: ErrorCode): number[] {
  const { status } = v2.failure(new ApiError(code, ''), NO_ENVELOPE)
  return code === 'BAD_REQUEST' ? [status, 413] : code === 'CONFLICT' ? [status, 409] : [status]
}
const NO_ENVELOPE: Envelope = {
  requestId: '',
  startedAt: 0,
  addedHeaders: null,
  isCrossOrigin: false,
  path: '',
  accept: null,
  isApi: true,
  isPretty: false,
  publicUrl: '',
  trace: null,
}

/** A method of the v1 API, or a whole path. */
const pathOf = (method: string) => (method.startsWith('/') ? method : `/v1/${method}`)

function searchOf(query: Record<string, unknown>): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one))
  return search.size === 0 ? '' : `?${search}`
}

async function makeWorkspace({ get, post }: Calls): Promise<TestWorkspace> {
  const name = `test ${crypto.randomUUID()}`
  const made = success(await post('workspaces.createWorkspace', { name }, OPERATOR_KEY))
  const { workspaceId, rootKey, rootKeyId } = made
  return {
    workspaceId,
    rootKey,
    rootKeyId,
    rootKeyWith: async (...permissions) =>
      success(await post('rootKeys.createRootKey', { permissions }, rootKey)).rootKey,
    get: async (method, query = {}) => success(await get(method, query, rootKey)),
    post: async (method, body = {}) => success(await post(method, body, rootKey)),
  }
}

function success({ status, body }: Answer): Json {
  if (status >= 300) throw new Error(`answered ${status}: ${JSON.stringify(body)}`)
  return body
}
