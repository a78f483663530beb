import { type Static, type TInteger, type TOptional, Type } from '@sinclair/typebox'
import { BOUND_NAMES, type BoundName } from '../../../lib/workspace-bounds.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'

const Name = Type.String({ minLength: 3, maxLength: 256, description: 'For people; need not be unique.' })

const OWN_BOUNDS = BOUND_NAMES.filter((name) => name !== 'workspaces')
const Bounds = Type.Object(
  Object.fromEntries(
    OWN_BOUNDS.map((name) => [
      name,
      Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: Number.MAX_SAFE_INTEGER,
          description: `At most so many ${name}.`,
        }),
      ),
    ]),
  ) as Record<Exclude<BoundName, 'workspaces'>, TOptional<TInteger>>, // it has a field for each of these names
  {
    additionalProperties: false,
    description: 'Where this workspace has other bounds than the rest of the server; see `/docs/bounds`.',
  },
)

export const CreateWorkspaceBody = Type.Object({ name: Name })
export type CreateWorkspaceBody = Static<typeof CreateWorkspaceBody>
export const CreateWorkspaceReply = Type.Object({
  workspaceId: Type.String({ description: 'Id of the new workspace.' }),
  rootKeyId: Type.String({ description: 'Id of its first root key.' }),
  rootKey: Type.String({ description: 'Holds `*` in the new workspace. Shown once.' }),
  expires: Type.Optional(
    Type.Integer({
      description:
        'Unix milliseconds from which the root key is refused: as the one that made it. Absent = never.',
    }),
  ),
})
export type CreateWorkspaceReply = Static<typeof CreateWorkspaceReply>

export const UpdateWorkspaceBody = Type.Object({
  workspaceId: Type.String({
    minLength: 1,
    maxLength: 256,
    description: 'From createWorkspace or listWorkspaces.',
  }),
  name: Type.Optional(Name),
  enabled: Type.Optional(
    Type.Boolean({ description: 'False refuses every key and root key of the workspace.' }),
  ),
  bounds: Type.Optional(
    Nullable(Bounds, 'Replaces all that were set for this workspace; null = none of its own.'),
  ),
})
export type UpdateWorkspaceBody = Static<typeof UpdateWorkspaceBody>

export const ListWorkspacesQuery = Type.Object(PageQuery)
export type ListWorkspacesQuery = Static<typeof ListWorkspacesQuery>
export const ListWorkspacesReply = Type.Object({
  workspaces: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the workspace.' }),
      name: Type.String({ description: 'For people.' }),
      enabled: Type.Boolean({ description: 'False: its keys and root keys are all refused.' }),
      bounds: Type.Optional(Bounds),
      createdAt: Type.Integer({ description: 'Unix milliseconds.' }),
    }),
    { description: 'One page, oldest first.' },
  ),
  ...PageReply,
})
export type ListWorkspacesReply = Static<typeof ListWorkspacesReply>
