import type { AuditActor } from '../../audit/log.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { Actor } from './authorize.ts'
import type { RootKeyChange } from './store.ts'

/** Fields of a root key for the audit log. Neither its text nor the beginning of it. */
export const fieldsOf = ({ name, permissions, enabled, expiresAt }: RootKeyChange) => ({
  name,
  permissions,
  enabled,
  expires: expiresAt,
})

/** An operator in the audit log of another workspace: the root key, without address and user agent. */
export const elsewhere = ({ rootKeyId }: Actor, workspaceId: WorkspaceId): AuditActor => ({
  workspaceId,
  rootKeyId,
  location: null,
  userAgent: null,
})
