import type { Transaction } from '../db/connect.ts'
import { ApiError } from '../errors.ts'
import { changeSealedDataKeys, countDataKeys, findDataKeysNotSealedBy } from './store.ts'
import { sealDataKey, unsealDataKey, type VaultKey } from './vault.ts'

/**
 * Seals every data key with the first vault key, so that the others can be taken out of the configuration. The data keys
 * themselves stay, and with them all that they seal.
 * @param tx All of them or none.
 * @param masters At least one; those after the first only open.
 * @throws ApiError PRECONDITION_FAILED when one does not open, naming it and its vault key.
 */
export async function resealDataKeys(
  tx: Transaction,
  masters: readonly VaultKey[],
  now: number,
): Promise<{ resealed: number; total: number }> {
  const [first] = masters
  if (first === undefined) throw new Error('at least one vault key')
  const resealed = []
  for (const dataKey of await findDataKeysNotSealedBy(tx, first.id)) {
    const { id, workspaceId } = dataKey
    const bytes = await unsealDataKey(masters, dataKey).catch((cause: unknown) => {
      const reason = cause instanceof ApiError && cause.cause instanceof Error ? cause.cause.message : cause
      throw new ApiError('PRECONDITION_FAILED', `nothing was changed: ${reason}`, { cause })
    })
    resealed.push({ id, sealed: await sealDataKey(first, { id, workspaceId, bytes }), vaultKeyId: first.id })
    bytes.fill(0)
  }
  if (resealed.length > 0) await changeSealedDataKeys(tx, resealed, now)
  return { resealed: resealed.length, total: await countDataKeys(tx) }
}
