import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { alreadyExists } from '../../errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { insertNamespace, type NamespaceSettings } from './store.ts'

/**
 * Creates a namespace before its first use: to set overrides, or for callers that may not create one.
 * Settings that are absent are as the environment says.
 * @returns its id.
 * @throws ApiError CONFLICT when the name is taken.
 */
export async function createNamespace(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  { name, scope = null, outage = null }: { name: string } & Partial<NamespaceSettings>,
): Promise<string> {
  const id = newId('rlns')
  await services.database.write(async (tx) => {
    const isNew = await insertNamespace(tx, {
      id,
      workspaceId: actor.workspaceId,
      name,
      scope,
      outage,
      now: services.clock(),
    })
    if (!isNew) throw alreadyExists('namespace', name)
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.create',
        description: `created namespace ${id}`,
        resources: [
          {
            type: 'ratelimitNamespace',
            id,
            name,
            ...(scope === null && outage === null ? {} : changesOf(null, { scope, outage })),
          },
        ],
      },
    ])
  })
  return id
}
