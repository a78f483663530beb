import type {
  GetOverviewReply,
  RatelimitDatapoint,
  VerificationDatapoint,
} from '../../doors/v1/analytics/schema.ts'
import type { CreateApiReply, GetApiReply, ListApisReply } from '../../doors/v1/apis/schema.ts'
import type { ListEventsReply } from '../../doors/v1/audit-events/schema.ts'
import type { ListRecentReply, ListWatchesReply, WatchReply } from '../../doors/v1/events/schema.ts'
import type {
  CreateIdentityReply,
  GetIdentityReply,
  IdentityReply,
  ListIdentitiesReply,
} from '../../doors/v1/identities/schema.ts'
import type {
  CreateKeyReply,
  ExplainKeyReply,
  GetLastUsedReply,
  KeyObject,
  ListKeysOfAllApisReply,
  RerollKeyReply,
  SearchKeysReply,
  UpdateRemainingReply,
  WhoamiReply,
} from '../../doors/v1/keys/schema.ts'
import type {
  CheckKeysReply,
  CreateKeysReply,
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
import type {
  GetHistoryReply,
  GetSettingsReply,
  GetStatusReply,
  ListServersReply,
} from '../../doors/v1/server/schema.ts'
import type { AskServersReply } from '../../doors/v1/server-answers.ts'
import type { CreateWorkspaceReply, ListWorkspacesReply } from '../../doors/v1/workspaces/schema.ts'
import type { SessionReply } from '../schema.ts'

/** Methods of the API that the dashboard calls, with their answers. Only types cross: a changed reply breaks the compile. */
export type Replies = {
  'session.state': SessionReply
  'session.open': SessionReply
  'session.close': SessionReply
  liveness: Liveness
  'analytics.getOverview': GetOverviewReply
  'analytics.getRatelimits': RatelimitDatapoint[]
  'analytics.getVerifications': VerificationDatapoint[]
  'apis.createApi': CreateApiReply
  'apis.deleteApi': Nothing
  'apis.getApi': GetApiReply
  'apis.listApis': ListApisReply
  'apis.updateApi': Nothing
  'audit.listEvents': ListEventsReply
  'events.listRecent': ListRecentReply
  'events.listWatches': ListWatchesReply
  'events.unwatch': Nothing
  'events.watch': WatchReply
  'identities.createIdentity': CreateIdentityReply
  'identities.deleteIdentity': Nothing
  'identities.getIdentity': GetIdentityReply
  'identities.listIdentities': ListIdentitiesReply
  'identities.updateIdentity': IdentityReply
  'keys.addPermissions': Nothing
  'keys.addRoles': Nothing
  'keys.askServers': AskServersReply
  'keys.createKey': CreateKeyReply
  'keys.deleteKey': Nothing
  'keys.explainKey': ExplainKeyReply
  'keys.getKey': KeyObject
  'keys.getLastUsed': GetLastUsedReply
  'keys.listKeys': ListKeysOfAllApisReply
  'keys.removePermissions': Nothing
  'keys.removeRoles': Nothing
  'keys.rerollKey': RerollKeyReply
  'keys.searchKeys': SearchKeysReply
  'keys.updateKey': Nothing
  'keys.updateRemaining': UpdateRemainingReply
  'keys.whoami': WhoamiReply
  'migrations.checkKeys': CheckKeysReply
  'migrations.createKeys': CreateKeysReply
  'migrations.discardImports': DiscardImportsReply
  'migrations.listImports': ListImportsReply
  'migrations.retryImports': RetryImportsReply
  'permissions.createPermission': CreatePermissionReply
  'permissions.createRole': CreateRoleReply
  'permissions.deletePermission': Nothing
  'permissions.deleteRole': Nothing
  'permissions.getPermission': GetPermissionReply
  'permissions.getRole': GetRoleReply
  'permissions.searchPermissions': SearchPermissionsReply
  'permissions.searchRoles': SearchRolesReply
  'permissions.setRolePermissions': SetRolePermissionsReply
  'ratelimits.createNamespace': CreateNamespaceReply
  'ratelimits.deleteNamespace': Nothing
  'ratelimits.deleteOverride': Nothing
  'ratelimits.getWindows': GetWindowsReply
  'ratelimits.listNamespaces': ListNamespacesReply
  'ratelimits.listNearLimit': ListNearLimitReply
  'ratelimits.listOverrides': ListOverridesReply
  'ratelimits.setOverride': SetOverrideReply
  'ratelimits.updateNamespace': Nothing
  'rootKeys.askServers': AskServersReply
  'rootKeys.createRootKey': CreateRootKeyReply
  'rootKeys.deleteRootKey': Nothing
  'rootKeys.listRootKeys': ListRootKeysReply
  'rootKeys.rerollRootKey': RerollRootKeyReply
  'rootKeys.updateRootKey': Nothing
  'server.getHistory': GetHistoryReply
  'server.getSettings': GetSettingsReply
  'server.getStatus': GetStatusReply
  'server.listServers': ListServersReply
  'workspaces.createWorkspace': CreateWorkspaceReply
  'workspaces.listWorkspaces': ListWorkspacesReply
  'workspaces.updateWorkspace': Nothing
}

/** The reply of changes that return nothing. */
export type Nothing = Record<string, never>

export type Liveness = {
  state: string
  version: string
  services: { ratelimit: string; usagelimit: string; database: 'ok' | 'read-only' | 'away'; fleet?: string }
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
