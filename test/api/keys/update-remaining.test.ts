import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { makeApi, makeKey, refusalOf } from '../../support/fixtures.ts'
import { startTestServer, type TestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
})
afterAll(async () => await server[Symbol.asyncDispose]())

async function prepare(remaining: number | null) {
  const workspace = await server.workspace()
  const apiId = await makeApi(workspace)
  const { keyId, key } = await makeKey(workspace, apiId, remaining === null ? {} : { remaining })
  const send = (op: string, value: unknown) =>
    server.post('keys.updateRemaining', { keyId, op, value }, workspace.rootKey)
  return {
    workspace,
    apiId,
    keyId,
    change: async (op: string, value: number | null) => (await send(op, value)).body.remaining,
    refused: async (op: string, value: unknown) => refusalOf(await send(op, value)),
    verify: async () => (await server.post('keys.verifyKey', { key })).body,
  }
}

test('increment, decrement and set return the credits left', async () => {
  const { change } = await prepare(100)
  expect(await change('increment', 10)).toBe(110)
  expect(await change('decrement', 20)).toBe(90)
  expect(await change('set', 10)).toBe(10)
  expect(await change('increment', -3)).toBe(7)
})

const MOST = Number.MAX_SAFE_INTEGER

test('credits stay between 0 and 2^53 - 1, and are exact there', async () => {
  const { change, verify } = await prepare(5)
  expect(await change('decrement', 6)).toBe(0)
  expect(await change('set', -1)).toBe(0)
  expect(await change('set', MOST)).toBe(MOST)
  expect((await verify()).remaining).toBe(MOST - 1)
  expect(await change('increment', 1)).toBe(MOST)
  expect(await change('decrement', MOST - 3)).toBe(3)
})

/** Findings 5.2: it was cut to the largest number, and nobody was told. */
test.each([
  [5, 'increment', MOST],
  [5, 'increment', MOST - 4],
  [MOST, 'increment', 1],
  [5, 'decrement', -MOST],
])('%d credits, %s %d: a result beyond the bound is a 400 and changes nothing', async (before, op, value) => {
  const { change, refused } = await prepare(before)
  expect(await refused(op, value)).toEqual({
    status: 400,
    code: 'BAD_REQUEST',
    message: 'value: remaining would exceed 9007199254740991; nothing was changed',
  })
  expect(await change('increment', 0)).toBe(before)
})

test('setting null removes the count of credits, setting a number restores it, both effective at once', async () => {
  const { change, verify } = await prepare(1)
  expect(await change('set', null)).toBeNull()
  expect(await verify()).not.toHaveProperty('remaining')
  expect(await change('set', 1)).toBe(1)
  expect((await verify()).remaining).toBe(0)
  expect((await verify()).code).toBe('USAGE_EXCEEDED')
})

test('a key without credits to count cannot be incremented or decremented', async () => {
  const { refused, keyId } = await prepare(null)
  for (const op of ['increment', 'decrement']) {
    const { status, code, message } = await refused(op, 1)
    expect([status, code]).toEqual([400, 'BAD_REQUEST'])
    expect(message).toContain(keyId)
  }
})

test.each([
  ['XXX', 1, "op: Invalid enum value. Expected 'increment' | 'decrement' | 'set', received 'XXX'"],
  ['increment', null, 'value: Expected number, received null'],
  ['decrement', null, 'value: Expected number, received null'],
  ['set', undefined, 'value: Required'],
  ['set', 1.5, 'value: Expected integer, received float'],
  ['set', 2 ** 53, 'value: Number must be less than or equal to 9007199254740991'],
  ['increment', -(2 ** 53), 'value: Number must be greater than or equal to -9007199254740991'],
])('%s %j is a 400 that names what is wrong', async (op, value, message) => {
  const { refused } = await prepare(1)
  expect(await refused(op, value)).toEqual({ status: 400, code: 'BAD_REQUEST', message })
})

test('an unknown key and a key of another workspace are not found', async () => {
  const { keyId } = await prepare(1)
  const { rootKey } = await server.workspace()
  for (const id of ['key_unknown', keyId]) {
    const answer = await server.post('keys.updateRemaining', { keyId: id, op: 'set', value: 9 }, rootKey)
    expect(refusalOf(answer)).toEqual({ status: 404, code: 'NOT_FOUND', message: `key ${id} not found` })
  }
})

/** OP61: a key without uses left is not switched off for good. */
test('a key without credits left is valid on the next verification after an increment', async () => {
  const { change, verify } = await prepare(5)
  for (const left of [4, 3, 2, 1, 0]) expect(await verify()).toMatchObject({ valid: true, remaining: left })
  expect(await verify()).toMatchObject({ valid: false, remaining: 0, enabled: true })
  expect(await change('increment', 5)).toBe(5)
  expect(await verify()).toMatchObject({ valid: true, remaining: 4 })
})

test('changes at the same time as verifications lose nothing', async () => {
  const { change, verify } = await prepare(1000)
  const calls = Array.from({ length: 50 }, (_, index) =>
    index % 2 === 0 ? verify() : change('increment', 3),
  )
  await Promise.all(calls)
  expect(await change('increment', 0)).toBe(1000 - 25 + 75)
})

test('accepts the wildcard and the specific permission', async () => {
  const { workspace, apiId, keyId } = await prepare(1)
  for (const permission of ['api.*.update_key', `api.${apiId}.update_key`]) {
    const rootKey = await workspace.rootKeyWith(permission, 'another')
    const answer = await server.post('keys.updateRemaining', { keyId, op: 'set', value: 1 }, rootKey)
    expect(answer.status).toBe(200)
  }
})
