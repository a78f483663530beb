import { changesOf } from '../../audit/changes.ts'
import { audit } from '../../audit/log.ts'
import { setOwnBounds } from '../../db/bounds.ts'
import { ApiError, notFound } from '../../errors.ts'
import type { Bounds } from '../../lib/workspace-bounds.ts'
import type { Services } from '../parts.ts'
import type { Actor } from '../root-keys/authorize.ts'
import { changeWorkspace, lockWorkspace } from './store.ts'

/** Absent fields stay. */
export type WorkspaceChange = {
  name?: string
  /** False refuses every key and root key of the workspace. */
  enabled?: boolean
  /** Replaces all bounds set for this workspace; null = the defaults. */
  bounds?: Partial<Bounds> | null
}

/**
 * Renames, disables or enables a workspace, or changes its bounds. Disabling applies to the next request.
 * @param operator From `authenticateOperator`.
 * @throws ApiError NOT_FOUND; PRECONDITION_FAILED when operators would disable their own workspace.
 */
export async function updateWorkspace(
  services: Pick<Services, 'database' | 'clock'>,
  operator: Actor,
  id: string,
  change: WorkspaceChange,
): Promise<void> {
  if (change.enabled === false && id === operator.workspaceId)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `workspace ${id} belongs to the operator and cannot be disabled: nobody could enable it again`,
    )
  await services.database.write(async (tx, invalidate) => {
    const workspace = await lockWorkspace(tx, id)
    if (workspace === null) throw notFound('workspace', id)
    const { name = workspace.name, enabled = workspace.enabled, bounds } = change
    await changeWorkspace(tx, id, { name, enabled, now: services.clock() })
    if (bounds !== undefined) await setOwnBounds(tx, id, bounds)
    await audit(tx, operator, [
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
    invalidate(id)
  })
}
