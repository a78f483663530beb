import { audit } from '../../audit/log.ts'
import type { Call } from '../../doors/http/endpoint.ts'
import type { Deps } from '../../server/deps.ts'
import { resealDataKeys } from '../../vault/reseal.ts'
import type { ResealVaultReply } from '../keys/schema.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'

/**
 * The second step of changing the master key, in all workspaces: the servers run with `TOLLGATE_VAULT_KEY=new,old` by
 * now, and after this `old` can go.
 */
export async function resealVault(deps: Deps, call: Call): Promise<ResealVaultReply> {
  const actor = await authenticateOperator(deps, call)
  deps.vault.requireOpen()
  const masters = await deps.vault.masters
  return await deps.database.write(
    async (tx) => {
      const counts = await resealDataKeys(tx, masters, deps.clock())
      if (counts.resealed > 0)
        await audit(tx, actor, [
          {
            event: 'vault.reseal',
            description: `sealed ${counts.resealed} data keys anew with master key ${masters[0]?.id}`,
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
