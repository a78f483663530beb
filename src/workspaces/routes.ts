import { type Endpoint, get, post } from '../http/endpoint.ts'
import { EmptyReply } from '../lib/page.ts'
import { createWorkspace } from './create-workspace.ts'
import { listWorkspaces } from './list-workspaces.ts'
import {
  CreateWorkspaceBody,
  CreateWorkspaceReply,
  ListWorkspacesQuery,
  ListWorkspacesReply,
  UpdateWorkspaceBody,
} from './schema.ts'
import { updateWorkspace } from './update-workspace.ts'

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
