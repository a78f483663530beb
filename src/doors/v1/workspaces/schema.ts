import { type Static, type TInteger, type TOptional, Type } from '@sinclair/typebox'
import { BOUND_NAMES, type BoundName } from '../../../lib/workspace-bounds.ts'
import { Nullable, PageQuery, PageReply } from '../page.ts'

const Name = Type.String({ minLength: 3, maxLength: 256, description: 'Display name; need not be unique.' })

const OWN_BOUNDS = BOUND_NAMES.filter((name) => name !== 'workspaces')
const Bounds = Type.Object(
  Object.fromEntries(
    OWN_BOUNDS.map((name) => [
      name,
      Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: Number.MAX_SAFE_INTEGER,
          description: `Bound of \`${name}\` in this workspace.`,
        }),
      ),
    ]),
  ) as Record<Exclude<BoundName, 'workspaces'>, TOptional<TInteger>>, // it has a field for each of these names
  {
    additionalProperties: false,
    description:
      'Bounds of this workspace that differ from the server’s (`TOLLGATE_BOUNDS`). `/docs/bounds` explains each.',
  },
)

export const CreateWorkspaceBody = Type.Object({ name: Name })
export type CreateWorkspaceBody = Static<typeof CreateWorkspaceBody>
export const CreateWorkspaceReply = Type.Object({
  workspaceId: Type.String({ description: 'Id of the new workspace.' }),
  rootKeyId: Type.String({ description: 'Id of its first root key.' }),
  rootKey: Type.String({
    description: 'The root key itself, with `*` in the new workspace. Returned only here.',
  }),
  expires: Type.Optional(
    Type.Integer({
      description:
        'When the root key expires, Unix milliseconds: the same as the root key that created it. Absent = never.',
    }),
  ),
})
export type CreateWorkspaceReply = Static<typeof CreateWorkspaceReply>

export const UpdateWorkspaceBody = Type.Object({
  workspaceId: Type.String({
    minLength: 1,
    maxLength: 256,
    description: 'Id of the workspace, from workspaces.createWorkspace or workspaces.listWorkspaces.',
  }),
  name: Type.Optional(Name),
  enabled: Type.Optional(
    Type.Boolean({
      description: 'False refuses every key and root key of the workspace; true accepts them again.',
    }),
  ),
  bounds: Type.Optional(
    Nullable(Bounds, 'Replaces the bounds of this workspace; null = those of the server.'),
  ),
})
export type UpdateWorkspaceBody = Static<typeof UpdateWorkspaceBody>

export const ListWorkspacesQuery = Type.Object(PageQuery)
export type ListWorkspacesQuery = Static<typeof ListWorkspacesQuery>
export const ListWorkspacesReply = Type.Object({
  workspaces: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the workspace.' }),
      name: Type.String({ description: 'Display name.' }),
      enabled: Type.Boolean({ description: 'False = every key and root key of the workspace is refused.' }),
      bounds: Type.Optional(Bounds),
      createdAt: Type.Integer({ description: 'When it was created, Unix milliseconds.' }),
    }),
    { description: 'One page of the list, oldest first.' },
  ),
  ...PageReply,
})
export type ListWorkspacesReply = Static<typeof ListWorkspacesReply>
