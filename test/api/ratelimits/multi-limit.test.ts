import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(() => server[Symbol.asyncDispose]())

const element = (overrides: object = {}) => ({
  namespace: 'many',
  identifier: 'user_1',
  limit: 10,
  duration: 86_400_000,
  ...overrides,
})

test('each element is decided by itself, in the given order', async () => {
  const { post } = await server.workspace()
  const body = [
    element({ cost: 6 }),
    element({ cost: 5 }), // refused, and takes nothing
    element({ cost: 4 }),
    element({ identifier: 'user_2' }),
    element({ namespace: 'other' }),
    element({ cost: 0 }),
  ]
  const answers = await post('ratelimits.multiLimit', body)
  expect(
    answers.map(({ success, remaining }: { success: boolean; remaining: number }) => [success, remaining]),
  ).toEqual([
    [true, 4],
    [false, 4],
    [true, 0],
    [true, 9],
    [true, 9],
    [true, 0],
  ])
  expect((await post('ratelimits.limit', element({ cost: 0 }))).remaining).toBe(0) // the same counters as one by one
})

test('async elements are not charged before earlier elements', async () => {
  const { post } = await server.workspace()
  const passed = async (...body: object[]) =>
    (await post('ratelimits.multiLimit', body)).map(({ success }: { success: boolean }) => success)
  expect(await passed(element({ cost: 10 }), element({ cost: 1, async: true }))).toEqual([true, false])
  const later = { identifier: 'user_2', async: true }
  expect(await passed(element(later), element(later))).toEqual([true, true])
  expect((await post('ratelimits.limit', element({ identifier: 'user_2', cost: 0 }))).remaining).toBe(8)
})

test('of a thousand elements on one limit of a hundred exactly a hundred pass', async () => {
  const { post } = await server.workspace()
  const body = Array.from({ length: 1000 }, () => element({ limit: 100 }))
  const answers = await Promise.all([
    post('ratelimits.multiLimit', body),
    post('ratelimits.multiLimit', body),
  ])
  expect(answers.flat().filter(({ success }) => success)).toHaveLength(100)
})

test('one bad element refuses all, naming its index, and nothing is charged', async () => {
  const { post, rootKey } = await server.workspace()
  const body = [element(), element(), element({ limit: 0 })]
  const answer = await server.post('ratelimits.multiLimit', body, rootKey)
  expect(answer).toMatchObject({
    status: 400,
    body: { error: { message: '2.limit: Number must be greater than 0' } },
  })
  expect((await post('ratelimits.limit', element({ cost: 0 }))).remaining).toBe(10)
})

test('a namespace without the right to limit refuses all, and nothing is charged', async () => {
  const workspace = await server.workspace()
  await workspace.post('ratelimits.limit', element({ cost: 0 }))
  await workspace.post('ratelimits.limit', element({ namespace: 'closed', cost: 0 }))
  const { namespaces } = await workspace.get('ratelimits.listNamespaces')
  const { id } = namespaces.find(({ name }: { name: string }) => name === 'many')
  const rootKey = await workspace.rootKeyWith(`ratelimit.${id}.limit`)
  const both = [element(), element({ namespace: 'closed' })]
  expect((await server.post('ratelimits.multiLimit', both, rootKey)).status).toBe(403)
  expect(
    (await server.post('ratelimits.multiLimit', [element(), element({ namespace: 'none' })], rootKey)).status,
  ).toBe(403)
  const everywhere = await workspace.rootKeyWith('ratelimit.*.limit')
  expect(
    (await server.post('ratelimits.multiLimit', [element(), element({ namespace: 'none' })], everywhere))
      .status,
  ).toBe(404)
  expect((await workspace.post('ratelimits.limit', element({ cost: 0 }))).remaining).toBe(10)
  expect((await server.post('ratelimits.multiLimit', [element()], rootKey)).body).toMatchObject([
    { remaining: 9 },
  ])
})

test('a request has a list of one to a thousand elements', async () => {
  const { rootKey } = await server.workspace()
  const refusal = async (body: unknown) =>
    (await server.post('ratelimits.multiLimit', body, rootKey)).body.error.message
  expect(await refusal([])).toBe(': Array must contain at least 1 element(s)')
  expect(await refusal(Array.from({ length: 1001 }, () => element()))).toBe(
    ': Array must contain at most 1000 element(s)',
  )
  expect(await refusal(element())).toBe(': Expected array, received object')
})
