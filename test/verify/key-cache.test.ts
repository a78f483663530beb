import { expect, setDefaultTimeout, test } from 'bun:test'
import { ConfigError, readConfig } from '../../src/config.ts'
import { hashKey } from '../../src/verify/secret.ts'
import { startTestServer } from '../support/server.ts'
import { SLOW_MS } from '../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

/** Otherwise memory would grow with the number of keys. */
test('keys beyond the cache’s memory are read again, and verified all the same', async () => {
  await using server = await startTestServer({ env: { TOLLGATE_KEY_CACHE_MIB: '1' } })
  const workspace = await server.workspace()
  const { apiId } = await workspace.post('apis.createApi', { name: 'many keys' })
  const keys = Array.from({ length: 1000 }, (_, i) => `known_${i}`)
  for (let from = 0; from < keys.length; from += 100)
    await workspace.post(
      'migrations.createKeys',
      keys
        .slice(from, from + 100)
        .map((key) => ({ apiId, hash: { value: hashKey(key), variant: 'sha256_base64' } })),
    )
  const { cache } = server.server.deps.keys
  const missesOf = async (count: number) => {
    const before = cache.misses
    for (let from = 0; from < count; from += 100) {
      const answers = await Promise.all(
        keys.slice(from, from + 100).map((key) => server.post('keys.verifyKey', { key }, null)),
      )
      expect(answers.map(({ body }) => body.code)).toEqual(answers.map(() => 'VALID'))
    }
    return cache.misses - before
  }
  expect(await missesOf(300)).toBe(300)
  expect(await missesOf(300)).toBe(0)
  expect(await missesOf(1000)).toBe(700)
  expect(await missesOf(1000)).toBeGreaterThan(100)
})

test('the setting is a whole number of mebibytes', () => {
  const read = (text: string) => readConfig({ TOLLGATE_KEY_CACHE_MIB: text }).keyCacheBytesMax / 2 ** 20
  expect([read(''), read('1'), read('4096')]).toEqual([128, 1, 4096])
  for (const wrong of ['0', '1.5', '-1', 'much', '1048577'])
    expect(() => read(wrong)).toThrow(
      new ConfigError(
        `TOLLGATE_KEY_CACHE_MIB is ${JSON.stringify(wrong)}; it must be a whole number from 1 to 1048576`,
      ),
    )
})
