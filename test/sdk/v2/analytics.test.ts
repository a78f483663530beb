import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { allEndpoints } from '../../../src/server/app.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'
import { errors, expectRefusal, expectUntyped, type Setting, settingOf } from './support.ts'

/** `unkey.analytics` of `@unkey/api` 2.x, which asks in SQL; and that the tests beside this one call everything else. */
setDefaultTimeout(SLOW_MS)

let setting: Setting
beforeAll(async () => {
  setting = await settingOf(await startTestServer())
})
afterAll(() => setting.server[Symbol.asyncDispose]())

/** The client has a class for the status only where its description lists it. */
test('analytics.getVerifications and analytics.getRatelimits answer that this server has no SQL', async () => {
  const { unkey } = setting
  const type = 'unkey/data/analytics_not_configured'
  const query = 'SELECT 1'
  await expectUntyped(unkey.analytics.getVerifications({ query }), 412, type)
  await expectRefusal(unkey.analytics.getRatelimits({ query }), errors.PreconditionFailedErrorResponse, type)
})

test('every operation of v2 is called by these tests', () => {
  const texts = readdirSync(import.meta.dir).map((name) => readFileSync(join(import.meta.dir, name), 'utf8'))
  const methods = allEndpoints.flatMap(({ path }) => /^\/v2\/\w+\.(\w+)$/.exec(path)?.[1] ?? [])
  expect(methods.length).toBeGreaterThan(38)
  const isCalled = (method: string) => texts.some((text) => RegExp(`\\b${method}(\\(|')`).test(text))
  expect(methods.filter((method) => !isCalled(method))).toEqual([])
})
