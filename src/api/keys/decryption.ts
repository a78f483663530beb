import { audit } from '../../audit/log.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'

/**
 * Records which keys are about to be shown in plain text: one entry for a call, at most a page of ids. Written before the
 * answer, so that none is shown without it.
 * @param plaintexts By key id, those that are shown; keys that are not recoverable have none.
 */
export async function auditDecryption(
  services: Services,
  actor: Actor,
  apiId: string,
  plaintexts: ReadonlyMap<string, string>,
): Promise<void> {
  const [first] = plaintexts.keys()
  if (first === undefined) return
  const what = plaintexts.size === 1 ? `key ${first}` : `${plaintexts.size} keys`
  await audit(services.sql, actor, [
    {
      event: 'key.decrypt',
      description: `showed the plaintext of ${what} of API ${apiId}`,
      resources: [...[...plaintexts.keys()].map((id) => ({ type: 'key', id })), { type: 'api', id: apiId }],
    },
  ])
}
