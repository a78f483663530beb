import { audit } from '../../audit/log.ts'
import { alreadyExists } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import { type Keep, keepNothing } from '../idempotency/answers.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { limitEntry } from './audit.ts'
import { newLimits, type WantedLimit } from './new-limits.ts'
import { insertIdentity, insertIdentityLimits } from './store.ts'

export type NewIdentity = {
  /** Unique in the workspace. */
  externalId: string
  /** JSON text of an object, from `readMeta`; null = none. */
  meta: string | null
  /** Their names are distinct. */
  limits: readonly WantedLimit[]
}

/**
 * Creates an identity with its limits. The second of two calls with one external id is refused, also at the same moment.
 * @returns the id of the identity.
 * @throws ApiError CONFLICT; PRECONDITION_FAILED at a bound of the workspace.
 */
export async function createIdentity(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { externalId, meta, limits: wanted }: NewIdentity,
  keep: Keep<string> = keepNothing,
): Promise<string> {
  const id = newId('id')
  const limits = newLimits(wanted)
  const now = services.clock()
  await services.database.write(async (tx) => {
    if (!(await insertIdentity(tx, actor.workspaceId, { id, externalId, meta, now })))
      throw alreadyExists('identity', `with externalId ${externalId}`)
    await insertIdentityLimits(tx, actor.workspaceId, id, limits, now)
    await audit(tx, actor, [
      {
        event: 'identity.create',
        description: `created identity ${id}`,
        resources: [{ type: 'identity', id, meta: { externalId } }],
      },
      ...limits.map((limit) => limitEntry(id, { before: null, after: limit })),
    ])
    await keep(tx, id)
  })
  return id
}
