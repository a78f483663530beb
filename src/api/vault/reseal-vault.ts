import { audit } from '../../audit/log.ts'
import { resealDataKeys } from '../../vault/reseal.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/**
 * The second step of changing the vault key, in all workspaces: the servers run with `TOLLGATE_VAULT_KEY=new,old` by
 * now, and after this `old` can go.
 * @returns data keys that an older vault key had sealed, and data keys there are.
 * @throws ApiError PRECONDITION_FAILED when the server has no vault key, or one data key does not open; then nothing changes.
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

/** For a data key of each of very many workspaces. */
const RESEAL_MS = 25_000
