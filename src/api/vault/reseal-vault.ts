import { audit } from '../../audit/log.ts'
import type { ResealVaultReply } from '../../doors/v1/keys/schema.ts'
import { resealDataKeys } from '../../vault/reseal.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'

/**
 * The second step of changing the master key, in all workspaces: the servers run with `TOLLGATE_VAULT_KEY=new,old` by
 * now, and after this `old` can go.
 */
export async function resealVault(services: Services, call: Call): Promise<ResealVaultReply> {
  const actor = await authenticateOperator(services, call)
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
