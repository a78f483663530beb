import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { setOwnBounds } from '../../db/bounds.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { Call } from '../call.ts'
import type { Services } from '../parts.ts'
import { authenticateOperator } from '../root-keys/authorize.ts'
import type { UpdateWorkspaceBody } from './schema.ts'
import { changeWorkspace, lockWorkspace } from './store.ts'

/** Renames a workspace, or closes and opens it: a disabled one refuses every key and root key, effective at once. */
export async function updateWorkspace(
  services: Services,
  call: Call,
  body: UpdateWorkspaceBody,
): Promise<Record<string, never>> {
  const actor = await authenticateOperator(services, call)
  const { workspaceId: id } = body
  if (body.enabled === false && id === actor.workspaceId)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `workspace ${id} is the operator's own: disabled, nobody could enable it again`,
    )
  await services.database.write(async (tx, touch) => {
    const workspace = await lockWorkspace(tx, id)
    if (workspace === null) throw notFound(`workspace ${id}`)
    const { name = workspace.name, enabled = workspace.enabled } = body
    await changeWorkspace(tx, id, { name, enabled, now: services.clock() })
    const { bounds } = body
    if (bounds !== undefined) await setOwnBounds(tx, id, bounds)
    await audit(tx, actor, [
      {
        event: 'workspace.update',
        description: `updated workspace ${id}`,
        resources: [
          {
            type: 'workspace',
            id,
            name,
            ...changesOf(
              { name: workspace.name, enabled: workspace.enabled, bounds: workspace.bounds },
              { name, enabled, bounds: bounds === undefined ? workspace.bounds : bounds },
            ),
          },
        ],
      },
    ])
    touch(id)
  })
  return {}
}
