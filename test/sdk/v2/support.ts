import { expect } from 'bun:test'
import { Unkey } from '@unkey/api'
import * as errors from '@unkey/api/models/errors'
import type { TestServer, TestWorkspace } from '../../support/server.ts'

/** What the tests of Unkey's v2 clients share. Fixtures are made through v1, so each test needs only the call it is about. */

export { errors }

export type Setting = { server: TestServer; workspace: TestWorkspace; unkey: Unkey }

/** The client as a program makes it. Attempts are not repeated: a test wants the first answer. */
export const clientOf = (server: Pick<TestServer, 'url'>, rootKey: string): Unkey =>
  new Unkey({ rootKey, serverURL: server.url, retryConfig: { strategy: 'none' } })

export async function settingOf(server: TestServer): Promise<Setting> {
  const workspace = await server.workspace()
  return { server, workspace, unkey: clientOf(server, workspace.rootKey) }
}

/** A client whose root key holds exactly these permissions. */
export const clientWith = async ({ server, workspace }: Setting, ...permissions: string[]): Promise<Unkey> =>
  clientOf(server, await workspace.rootKeyWith(...permissions))

/** A root key that may call once an hour. No endpoint gives root keys limits; those of an import may have them. */
export async function limitedRootKey({ server, workspace }: Setting): Promise<string> {
  const made = await workspace.post('rootKeys.createRootKey', { permissions: ['*'] })
  await server.server.deps.sql`
    insert into ratelimits (id, workspace_id, name, key_id, "limit", duration_ms, auto_apply, created_at)
    select ${`rl_${made.rootKeyId}`}, workspace_id, 'default', id, 1, ${HOUR}, true, 0
      from keys where id = ${made.rootKeyId}`
  return made.rootKey
}

/** An id that no record has. */
export const MISSING = 'missing_12345678'
export const MINUTE = 60_000
export const HOUR = 3_600_000

/** The classes that the client throws for the statuses that an operation lists. */
type Typed = abstract new (
  ...args: never[]
) => errors.UnkeyError & {
  error: { title: string; detail: string; status: number; type: string }
  meta: { requestId: string }
}

/**
 * The call is refused with this class, and the class has understood the whole answer.
 * @param type What follows `https://unkey.com/docs/errors/`, or `about:blank`.
 */
export async function expectRefusal<Kind extends Typed>(
  call: Promise<unknown>,
  kind: Kind,
  type: string,
): Promise<InstanceType<Kind>> {
  const thrown = await thrownBy(call)
  if (!(thrown instanceof kind)) throw new Error(`expected ${kind.name}, got ${describe(thrown)}`)
  expect(thrown.error).toEqual({
    title: expect.any(String),
    detail: expect.any(String),
    status: thrown.statusCode,
    type: wholeType(type),
    // Only problems with what was sent have it, and they always have it.
    ...(thrown instanceof errors.BadRequestErrorResponse ? { errors: expect.any(Array) } : {}),
  })
  expect(thrown.error.title.length * thrown.error.detail.length).toBeGreaterThan(0)
  expect(thrown.meta).toEqual({ requestId: expect.stringMatching(/^req_[a-zA-Z0-9]+$/) })
  expect(thrown.headers.get('Unkey-Request-Id')).toBe(thrown.meta.requestId)
  return thrown as InstanceType<Kind> // checked above
}

/** The operation does not list the status, so the client has no class for it: it throws its general error. */
export async function expectUntyped(call: Promise<unknown>, status: number, type: string): Promise<void> {
  const thrown = await thrownBy(call)
  if (!(thrown instanceof errors.APIError)) throw new Error(`expected APIError, got ${describe(thrown)}`)
  expect(thrown.statusCode).toBe(status)
  expect(JSON.parse(thrown.body)).toEqual({
    meta: { requestId: expect.any(String) },
    error: expect.objectContaining({ status, type: wholeType(type) }),
  })
}

const wholeType = (type: string) => (type === 'about:blank' ? type : `https://unkey.com/docs/errors/${type}`)

async function thrownBy(call: Promise<unknown>): Promise<unknown> {
  const result = await call.then(
    (value) => ({ value }),
    (thrown: unknown) => ({ thrown }),
  )
  if ('thrown' in result) return result.thrown
  throw new Error(`expected a refusal, got ${JSON.stringify(result.value)}`)
}

const describe = (thrown: unknown): string =>
  thrown instanceof errors.UnkeyError
    ? `${thrown.constructor.name}: ${thrown.message} ${thrown.statusCode} ${thrown.body}`
    : String(thrown)

type Page<Item> = { result: { data: Item[]; pagination?: { hasMore: boolean; cursor?: string | undefined } } }

/**
 * Every page up to the end that the client itself finds. No item comes twice, and only the last page says that it is the
 * last. @throws Error when there is no end.
 */
export async function pagesOf<Item>(list: Promise<AsyncIterable<Page<Item>>>): Promise<Item[][]> {
  const pages: Item[][] = []
  const more: (boolean | undefined)[] = []
  for await (const { result } of await list) {
    pages.push(result.data)
    more.push(result.pagination?.hasMore)
    expect(result.pagination?.cursor !== undefined).toBe(result.pagination?.hasMore === true)
    if (pages.length > 50) throw new Error('the list has no end')
  }
  expect(more).toEqual(pages.map((_, index) => index < pages.length - 1))
  const items = pages.flat().map((item) => JSON.stringify(item))
  expect(new Set(items).size).toBe(items.length)
  return pages
}
