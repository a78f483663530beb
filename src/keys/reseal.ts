import type { Transaction } from '../db/connect.ts'
import { changeSealedDataKeys, countDataKeys, findDataKeysNotSealedBy } from './store.ts'
import { importMaster, sealDataKey, unsealDataKey } from './vault.ts'

/**
 * Seals every data key with the first master key, so that the others can be taken out of the configuration. The data keys
 * themselves stay, and with them all that they seal. One transaction: all of them or none.
 * @param transact Runs its argument in one transaction.
 * @param masterKeys 32 bytes each; those after the first only open.
 * @throws ApiError INTERNAL_SERVER_ERROR when one does not open; its cause names the data key and its master key.
 */
export async function resealDataKeys(
  transact: <T>(work: (tx: Transaction) => Promise<T>) => Promise<T>,
  masterKeys: readonly Uint8Array[],
  now: number,
): Promise<{ resealed: number; total: number }> {
  const masters = await Promise.all(masterKeys.map(importMaster))
  const [first] = masters
  if (first === undefined) throw new Error('at least one master key')
  return await transact(async (tx) => {
    const old = await findDataKeysNotSealedBy(tx, first.id)
    const resealed = []
    for (const dataKey of old) {
      const { id, workspaceId } = dataKey
      const bytes = await unsealDataKey(masters, dataKey)
      resealed.push({
        id,
        sealed: await sealDataKey(first, { id, workspaceId, bytes }),
        masterKeyId: first.id,
      })
      bytes.fill(0)
    }
    if (resealed.length > 0) await changeSealedDataKeys(tx, resealed, now)
    return { resealed: resealed.length, total: await countDataKeys(tx) }
  })
}
