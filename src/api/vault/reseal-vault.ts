import { audit } from '../../audit/log.ts'
import { resealDataKeys } from '../../vault/reseal.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/**
 * Second step of changing the vault key, for all workspaces. First all servers run with `TOLLGATE_VAULT_KEY=new,old`; after
 * this, `old` can be removed.
 * @returns how many data keys were sealed by an older vault key, and how many there are.
 * @throws ApiError PRECONDITION_FAILED when the server has no vault key or a data key cannot be opened. Nothing changes
 *   then.
 */
export async function resealVault(
  services: Pick<Services, 'database' | 'clock' | 'vault'>,
  actor: Actor,
): Promise<{ resealed: number; total: number }> {
  services.vault.requireOpen()
  const masters = await services.vault.masters
  return await services.database.write(
    async (tx) => {
      const counts = await resealDataKeys(tx, masters, services.clock())
      if (counts.resealed > 0)
        await audit(tx, actor, [
          {
            event: 'vault.reseal',
            description: `sealed ${counts.resealed} data keys anew with vault key ${masters[0]?.id}`,
            resources: [],
          },
        ])
      return counts
    },
    { timeoutMs: RESEAL_MS },
  )
}

/** Enough for one data key of each of very many workspaces, ms. */
const RESEAL_MS = 25_000
