import type {
  GetOverviewReply,
  RatelimitDatapoint,
  VerificationDatapoint,
} from '../../doors/v1/analytics/schema.ts'
import type { CreateApiReply, GetApiReply, ListApisReply, ListKeysReply } from '../../doors/v1/apis/schema.ts'
import type { ListEventsReply } from '../../doors/v1/audit-events/schema.ts'
import type { ListRecentReply, ListWatchesReply, WatchReply } from '../../doors/v1/events/schema.ts'
import type {
  CreateIdentityReply,
  IdentityReply,
  ListIdentitiesReply,
} from '../../doors/v1/identities/schema.ts'
import type {
  CreateKeyReply,
  ExplainKeyReply,
  KeyObject,
  ListKeysOfAllApisReply,
  SearchKeysReply,
  UpdateRemainingReply,
} from '../../doors/v1/keys/schema.ts'
import type {
  DiscardImportsReply,
  ListImportsReply,
  RetryImportsReply,
} from '../../doors/v1/migrations/schema.ts'
import type {
  CreatePermissionReply,
  CreateRoleReply,
  GetPermissionReply,
  GetRoleReply,
  SearchPermissionsReply,
  SearchRolesReply,
  SetRolePermissionsReply,
} from '../../doors/v1/permissions/schema.ts'
import type {
  CreateNamespaceReply,
  GetWindowsReply,
  ListNamespacesReply,
  ListNearLimitReply,
  ListOverridesReply,
  SetOverrideReply,
} from '../../doors/v1/ratelimits/schema.ts'
import type {
  CreateRootKeyReply,
  ListRootKeysReply,
  RerollRootKeyReply,
} from '../../doors/v1/root-keys/schema.ts'
import type { GetStatusReply } from '../../doors/v1/server/schema.ts'
import type { CreateWorkspaceReply, ListWorkspacesReply } from '../../doors/v1/workspaces/schema.ts'
import type { SessionReply } from '../schema.ts'

/** Methods of the API that the dashboard calls, with their answers. Only types cross: a changed reply breaks the compile. */
export type Replies = {
  'session.state': SessionReply
  'session.open': SessionReply
  'session.close': SessionReply
  liveness: Liveness
  'analytics.getOverview': GetOverviewReply
  'apis.createApi': CreateApiReply
  'apis.listApis': ListApisReply
  'apis.listKeys': ListKeysReply
  'keys.createKey': CreateKeyReply
  'ratelimits.listNamespaces': ListNamespacesReply
  'rootKeys.createRootKey': CreateRootKeyReply
  'rootKeys.listRootKeys': ListRootKeysReply
  // Limits, live and why.
  'apis.getApi': GetApiReply
  'apis.updateApi': object
  'analytics.getRatelimits': RatelimitDatapoint[]
  'analytics.getVerifications': VerificationDatapoint[]
  'events.listRecent': ListRecentReply
  'events.listWatches': ListWatchesReply
  'events.unwatch': object
  'events.watch': WatchReply
  'keys.explainKey': ExplainKeyReply
  'keys.getKey': KeyObject
  'keys.searchKeys': SearchKeysReply
  'keys.updateKey': object
  'keys.updateRemaining': UpdateRemainingReply
  'ratelimits.createNamespace': CreateNamespaceReply
  'ratelimits.deleteNamespace': object
  'ratelimits.deleteOverride': object
  'ratelimits.getWindows': GetWindowsReply
  'ratelimits.listNearLimit': ListNearLimitReply
  'ratelimits.listOverrides': ListOverridesReply
  'ratelimits.setOverride': SetOverrideReply
  // Identities, roles, root keys, audit, workspaces
  'identities.createIdentity': CreateIdentityReply
  'identities.getIdentity': IdentityReply
  'identities.listIdentities': ListIdentitiesReply
  'identities.updateIdentity': IdentityReply
  'identities.deleteIdentity': object
  'permissions.createPermission': CreatePermissionReply
  'permissions.getPermission': GetPermissionReply
  'permissions.searchPermissions': SearchPermissionsReply
  'permissions.deletePermission': object
  'permissions.createRole': CreateRoleReply
  'permissions.getRole': GetRoleReply
  'permissions.searchRoles': SearchRolesReply
  'permissions.deleteRole': object
  'permissions.setRolePermissions': SetRolePermissionsReply
  'keys.listKeys': ListKeysOfAllApisReply
  'keys.addRoles': object
  'keys.removeRoles': object
  'keys.addPermissions': object
  'keys.removePermissions': object
  'rootKeys.updateRootKey': object
  'rootKeys.rerollRootKey': RerollRootKeyReply
  'rootKeys.deleteRootKey': object
  'audit.listEvents': ListEventsReply
  'migrations.listImports': ListImportsReply
  'migrations.retryImports': RetryImportsReply
  'migrations.discardImports': DiscardImportsReply
  'server.getStatus': GetStatusReply
  'workspaces.createWorkspace': CreateWorkspaceReply
  'workspaces.listWorkspaces': ListWorkspacesReply
  'workspaces.updateWorkspace': object
}

export type Liveness = {
  state: string
  version: string
  services: { ratelimit: string; usagelimit: string; database: 'ok' | 'read-only' | 'away' }
}

/** The server refused a call, or did not answer. */
export class CallFailed extends Error {
  override name = 'CallFailed'
  /** HTTP status; 0 = there was no answer. */
  readonly status: number
  readonly code: string
  /** The request's id in the server's log; null = there was no answer. */
  readonly requestId: string | null
  constructor(message: string, facts: { status: number; code: string; requestId: string | null }) {
    super(message)
    this.status = facts.status
    this.code = facts.code
    this.requestId = facts.requestId
  }
}

/** Told of every answer that says that the session has ended. */
export const listeners = { sessionEnded: (_: CallFailed) => {} }

/**
 * Calls a method with the root key of a workspace.
 * @param options.workspaceId Absent = of the session itself.
 * @param options.isRefresh The page asks by itself: it does not keep the session from ending.
 * @throws CallFailed
 */
export async function call<Name extends keyof Replies>(
  method: Name,
  input: object,
  options: { workspaceId?: string; isRefresh?: boolean; signal?: AbortSignal } = {},
): Promise<Replies[Name]> {
  const { workspaceId, isRefresh = false, signal } = options
  const response = await fetch(`/dashboard/api/${method}`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'X-Tollgate-Dashboard': '1',
      ...(workspaceId !== undefined && { 'X-Tollgate-Workspace': workspaceId }),
      ...(isRefresh && { 'X-Tollgate-Refresh': '1' }),
    },
    body: JSON.stringify(input),
    ...(signal !== undefined && { signal }),
  }).catch((cause: unknown) => {
    if (cause instanceof DOMException && cause.name === 'AbortError') throw cause
    throw new CallFailed('The server does not answer.', { status: 0, code: 'NO_ANSWER', requestId: null })
  })
  const body: unknown = await response.json().catch(() => null)
  if (response.ok) return body as Replies[Name] // the server's own schema, by its types
  const failed = failureOf(response.status, body)
  if (failed.code === 'UNAUTHENTICATED') listeners.sessionEnded(failed)
  throw failed
}

function failureOf(status: number, body: unknown): CallFailed {
  const error = typeof body === 'object' && body !== null && 'error' in body ? body.error : null
  const text = (name: string): string | null => {
    const value: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, name) : null
    return typeof value === 'string' ? value : null
  }
  return new CallFailed(text('message') ?? `The server answered ${status}.`, {
    status,
    code: text('code') ?? 'UNKNOWN',
    requestId: text('requestId'),
  })
}
