/* Replies of the server's v1 API. */

export type { GetOverviewReply } from '../doors/v1/analytics/schema.ts'
export type { GetApiReply, ListApisReply } from '../doors/v1/apis/schema.ts'
export type { ListEventsReply } from '../doors/v1/audit-events/schema.ts'
export type { IdentityReply, ListIdentitiesReply } from '../doors/v1/identities/schema.ts'
export type {
  CreateKeyReply,
  KeyObject,
  RerollKeyReply,
  UpdateRemainingReply,
  VerifyKeyReply,
  WhoamiReply,
} from '../doors/v1/keys/schema.ts'
export type {
  CreatePermissionReply,
  CreateRoleReply,
  ListPermissionsReply,
  ListRolesReply,
  PermissionReply,
  RoleReply,
} from '../doors/v1/permissions/schema.ts'
export type {
  GetOverrideReply,
  ListNamespacesReply,
  ListOverridesReply,
} from '../doors/v1/ratelimits/schema.ts'
export type {
  CreateRootKeyReply,
  ListRootKeysReply,
  RerollRootKeyReply,
  WhoamiRootKeyReply,
} from '../doors/v1/root-keys/schema.ts'
export type { AskServersReply } from '../doors/v1/server-answers.ts'
export type { CreateWorkspaceReply, ListWorkspacesReply } from '../doors/v1/workspaces/schema.ts'
