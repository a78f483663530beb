import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { notFound } from '../../errors.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { changeNamespace, holdNamespace, type NamespaceSettings } from './store.ts'

/**
 * Changes how servers share the limits of a namespace, from the next call on. Shared counts and those of each server are not
 * added up: a window that is open at a change of the scope begins anew on the other side, or goes on where it was left there.
 * @param settings Absent ones stay; null = as the environment says.
 * @throws ApiError NOT_FOUND
 */
export async function updateNamespace(
  services: Pick<Services, 'database' | 'clock'>,
  actor: Actor,
  id: string,
  settings: Partial<NamespaceSettings>,
): Promise<void> {
  await services.database.write(async (tx, invalidate) => {
    const namespace = await holdNamespace(tx, actor.workspaceId, { id })
    if (namespace === null) throw notFound('namespace', id)
    const { name, scope, outage } = namespace
    const after = { scope, outage, ...settings }
    await changeNamespace(tx, actor.workspaceId, id, after, services.clock())
    await audit(tx, actor, [
      {
        event: 'ratelimitNamespace.update',
        description: `updated namespace ${id}: ${Object.keys(settings).join(', ')}`,
        resources: [{ type: 'ratelimitNamespace', id, name, ...changesOf({ scope, outage }, after) }],
      },
    ])
    invalidate(id)
  })
}
