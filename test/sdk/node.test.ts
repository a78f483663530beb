import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { join } from 'node:path'
import { IS_NIGHTLY } from '../support/nightly.ts'
import { outcomeOf } from '../support/outcome.ts'
import { startTestServer, type TestServer, type TestWorkspace } from '../support/server.ts'

/** The official clients where most of their users run them. The other tests of this folder run them on Bun. */
setDefaultTimeout(180_000)

let server: TestServer
let workspace: TestWorkspace
beforeAll(async () => {
  server = await startTestServer()
  workspace = await server.workspace()
})
afterAll(async () => await server[Symbol.asyncDispose]())

async function callAsUsersDo(node: string[]): Promise<string> {
  const child = Bun.spawn(
    [...node, join(import.meta.dir, 'node-client.mjs'), server.url, workspace.rootKey],
    {
      stdin: null,
      stdout: 'pipe',
      stderr: 'pipe',
    },
  )
  const { code, out, err } = await outcomeOf(child)
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const { node: version, ...seen } = JSON.parse(out)
  expect(seen).toEqual({
    credits: [2, 1],
    deleted: 'NOT_FOUND',
    limited: [true, false],
    refused: 404,
  })
  return version
}

test.skipIf(Bun.which('node') === null)('on the Node of this machine', async () => {
  expect(await callAsUsersDo(['node'])).toStartWith('v')
})

/** From npm, which fetches them. */
test.if(IS_NIGHTLY)('on the oldest supported Node', async () => {
  expect(await callAsUsersDo(['npm', 'exec', '--yes', '--package=node@20', '--', 'node'])).toStartWith('v20.')
})
test.if(IS_NIGHTLY)('on the newest Node', async () => {
  const version = await callAsUsersDo(['npm', 'exec', '--yes', '--package=node@latest', '--', 'node'])
  expect(Number(version.slice(1).split('.')[0])).toBeGreaterThan(20)
})
