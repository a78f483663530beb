import type { AuditActor } from '../../audit/log.ts'
import type { WorkspaceId } from '../../lib/ids.ts'
import type { Actor } from './authorize.ts'
import type { RootKeyChange } from './store.ts'

/** Of a root key, what the audit log says. Not its text, nor the beginning of that. */
export const fieldsOf = ({ name, permissions, enabled, expiresAt }: RootKeyChange) => ({
  name,
  permissions,
  enabled,
  expires: expiresAt,
})

/** An operator as another workspace sees it: who did it, not from where. */
export const elsewhere = ({ rootKeyId }: Actor, workspaceId: WorkspaceId): AuditActor => ({
  workspaceId,
  rootKeyId,
  location: null,
  userAgent: null,
})
