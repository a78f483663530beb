import { createWorkspace } from '../../../api/workspaces/create-workspace.ts'
import { listWorkspaces } from '../../../api/workspaces/list-workspaces.ts'
import {
  CreateWorkspaceBody,
  CreateWorkspaceReply,
  ListWorkspacesQuery,
  ListWorkspacesReply,
  UpdateWorkspaceBody,
} from '../../../api/workspaces/schema.ts'
import { updateWorkspace } from '../../../api/workspaces/update-workspace.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply } from '../page.ts'

export const workspaceRoutes: Endpoint[] = [
  post(
    '/v1/workspaces.createWorkspace',
    {
      input: CreateWorkspaceBody,
      reply: CreateWorkspaceReply,
      summary: 'Create a workspace',
      errors: ['PRECONDITION_FAILED'],
    },
    createWorkspace,
  ),
  post(
    '/v1/workspaces.updateWorkspace',
    {
      input: UpdateWorkspaceBody,
      reply: EmptyReply,
      summary: 'Update a workspace',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    updateWorkspace,
  ),
  get(
    '/v1/workspaces.listWorkspaces',
    { input: ListWorkspacesQuery, reply: ListWorkspacesReply, summary: 'List workspaces' },
    listWorkspaces,
  ),
]
