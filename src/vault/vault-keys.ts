import { join } from 'node:path'
import type { Config } from '../config.ts'
import type { DataDir } from '../data-dir/data-dir.ts'
import { StartError } from '../errors.ts'

/** File in the data directory with the generated vault key. */
const VAULT_KEY_FILE = 'vault-key'

/** The vault keys that a start was given. */
export type GivenVaultKeys = {
  /** 32 bytes each; the first seals, all open. Null = none is there yet, and one may be generated. */
  keys: Uint8Array[] | null
  /** Where they stand: the variable, or the file. */
  from: string
  /** Generates one into the data directory. */
  generate(): Uint8Array[]
}

/**
 * The vault keys of the configuration, or the one in the data directory of an embedded database. With an external database
 * there is none by default: servers on other machines could not open what one machine's own key sealed.
 * @throws StartError when the file does not hold 32 bytes of base64.
 */
export function findVaultKeys(
  { vaultKeys, databaseUrl, dataDir: folder }: Pick<Config, 'vaultKeys' | 'databaseUrl' | 'dataDir'>,
  dataDir: Pick<DataDir, 'secret' | 'found'>,
): GivenVaultKeys {
  const path = join(folder, VAULT_KEY_FILE)
  const bytesOf = (text: string) => {
    const bytes = new Uint8Array(Buffer.from(text, 'base64'))
    if (bytes.length === 32) return [bytes]
    throw new StartError(
      `the file ${path} contains ${bytes.length} bytes of base64; it must contain the 32 bytes that recoverable keys were sealed with`,
    )
  }
  const isConfigured = vaultKeys !== null || databaseUrl !== null
  const text = isConfigured ? null : dataDir.found(VAULT_KEY_FILE)
  return {
    keys: isConfigured ? (vaultKeys ?? []) : text === null ? null : bytesOf(text),
    from: isConfigured ? 'TOLLGATE_VAULT_KEY' : `the file ${path}`,
    generate: () =>
      bytesOf(
        dataDir.secret(VAULT_KEY_FILE, () =>
          Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64'),
        ),
      ),
  }
}
