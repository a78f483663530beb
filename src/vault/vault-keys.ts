import { join } from 'node:path'
import type { Config } from '../config.ts'
import type { DataDir } from '../data-dir/data-dir.ts'
import { StartError } from '../errors.ts'

/** File in the data directory with the generated vault key. */
const VAULT_KEY_FILE = 'vault-key'

/**
 * The vault keys, 32 bytes each, the sealing one first: those of the configuration, or one generated into the data
 * directory of an embedded database. With an external database there is none by default: servers on other machines could
 * not open what one machine's own key sealed.
 * @throws StartError when the file does not hold 32 bytes of base64.
 */
export function readVaultKeys(config: Config, dataDir: Pick<DataDir, 'secret'>): Uint8Array[] {
  if (config.vaultKeys !== null) return config.vaultKeys
  if (config.databaseUrl !== null) return []
  const text = dataDir.secret(VAULT_KEY_FILE, () =>
    Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64'),
  )
  const bytes = new Uint8Array(Buffer.from(text, 'base64'))
  if (bytes.length === 32) return [bytes]
  throw new StartError(
    `the file ${join(config.dataDir, VAULT_KEY_FILE)} contains ${bytes.length} bytes of base64; it must contain the 32 bytes that recoverable keys were sealed with`,
  )
}
