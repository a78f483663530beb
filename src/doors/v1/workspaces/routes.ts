import { authenticateOperator } from '../../../api/root-keys/authorize.ts'
import { createWorkspace } from '../../../api/workspaces/create-workspace.ts'
import { listWorkspaces } from '../../../api/workspaces/list-workspaces.ts'
import { updateWorkspace } from '../../../api/workspaces/update-workspace.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { get, post } from '../endpoint.ts'
import { EmptyReply, pageOf } from '../page.ts'
import {
  CreateWorkspaceBody,
  CreateWorkspaceReply,
  ListWorkspacesQuery,
  ListWorkspacesReply,
  UpdateWorkspaceBody,
} from './schema.ts'

/** Schemas and rights of the workspace endpoints, for operators. `api/workspaces/` does the work. */
export const workspaceRoutes: Endpoint[] = [
  post(
    '/v1/workspaces.createWorkspace',
    {
      input: CreateWorkspaceBody,
      reply: CreateWorkspaceReply,
      summary: 'Create a workspace',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call, { name }) => {
      const operator = await authenticateOperator(services, call)
      const { id: workspaceId, rootKey } = await createWorkspace(services, operator, name)
      const { id: rootKeyId, secret, expiresAt } = rootKey
      return {
        workspaceId,
        rootKeyId,
        rootKey: secret,
        ...(expiresAt === null ? {} : { expires: expiresAt }),
      }
    },
  ),
  post(
    '/v1/workspaces.updateWorkspace',
    {
      input: UpdateWorkspaceBody,
      reply: EmptyReply,
      summary: 'Update a workspace',
      errors: ['NOT_FOUND', 'PRECONDITION_FAILED'],
    },
    async (services, call, { workspaceId, ...change }) => {
      const operator = await authenticateOperator(services, call)
      await updateWorkspace(services, operator, workspaceId, change)
      return {}
    },
  ),
  get(
    '/v1/workspaces.listWorkspaces',
    { input: ListWorkspacesQuery, reply: ListWorkspacesReply, summary: 'List workspaces' },
    async (services, call, query) => {
      await authenticateOperator(services, call)
      const { items, ...page } = await listWorkspaces(services, pageOf(query))
      const workspaces = items.map(({ bounds, ...row }) => (bounds === null ? row : { ...row, bounds }))
      return { workspaces, ...page }
    },
  ),
]
