import type { Transaction } from '../db/connect.ts'
import { ApiError } from '../errors.ts'
import { changeSealedDataKeys, countDataKeys, findDataKeysNotSealedBy, putCheck } from './store.ts'
import { sealCheck, sealDataKey, unsealDataKey, type VaultKey } from './vault.ts'

/**
 * Seals every data key, and what a start checks, with the first vault key, so that the others can be removed from the
 * configuration. The data keys do not change, so the texts sealed by them need no change. Data keys that only a lost vault
 * key opens stay as they are.
 * @param tx Makes it all or nothing.
 * @param masters At least one. The first seals, all open.
 * @throws ApiError PRECONDITION_FAILED naming a data key that cannot be opened and its vault key.
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
    const { id, workspaceId, isLost, vaultKeyId } = dataKey
    if (isLost && !masters.some((each) => each.id === vaultKeyId)) continue
    const bytes = await unsealDataKey(masters, dataKey).catch((cause: unknown) => {
      const reason = cause instanceof ApiError && cause.cause instanceof Error ? cause.cause.message : cause
      throw new ApiError('PRECONDITION_FAILED', `nothing was resealed: ${reason}`, { cause })
    })
    resealed.push({ id, sealed: await sealDataKey(first, { id, workspaceId, bytes }), vaultKeyId: first.id })
    bytes.fill(0)
  }
  // Counted before, while those that were lost still say which vault key opens them.
  const total = await countDataKeys(
    tx,
    masters.map(({ id }) => id),
  )
  if (resealed.length > 0) await changeSealedDataKeys(tx, resealed, now)
  await putCheck(tx, await sealCheck(first), now)
  return { resealed: resealed.length, total }
}
