import { expect, setDefaultTimeout, test } from 'bun:test'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { TEST_DATABASE_URL } from '../../support/database.ts'
import { makeApi, makeKey } from '../../support/fixtures.ts'
import { startTestServer } from '../../support/server.ts'
import { SLOW_MS } from '../../support/timeout.ts'

setDefaultTimeout(SLOW_MS)

test.skipIf(TEST_DATABASE_URL !== null)(
  'without TOLLGATE_VAULT_KEY, the embedded database gets a vault key in the data directory',
  async () => {
    await using own = await startTestServer({ env: { TOLLGATE_VAULT_KEY: '' } })
    const file = join(own.server.deps.config.dataDir, 'vault-key')
    expect(existsSync(file)).toBe(true)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(Buffer.from(readFileSync(file, 'utf8'), 'base64')).toHaveLength(32)
    const workspace = await own.workspace()
    const apiId = await makeApi(workspace)
    const { keyId, key } = await makeKey(workspace, apiId, { recoverable: true })
    expect((await workspace.get('keys.getKey', { keyId, decrypt: true })).plaintext).toBe(key)
  },
)
