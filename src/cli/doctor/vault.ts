import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Config } from '../../config.ts'
import { type Finding, finding } from '../../db/inspect.ts'
import { compareVaultKeys, type Sealed } from '../../vault/admit.ts'
import { importMaster } from '../../vault/vault.ts'

/** @param sealed What the database has; null = it cannot be asked, or has no tables yet. */
export async function lookAtVault(
  config: Pick<Config, 'vaultKeys' | 'isVaultLost' | 'databaseUrl' | 'dataDir'>,
  sealed: Sealed | null,
): Promise<Finding[]> {
  const check = 'vault'
  const lost = config.isVaultLost
    ? [
        finding(
          'warn',
          check,
          'TOLLGATE_VAULT_LOST is 1, so a wrong vault key is taken for a lost one; unset it after the start for which you set it',
        ),
      ]
    : []
  const keys = config.vaultKeys ?? generated(config)
  const masters = await Promise.all(keys.map(importMaster))
  const own = masters.map(({ id }) => id).join(', ')
  if (masters.length === 0) {
    const wanted = sealed?.sealedBy ?? []
    return [
      ...lost,
      wanted.length > 0
        ? finding(
            'warn',
            check,
            `there is no vault key, so recoverable keys are refused, and those sealed by ${wanted.join(' and ')} cannot be shown; set TOLLGATE_VAULT_KEY`,
          )
        : finding(
            'ok',
            check,
            config.databaseUrl === null
              ? 'the first start generates a vault key'
              : 'no vault key: recoverable keys are refused until TOLLGATE_VAULT_KEY is set',
          ),
    ]
  }
  if (sealed === null) return [...lost, finding('ok', check, `vault key ${own}`)]
  const { isRight, missing, wanted } = await compareVaultKeys(masters, sealed)
  if (!isRight)
    return [
      ...lost,
      finding(
        config.isVaultLost ? 'warn' : 'fail',
        check,
        `the database is sealed by vault key ${wanted.join(' and ')}, and here is ${own}; add the key with that id to TOLLGATE_VAULT_KEY, or see /docs/backups#when-the-vault-key-is-lost`,
      ),
    ]
  if (missing.length > 0)
    return [
      ...lost,
      finding(
        'warn',
        check,
        `some recoverable keys are sealed by vault key ${missing.join(' and ')}, which is not here; add it to TOLLGATE_VAULT_KEY`,
      ),
    ]
  return [...lost, finding('ok', check, `vault key ${own} opens what the database has`)]
}

/** The vault key in the data directory of an embedded database. */
function generated({ databaseUrl, dataDir }: Pick<Config, 'databaseUrl' | 'dataDir'>): Uint8Array[] {
  const path = join(dataDir, 'vault-key')
  if (databaseUrl !== null || !existsSync(path)) return []
  const bytes = new Uint8Array(Buffer.from(readFileSync(path, 'utf8').trim(), 'base64'))
  return bytes.length === 32 ? [bytes] : []
}
