import type { Actor } from '../../src/api/root-keys/authorize.ts'
import type { WorkspaceId } from '../../src/lib/ids.ts'
import type { TestWorkspace } from './server.ts'

/** The workspace's root key as operations see it, for tests that call them without a door. */
export const actorIn = ({ workspaceId, rootKeyId }: TestWorkspace): Actor => ({
  workspaceId: workspaceId as WorkspaceId, // made by the server
  rootKeyId,
  permissions: new Set(['*']),
  isOperator: false,
  requestId: 'req_test',
  location: null,
  userAgent: null,
})
